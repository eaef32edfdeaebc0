"""Which K and V a codec pack is fitted to: packets spread evenly over many documents.

Documents are gone through once and held one at a time. From each come as many packets as are due
by then, so a few long ones do not crowd out the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.errors import CodecError, NotFoundError, StoreCorruptError, UsageError
from kvpacket_store.prefill import BodyKV
from kvpacket_store.store import DocumentManifest
from kvpacket_store.text import read_documents
from kvpacket_store.types import BitArray, Document

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store

__all__ = ["Sample", "corpus_samples", "held_out_apart", "store_samples"]

_PAGE = 256
_HELD_OUT = 10  # one of so many


class Sample(NamedTuple):
    """A packet's K and V, and the number of the document that it is from."""

    document: int
    k: BitArray
    v: BitArray

    @property
    def tokens(self) -> int:
        """Positions that it holds."""
        return int(self.k.shape[2])


class _Offer(NamedTuple):
    """A packet that could be taken: what it is, how long it is, and how to come by it."""

    identity: Hashable
    tokens: int
    load: Callable[[], BodyKV]


def store_samples(store: Store, tokens: int, namespace: str | None = None) -> Iterator[Sample]:
    """Yield packets of a namespace, or of the whole store, of about ``tokens`` together.

    They are read where they are stored; what was evicted or is damaged is prefilled.
    """
    loader = PacketLoader(store)

    def offers(manifest: DocumentManifest) -> Iterator[_Offer]:
        for ref in manifest.segments:
            key = ref.packet_key
            yield _Offer(
                key,
                ref.tokens,
                partial(_body, loader, manifest.namespace or "", key, manifest.id),
            )

    count = store.packets.count(namespace)
    return _spread((partial(offers, one) for one in _manifests(store, namespace)), count, tokens)


def corpus_samples(store: Store, path: Path, tokens: int) -> Iterator[Sample]:
    """Yield packets of about ``tokens`` together, prefilled from a text, a folder or JSONL.

    Raises
    ------
    UsageError
        There is no document in it that can be read.
    """
    count = sum(1 for _ in _documents(path))
    if not count:
        raise UsageError(f"{path} holds no document that can be read; name text files or JSONL")

    def offers(document: Document) -> Iterator[_Offer]:
        for segment in store.segments(document):
            ids = segment.token_ids
            yield _Offer(ids, len(ids), partial(store.prefiller.segment, ids))

    return _spread((partial(offers, one) for one in _documents(path)), count, tokens)


def held_out_apart(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return what is trained on, and a tenth that is not: of whole documents where there are ten.

    Raises
    ------
    UsageError
        There is only one packet, or none.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.zeros((1, 1, 8, 2), np.uint16)
    >>> [len(part) for part in held_out_apart([Sample(i // 2, one, one) for i in range(40)])]
    [36, 4]
    """
    if len(samples) < 2:
        raise UsageError(
            f"there are {len(samples)} packets to train on, 2 are the least; ingest more "
            "documents, or pass a corpus"
        )
    documents = list(dict.fromkeys(sample.document for sample in samples))
    if len(documents) >= _HELD_OUT:
        chosen = set(documents[_HELD_OUT - 1 :: _HELD_OUT])
        kept_apart = [sample.document in chosen for sample in samples]
    else:
        last = len(samples) - 1
        kept_apart = [i % _HELD_OUT == min(_HELD_OUT - 1, last) for i in range(len(samples))]
    pairs = list(zip(samples, kept_apart, strict=True))
    return [s for s, apart in pairs if not apart], [s for s, apart in pairs if apart]


def _manifests(store: Store, namespace: str | None) -> Iterator[DocumentManifest]:
    after: str | None = None
    while True:
        page = store.packets.document_page(namespace, _PAGE, after)
        yield from page.documents
        if page.following is None:
            return
        after = page.following


def _documents(path: Path) -> Iterator[Document]:
    return (d for d in read_documents([str(path)]) if isinstance(d, Document))


def _body(loader: PacketLoader, namespace: str, key: str, document_id: str) -> BodyKV:
    return loader.body(namespace, key, document_id).body


def _spread(
    documents: Iterable[Callable[[], Iterator[_Offer]]], count: int, tokens: int
) -> Iterator[Sample]:
    got, seen = 0, set[Hashable]()
    for number, offers_of in enumerate(documents):
        due = -(-tokens * (number + 1) // count)
        if got >= due:
            continue
        offers = [offer for offer in offers_of() if offer.identity not in seen]
        step = max(sum(offer.tokens for offer in offers) // (due - got), 1)
        for offer in offers[::step]:
            if got >= due:
                break
            seen.add(offer.identity)
            # one that is lost for good is for `verify` to name: others tell as much
            with contextlib.suppress(CodecError, NotFoundError, StoreCorruptError):
                body = offer.load()
                got += offer.tokens
                yield Sample(number, body.k, body.v)
