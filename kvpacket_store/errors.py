"""The one tree of errors.

Every message says what happened, to which document or packet, and what to do. The class says whose
turn it is, and ``exit_code`` is what ``kvps`` returns for it.

::

    KVPacketError                      1
    ├── UsageError                     2  the caller asked for something that cannot be done
    │   ├── DocumentError              1  one document cannot be read or tokenized; the rest goes on
    │   ├── ContextOverflowError       2  the assembled prompt is longer than the model's context
    │   └── LevelUnavailableError      2  the codec level needs something that is not here
    ├── NotFoundError                  1  store, document, namespace or packet is not there
    ├── ModelError                     5  model or tokenizer cannot be used
    │   ├── UnsupportedModelError      5  an architecture or RoPE kind that is refused by name
    │   ├── ModelMismatchError         5  not the model, adapter or dtype of the store
    │   ├── AdapterError               5  header or trailer cannot be used with this model
    │   └── QualityError               5  a report that says nothing, or a pair without one
    ├── CodecError                     4  bytes that cannot be turned into K,V
    │   ├── CorruptRecordError         4  a checksum or a bound does not hold
    │   ├── TruncatedRecordError       4  the bytes end too early
    │   └── UnsupportedFormatError     4  a newer or foreign format
    ├── StoreError                     4
    │   ├── StoreLockedError           3  another process holds what is needed
    │   ├── StoreFullError             3  disk or byte cap reached; nothing was lost
    │   │   └── CapReachedError        3  the store's own byte cap, not the disk
    │   ├── ReadOnlyError              4  the store is open for reading alone
    │   └── StoreCorruptError          4  the store's structure does not hold
    ├── BundleError                    4  a bundle is damaged, cut or larger than the limits
    ├── IncompleteUpsertError          1  some documents of many were not filed; the others were
    └── CancelledError                 1  the caller cancelled the request
"""

from __future__ import annotations

__all__ = [
    "AdapterError",
    "BundleError",
    "CancelledError",
    "CapReachedError",
    "CodecError",
    "ContextOverflowError",
    "CorruptRecordError",
    "DocumentError",
    "IncompleteUpsertError",
    "KVPacketError",
    "LevelUnavailableError",
    "ModelError",
    "ModelMismatchError",
    "NotFoundError",
    "QualityError",
    "ReadOnlyError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "SwapFailedError",
    "TruncatedRecordError",
    "UnsupportedFormatError",
    "UnsupportedModelError",
    "UsageError",
]


class KVPacketError(Exception):
    """Root of every error that this package raises on purpose."""

    exit_code = 1


class UsageError(KVPacketError):
    """The caller asked for something that cannot be done; the message says what can."""

    exit_code = 2


class DocumentError(UsageError):
    """One document cannot be read, tokenized or stored; the others are not touched.

    Parameters
    ----------
    document_id : str
        The document, as the caller named it.
    reason : str
        What happened and what to do.
    """

    exit_code = 1

    def __init__(self, document_id: str, reason: str) -> None:
        super().__init__(f"document {document_id!r}: {reason}")
        self.document_id = document_id
        self.reason = reason


class ContextOverflowError(UsageError):
    """The prompt needs more positions than the model has; pass fewer documents or a lower top-k."""


class LevelUnavailableError(UsageError):
    """The codec level needs something (a codec pack, a later version) that is not here."""


class NotFoundError(KVPacketError):
    """Store, document, namespace or packet is not there (or not the caller's: same answer)."""


class ModelError(KVPacketError):
    """The model or its tokenizer cannot be used."""

    exit_code = 5


class UnsupportedModelError(ModelError):
    """An architecture, RoPE kind or cache layout that is refused by name, never approximated."""


class ModelMismatchError(ModelError):
    """Not the model, adapter or dtype that the store was made with; its packets are all misses."""


class AdapterError(ModelError):
    """A header or trailer that cannot be used with this model."""


class QualityError(ModelError):
    """A quality report that cannot be believed, or a model and adapter that have none."""


class CodecError(KVPacketError):
    """Bytes that cannot be turned into K and V; prefill again from the stored token ids."""

    exit_code = 4


class CorruptRecordError(CodecError):
    """A checksum, a bound or a reserved value does not hold."""


class TruncatedRecordError(CodecError):
    """The bytes end before the record does."""


class UnsupportedFormatError(CodecError):
    """The record says that a newer or foreign format wrote it."""


class StoreError(KVPacketError):
    """The store on disk cannot do what was asked."""

    exit_code = 4


class StoreLockedError(StoreError):
    """Another process holds what is needed; try again when it is done."""

    exit_code = 3


class StoreFullError(StoreError):
    """Disk or byte cap reached. Nothing that was acknowledged is lost; delete or raise the cap."""

    exit_code = 3


class CapReachedError(StoreFullError):
    """The store's own byte cap is reached, and nothing may be evicted for what comes."""


class ReadOnlyError(StoreError):
    """The store is open for reading alone; open it where, and as who, may write to its folder."""


class StoreCorruptError(StoreError):
    """The structure of the store does not hold; run ``kvps doctor`` and restore or re-ingest."""


class BundleError(KVPacketError):
    """A bundle is damaged, cut or larger than the limits; copy or export it again."""

    exit_code = 4


class IncompleteUpsertError(KVPacketError):
    """Some documents were not filed, the others were: correct or leave out those, and send again.

    Parameters
    ----------
    succeeded : list of str
        Ids that are filed.
    failed : dict of str to str
        Id to the reason.
    """

    def __init__(self, succeeded: list[str], failed: dict[str, str]) -> None:
        first, reason = next(iter(failed.items()))
        super().__init__(
            f"{len(failed)} of {len(succeeded) + len(failed)} documents were not filed, among them "
            f"{first!r:.80}: {reason}"
        )
        self.succeeded = succeeded
        self.failed = failed


class CancelledError(KVPacketError):
    """The caller cancelled the request; nothing of it is kept."""


class SwapFailedError(KVPacketError):
    """The exact K and V did not arrive; what failed is prefilled again, and nothing was decided."""
