"""An index on disk, so that a fresh process need not read every embedding again.

One file a namespace, replaced as a whole: vectors and segment names cannot drift apart. The file
begins with a SHA-256 of the rest. Nothing in it is parsed before that holds, and nothing in it is
used unless generation, namespace and embedder are the ones asked for. Any doubt means "no
snapshot": the caller builds the index from its source.

Layout: magic (8) · SHA-256 of all that follows (32) · length of the head (4, little-endian) · head
(JSON) · id map (JSON) · index (faiss).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvpacket_store.durable import sync
from kvpacket_store.retrieve.id_map import IdMap
from kvpacket_store.retrieve.index import PacketIndex

__all__ = ["SnapshotKey", "load_snapshot", "save_snapshot"]

_MAGIC = b"KVPINDX1"
_DIGEST_BYTES = 32
_LOG = logging.getLogger(__name__)
_UNUSABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
             RuntimeError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """What a snapshot must have been made from to be of use.

    Parameters
    ----------
    namespace : str
        Whose embeddings.
    generation : int
        The source's number for their state.
    embedder_digest : str
        Which embedder made them.
    dimension : int
        Values a vector.
    """

    namespace: str
    generation: int
    embedder_digest: str
    dimension: int

    def path_in(self, folder: Path) -> Path:
        """Return the namespace's file. The namespace is data, so its name is only hashed."""
        name = hashlib.sha256(self.namespace.encode("utf-8", "surrogatepass")).hexdigest()
        return folder / f"{name}.index"


def save_snapshot(
    folder: Path,
    key: SnapshotKey,
    index: PacketIndex,
    room_bytes: Callable[[], int | None] = lambda: None,
) -> None:
    """Write ``index`` under ``key``, replacing what was there. A failure is logged, not raised.

    The index is derived data: a full disk, a byte cap or a read-only folder costs the next process
    a rebuild, and must not cost this one its answer. ``room_bytes`` says how much may be written;
    None is as much as there is.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts, path = _parts(key, index), key.path_in(folder)
        if room_bytes() is not None:
            path.unlink(missing_ok=True)  # of an earlier generation: it makes room for this one
            room = room_bytes()
            needed = sum(part.nbytes for part in parts)
            if room is not None and needed > room:
                _LOG.info("index of namespace %r: no room for a snapshot", key.namespace)
                return
        _replace(path, parts)
    except OSError as error:
        _LOG.warning("index of namespace %r: snapshot not written: %s", key.namespace, error)


def load_snapshot(folder: Path, key: SnapshotKey) -> PacketIndex | None:
    """Return the index that was saved under ``key``, or None where there is no such one, intact."""
    path = key.path_in(folder)
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        _LOG.warning("index of namespace %r: snapshot not readable: %s", key.namespace, error)
        return None
    body = data[len(_MAGIC) + _DIGEST_BYTES :]
    if data[: len(_MAGIC) + _DIGEST_BYTES] != _MAGIC + hashlib.sha256(body).digest():
        _LOG.warning("index of namespace %r: snapshot is damaged; rebuilding", key.namespace)
        return None
    return _parse(body, key)


def _parts(key: SnapshotKey, index: PacketIndex) -> list[memoryview]:
    import faiss

    ids = index.ids.to_json()
    head = json.dumps({**asdict(key), "ids_bytes": len(ids)}).encode("ascii")
    vectors = faiss.serialize_index(index.faiss_index).data
    body = [memoryview(len(head).to_bytes(4, "little") + head + ids), vectors]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return [memoryview(_MAGIC + digest.digest()), *body]


def _parse(body: memoryview, key: SnapshotKey) -> PacketIndex | None:
    """Read a body whose digest holds. A digest is no signature, so nothing of it is trusted."""
    try:
        head_end = 4 + int.from_bytes(body[:4], "little")
        head: dict[str, Any] = json.loads(bytes(body[4:head_end]))
        ids_end = head_end + head.pop("ids_bytes")
        if head != asdict(key):
            return None
        ids = IdMap.from_json(bytes(body[head_end:ids_end]))
        return PacketIndex(_read_index(body[ids_end:], len(ids), key.dimension), ids)
    except _UNUSABLE as error:
        _LOG.warning("index of namespace %r: snapshot not usable: %s", key.namespace, error)
        return None


def _read_index(data: memoryview, num_rows: int, dimension: int) -> Any:
    """Read a flat index of exactly these rows; faiss itself allocates whatever its bytes ask for.

    Raises
    ------
    ValueError
        It is another index, or another version of faiss wrote it.
    """
    import faiss

    empty = faiss.serialize_index(faiss.IndexFlatIP(dimension)).tobytes()
    head = bytearray(empty)
    head[8:16] = num_rows.to_bytes(8, "little")
    head[-8:] = (num_rows * dimension).to_bytes(8, "little")
    if bytes(data[: len(head)]) != head or len(data) != len(head) + 4 * num_rows * dimension:
        raise ValueError("it is not a flat index of its rows")
    return faiss.deserialize_index(np.frombuffer(data, dtype=np.uint8))


def _replace(path: Path, parts: list[memoryview]) -> None:
    """Write beside ``path``, sync, rename over it, sync the folder."""
    for leftover in path.parent.glob(f"{path.stem}.*.tmp"):
        leftover.unlink(missing_ok=True)  # of a process that was killed while it wrote
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)
