"""Stores to move documents between, and bundles of any content, sealed as they should be."""

import hashlib
import zipfile
from contextlib import ExitStack

import pytest

from kvpacket_store.bundle import import_bundle, read_bundle, write_bundle
from kvpacket_store.bundle.members import INDEX, comment_of, make_info
from kvpacket_store.errors import CorruptRecordError
from kvpacket_store.store import PacketStore
from kvpacket_store.store.synthetic import make_meta, make_record, make_write, record_bytes

FINGERPRINT = {name: letter * 64 for name, letter in zip(
    ("weights", "tokenizer", "config", "rope", "chat_template"), "abcde", strict=True)}  # fmt: skip


@pytest.fixture
def new_packet_store(tmp_path):
    """A function: name, changes of the description → an open store."""
    with ExitStack() as stack:

        def create(name, **changes):
            meta = make_meta(**{"fingerprint": FINGERPRINT, "embedder": "f" * 64} | changes)
            return stack.enter_context(PacketStore.create(tmp_path / name, meta))

        yield create


@pytest.fixture
def source(new_packet_store):
    """A store with three documents that share a packet, one of no segments, one without text."""
    store = new_packet_store("source.kvps")
    records = [make_record(f"r{i}", 50 + i) for i in range(3)]
    records.append(make_record("r3", 53, enhancement_bytes=70))
    store.put_documents(
        "n",
        [
            make_write("a/b.md", records[:2]),
            make_write("é \ud800", records[1:]),
            make_write("empty", []),
        ],
    )
    return store


@pytest.fixture
def bundle_path(source, tmp_path):
    path = tmp_path / "x.kvpb"
    write_bundle(source, path, namespace="n")
    return path


@pytest.fixture
def small_bundle(new_packet_store, tmp_path):
    """One document of one packet: small enough to spoil every byte of it."""
    store, path = new_packet_store("small.kvps"), tmp_path / "small.kvpb"
    store.put_documents("n", [make_write("d", [make_record("r", 20)])])
    write_bundle(store, path, namespace="n")
    return path


@pytest.fixture
def reseal():
    """A function: take a bundle's members, change them, seal the result like a true one."""

    def rewrite(path, change=lambda members: None, *, last=(), infos=(), comment=None):
        with zipfile.ZipFile(path) as old:
            members = {name: old.read(name) for name in old.namelist() if name != INDEX}
        change(members)
        rows = [
            f"{hashlib.sha256(data).hexdigest()} {len(data)} {name}\n"
            for name, data in members.items()
        ]
        index = "".join(rows).encode()
        infos = dict(infos)
        with zipfile.ZipFile(path, "w") as new:
            for name, data in [*members.items(), *last, (INDEX, index)]:
                new.writestr(infos.get(name) or make_info(name), data)
            new.comment = comment or comment_of(hashlib.sha256(index).hexdigest())
        return path

    return rewrite


@pytest.fixture
def target(new_packet_store):
    """An empty store of the kind that ``source`` is."""
    return new_packet_store("target.kvps")


@pytest.fixture
def imported():
    """A function: import a bundle as a caller does who looks at each record → the report."""

    def import_into(store, path, namespace="n"):
        with read_bundle(path) as bundle:
            return import_bundle(store, bundle, namespace=namespace, check=_check)

    return import_into


def _check(record):
    """What a caller does with tensors: the record has to be the one of its key."""
    names = (record.packet_key, f"{record.packet_key} enhancement")
    if any(
        layer != record_bytes(name, len(layer))
        for name, layer in zip(names, record.layers, strict=False)
    ):
        raise CorruptRecordError(f"packet {record.packet_key} is forged")


@pytest.fixture
def counts():
    """A function: report → documents added, updated, unchanged, failed."""
    return lambda report: (report.added, report.updated, report.unchanged, len(report.errors))
