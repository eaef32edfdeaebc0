"""Reading a bundle: documents one at a time, packets when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from kvpacket_store.bundle.container import Container
from kvpacket_store.bundle.contents import parse_document, parse_packet, split_embeddings
from kvpacket_store.bundle.identity import BundleIdentity
from kvpacket_store.bundle.json_text import from_json
from kvpacket_store.bundle.limits import DEFAULT_LIMITS, BundleLimits
from kvpacket_store.bundle.members import (
    FORMAT_NAME,
    FORMAT_VERSION,
    HEAD,
    codec_pack,
    document_description,
    document_embeddings,
    document_text,
    packet_description,
    packet_enhancement,
    packet_record,
)
from kvpacket_store.errors import BundleError
from kvpacket_store.store import DocumentManifest, PacketRecord
from kvpacket_store.types import TokenIds

__all__ = ["Bundle", "BundledDocument", "BundledPackets", "read_bundle"]


class BundledPackets(Mapping[str, PacketRecord]):
    """The packets of one document whose records travel, by packet key; read at each look-up.

    Raises
    ------
    BundleError
        At a look-up: the packet is damaged.
    """

    def __init__(self, bundle: Bundle, manifest: DocumentManifest) -> None:
        self._bundle = bundle
        self._tokens = {segment.packet_key: segment.tokens for segment in manifest.segments}

    def __getitem__(self, packet_key: str) -> PacketRecord:
        if packet_key not in self:
            raise KeyError(packet_key)
        values, token_ids = self._describe(packet_key)
        members, name = self._bundle.members, packet_enhancement(packet_key)
        return PacketRecord(
            **{**values, "token_ids": token_ids},
            record=members.read(packet_record(packet_key)),
            enhancement=members.read(name) if name in members else None,
        )

    def __contains__(self, packet_key: object) -> bool:
        return packet_key in self._tokens and packet_record(str(packet_key)) in self._bundle.members

    def __iter__(self) -> Iterator[str]:
        return (packet_key for packet_key in self._tokens if packet_key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def record_bytes(self, packet_key: str) -> int:
        """Return the length of a record that travels, with its enhancement."""
        members, name = self._bundle.members, packet_enhancement(packet_key)
        more_bytes = members.num_bytes(name) if name in members else 0
        return members.num_bytes(packet_record(packet_key)) + more_bytes

    def token_ids(self, packet_key: str) -> TokenIds | None:
        """Return a packet's token ids, whether or not its record travels; None: not known."""
        if packet_description(packet_key) not in self._bundle.members:
            return None
        return self._describe(packet_key)[1]

    def _describe(self, packet_key: str) -> tuple[dict[str, Any], TokenIds]:
        name = packet_description(packet_key)
        values = from_json(self._bundle.members.read(name), name, self._bundle.limits)
        token_ids = parse_packet(values, packet_key, name)
        if len(token_ids) != self._tokens[packet_key]:
            raise BundleError(
                f"{name} of the bundle has {len(token_ids)} tokens, its segment "
                f"{self._tokens[packet_key]}; export it again"
            )
        return values, token_ids


BundledDocument: TypeAlias = tuple[DocumentManifest, BundledPackets, list[bytes] | None]
"""A document with its text, its packets, and the float32 values of each segment."""


class Bundle:
    """An open bundle. Its identity has been read; the rest is read, and checked, when asked for.

    Not to be shared between threads.
    """

    def __init__(self, path: Path, limits: BundleLimits) -> None:
        self.limits = limits
        self.members = Container(path, limits)
        try:
            self.identity = _read_identity(self.members, limits)
            self.num_documents = _count_documents(self.members, limits)
            _require_bases(self.members)
        except BaseException:
            self.members.close()
            raise

    @property
    def num_packets(self) -> int:
        """How many records travel."""
        return sum(name.endswith(".kvr") for name in self.members)

    def documents(self) -> Iterator[BundledDocument]:
        """Yield every document, in the order of their ids.

        Raises
        ------
        BundleError
            A member is damaged or cannot be right; `document` reads the others.
        """
        return (self.document(number) for number in range(self.num_documents))

    def document(self, number: int) -> BundledDocument:
        """Return one document, 0 to ``num_documents - 1``; errors as `documents`."""
        name, text_name = document_description(number), document_text(number)
        values = from_json(self.members.read(name), name, self.limits)
        try:
            text = self.members.read(text_name).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise BundleError(f"{text_name} of the bundle is not UTF-8; export it again") from error
        manifest = parse_document(values, text, name, self.limits)
        embeddings = None
        name = document_embeddings(number)
        if name in self.members:
            data = self.members.read(name)
            embeddings = split_embeddings(data, len(manifest.segments), name)
        return manifest, BundledPackets(self, manifest), embeddings

    @property
    def codec_packs(self) -> list[str]:
        """Digests of the codec packs that travel, as their names say."""
        return [
            name.removeprefix("packs/").removesuffix(".kvc")
            for name in self.members
            if name.endswith(".kvc")
        ]

    def codec_pack(self, digest: str) -> bytes:
        """Return a codec pack's bytes, not looked at yet.

        Raises
        ------
        BundleError
            It is damaged, or does not travel.
        """
        return self.members.read(codec_pack(digest))

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self.members.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_bundle(path: str | os.PathLike[str], *, limits: BundleLimits = DEFAULT_LIMITS) -> Bundle:
    """Open a bundle; use it in a ``with`` statement.

    Its layout, index and identity are checked at once, what it holds when it is asked for.

    Raises
    ------
    NotFoundError, UsageError
        There is no such file, or it is no bundle.
    UnsupportedFormatError
        A later version wrote it; upgrade this package.
    BundleError
        It is damaged or cut: copy or export it again. Or it is larger than ``limits``.
    """
    return Bundle(Path(path), limits)


def _read_identity(members: Container, limits: BundleLimits) -> BundleIdentity:
    head = from_json(members.read(HEAD), HEAD, limits)
    identity = BundleIdentity.from_dict(head.pop("identity", None))
    if head != {"format": FORMAT_NAME, "version": FORMAT_VERSION}:
        raise BundleError(f"{HEAD} of the bundle and its end disagree on the format")
    return identity


def _count_documents(members: Container, limits: BundleLimits) -> int:
    """Count them; they are numbered from 0, and each has a description and a text."""
    names = [name for name in members if name.startswith("documents/")]
    count = sum(name.endswith(".json") for name in names)
    if count > limits.max_documents:
        raise BundleError(
            f"the bundle has {count} documents, over max_documents={limits.max_documents}; "
            "pass a higher limit if that is right"
        )
    for number in range(count):
        if document_description(number) not in members or document_text(number) not in members:
            raise BundleError(f"document {number} of the bundle is not whole; export it again")
    num_embeddings = sum(document_embeddings(number) in members for number in range(count))
    if len(names) != 2 * count + num_embeddings:
        raise BundleError("the bundle has parts of documents that it does not have")
    return count


def _require_bases(members: Container) -> None:
    for name in members:
        if name.endswith(".kve") and f"{name.removesuffix('.kve')}.kvr" not in members:
            raise BundleError(f"{name} of the bundle completes nothing; export it again")
