"""One function for each parser of bytes that others may have written.

The law: it returns, or raises what is documented; nothing else, whatever the bytes. Where a digest
stands before what is parsed, the target seals the bytes first: chance would not, an attacker does.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import struct
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pydantic
import zstandard
from kvpacket_store._server.schemas import GenerateRequest, IngestRequest

from kvpacket_store.adapters import Adapter, load_adapter, save_adapter
from kvpacket_store.bundle import read_bundle, write_bundle
from kvpacket_store.bundle.members import INDEX, comment_of, make_info
from kvpacket_store.codec import decode, encode, info
from kvpacket_store.codec.linear.body import Place, decode_parts, encode_parts, new_context
from kvpacket_store.codec.linear.pack import CodecPack
from kvpacket_store.codec.linear.prepared import prepare
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_items, make_pack
from kvpacket_store.errors import KVPacketError
from kvpacket_store.retrieve.index import PacketIndex
from kvpacket_store.retrieve.snapshot import SnapshotKey, load_snapshot, save_snapshot
from kvpacket_store.store import DocumentManifest, PacketManifest, PacketStore, StoreMeta
from kvpacket_store.store.rows import pack, unpack_json
from kvpacket_store.store.synthetic import make_meta, make_record, make_write
from kvpacket_store.text import read_documents

__all__ = ["TARGETS", "Target"]

_MOST_RAW_BYTES = 1 << 20
_SNAPSHOT_KEY = SnapshotKey(namespace="n", generation=1, embedder_digest="e", dimension=4)


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, what it may raise, and true inputs to begin with.

    ``words`` are what a mutation may put in: keys and values that the parser looks at.
    """

    parse: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    allowed: tuple[type[Exception], ...] = (KVPacketError,)
    words: tuple[bytes, ...] = (b"[]", b"{}", b"null", b"-1", b"1e999", b"true", b'""', b"9" * 20)

    def run(self, data: bytes) -> None:
        """Parse; let through what is not allowed."""
        with contextlib.suppress(*self.allowed):
            self.parse(data)


@functools.cache
def scratch() -> Path:
    """A folder of this process."""
    folder = tempfile.TemporaryDirectory(prefix="kvps-fuzz-")
    scratch.folder = folder  # type: ignore[attr-defined] # kept until the process ends
    return Path(folder.name)


def file_of(name: str, data: bytes) -> Path:
    path = scratch() / name
    path.write_bytes(data)
    return path


# --- records


def parse_record(data: bytes) -> None:
    info(data)
    decode(data, max_bytes=_MOST_RAW_BYTES)


def record_seeds() -> list[bytes]:
    k = np.arange(48, dtype=np.uint16).reshape(1, 2, 6, 4)
    levels = [encode(k, k, kv_dtype="bf16", level=level) for level in ("raw", "fast")]
    return [*levels, encode(k.astype(np.uint8), k.astype(np.uint8), kv_dtype="fp8_e4m3")]


# --- rows and what they hold


def parse_row(data: bytes) -> None:
    unpack_json(hashlib.sha256(data).digest() + data, "a row")


def row_seeds() -> list[bytes]:
    return [pack(b'{"a": [1, 2.5, null]}')[32:], pack(b'{"a": "' + b"x" * 2000 + b'"}')[32:]]


def parse_manifest(data: bytes) -> None:
    if (values := json_object(data)) is not None:
        PacketManifest.from_json(values)
        DocumentManifest.from_json(values, "n")


def manifest_seeds() -> list[bytes]:
    record = make_record("r", 100)
    packet = PacketManifest(
        record.packet_key, record.token_ids, 8, 9, "d", "e", (100,), 4096, ("00" * 8,)
    )
    document = make_write("d", [record]).manifest
    both = {**document.to_json(), **packet.to_json()}
    return [json.dumps(both).encode(), json.dumps(document.to_json()).encode()]


def parse_meta(data: bytes) -> None:
    if (values := json_object(data)) is not None:
        StoreMeta.from_dict(values)


def json_object(data: bytes) -> dict | None:
    """What a row of JSON may hold; rows themselves are another target."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


# --- an index on disk


def parse_snapshot(data: bytes) -> None:
    sealed = b"KVPINDX1" + hashlib.sha256(data).digest() + data
    for content in (data, sealed):
        _SNAPSHOT_KEY.path_in(scratch()).write_bytes(content)
        index = load_snapshot(scratch(), _SNAPSHOT_KEY)
        if index is not None:
            index.search(np.array([1, 0, 0, 0], np.float32), top_k=3)


def snapshot_seeds() -> list[bytes]:
    class Source:
        def generation(self, namespace):
            return 1

        def iter_embeddings(self, namespace):
            for row in range(3):
                yield f"d{row}", row, "k", np.eye(4, dtype="<f4")[row].tobytes()

    index = PacketIndex.build(Source(), "n", dimension=4)
    save_snapshot(scratch(), _SNAPSHOT_KEY, index)
    return [_SNAPSHOT_KEY.path_in(scratch()).read_bytes()[40:]]


# --- files that people hand in


def parse_adapter(data: bytes) -> None:
    load_adapter(file_of("a.safetensors", data))


def adapter_seeds() -> list[bytes]:
    path = scratch() / "a.safetensors"
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    save_adapter(Adapter("a", values, values.copy()), path)
    return [path.read_bytes()]


def parse_documents(data: bytes) -> None:
    list(read_documents([str(file_of("a.jsonl", data))]))
    list(read_documents(["-"], io.BytesIO(data)))


def document_seeds() -> list[bytes]:
    return [
        b'{"id": "a", "text": "One.", "metadata": {"title": "T", "tags": [1, null]}}\n\n'
        b'{"id": 7, "text": "Two.\\ud800\\u0000"}\n',
        b"\xff\xfe{\x00}\x00",
        "Plain text: café.\n".encode(),
    ]


def parse_bodies(data: bytes) -> None:
    for body in (IngestRequest, GenerateRequest):
        try:
            body.model_validate_json(data)
        except pydantic.ValidationError:
            continue


def body_seeds() -> list[bytes]:
    return [
        b'{"documents": [{"id": "a", "text": "One.", "metadata": {"n": [1.5]}}], "namespace": "n"}',
        b'{"query": "Who?", "documents": ["a"], "top_k": 3, "temperature": 0.5, "seed": 1, '
        b'"stop": ["x"], "where": {"a": 1}, "stream": true}',
    ]


# --- bundles


def parse_bundle(data: bytes) -> None:
    with read_bundle(file_of("a.kvpb", data)) as bundle:
        for _, packets, _ in bundle.documents():
            for packet_key in packets:
                packets.token_ids(packet_key)
            list(packets.values())


@functools.cache
def true_bundle() -> bytes:
    fingerprint = dict.fromkeys(("weights", "tokenizer", "config", "rope"), "0" * 64)
    path = scratch() / "true.kvps"
    with PacketStore.create(path, make_meta(fingerprint=fingerprint)) as store:
        store.put_documents("n", [make_write("d", [make_record("r", 20)])])
        write_bundle(store, scratch() / "true.kvpb", namespace="n")
    return (scratch() / "true.kvpb").read_bytes()


def parse_member(data: bytes) -> None:
    """A member, chosen by the first byte, is anything, and all else is sealed as it should be."""
    with zipfile.ZipFile(io.BytesIO(true_bundle())) as old:
        members = {name: old.read(name) for name in old.namelist() if name != INDEX}
    members[list(members)[data[0] % len(members) if data else 0]] = data[1:]
    rows = [f"{hashlib.sha256(d).hexdigest()} {len(d)} {name}\n" for name, d in members.items()]
    index = "".join(rows).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for name, content in [*members.items(), (INDEX, index)]:
            new.writestr(make_info(name), content)
        new.comment = comment_of(hashlib.sha256(index).hexdigest())
    parse_bundle(file.getvalue())


def member_seeds() -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(true_bundle())) as archive:
        names = [name for name in archive.namelist() if name != INDEX]
        return [bytes([number]) + archive.read(name) for number, name in enumerate(names)]


@functools.cache
def small_pack() -> CodecPack:
    return make_pack(PackShape(2, 1, 5, 1), "bf16", 1)


def parse_pack_contents(data: bytes) -> None:
    """Seal the contents of a pack, so that they are looked at whatever they are."""
    sealed = small_pack().to_bytes()[:10] + struct.pack("<I", len(data))
    CodecPack.from_bytes(sealed + zstandard.ZstdCompressor().compress(data))


def pack_contents() -> list[bytes]:
    return [zstandard.ZstdDecompressor().decompress(small_pack().to_bytes()[14:])]


def parse_linear_body(data: bytes) -> None:
    """Decode a chunk whose base has as many bytes as the first four say."""
    prepared, cut = prepare(small_pack()), 4 + int.from_bytes(data[:4], "little")
    outs = tuple(np.empty((2, 1, 40, 5), np.uint16))
    parts = data[4:cut], data[cut:]
    decode_parts(parts, prepared, Place(0, 0, 2), new_context(prepared, 40), outs)


def linear_bodies() -> list[bytes]:
    prepared, chunk = prepare(small_pack()), make_items((1, 40, 5), "bf16", 1, 0.01)
    base, rest = encode_parts(chunk, prepared, Place(0, 0, 2), new_context(prepared, 40)) or (
        b"",
        b"",
    )
    return [struct.pack("<I", len(base)) + base + rest]


TARGETS = {
    "codec_pack": Target(CodecPack.from_bytes, lambda: [small_pack().to_bytes()]),
    "codec_pack_contents": Target(parse_pack_contents, pack_contents),
    "linear_body": Target(parse_linear_body, linear_bodies),
    "record": Target(parse_record, record_seeds),
    "row": Target(parse_row, row_seeds),
    "manifest": Target(parse_manifest, manifest_seeds),
    "store_meta": Target(
        parse_meta, lambda: [json.dumps(make_meta(rope=({"name": "a"},)).to_dict()).encode()]
    ),
    "snapshot": Target(parse_snapshot, snapshot_seeds),
    "adapter": Target(parse_adapter, adapter_seeds, words=(b"F64", b"BF16", b"F8_E4M3", b"I64")),
    "documents": Target(parse_documents, document_seeds),
    "server_body": Target(parse_bodies, body_seeds),
    "bundle": Target(parse_bundle, lambda: [true_bundle()]),
    "bundle_member": Target(parse_member, member_seeds),
}
