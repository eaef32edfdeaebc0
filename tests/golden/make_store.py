"""Write tests/golden/store/vN.tar.zst: a store of format N, which every later version must read.

A file that exists is never written again. After a new format, run
``python tests/golden/make_store.py`` with the project's Python.
"""

import io
import tarfile
import tempfile
from pathlib import Path

import zstandard

from kvpacket_store.store import PacketStore
from kvpacket_store.store.meta import FORMAT_VERSION
from kvpacket_store.store.synthetic import make_meta, make_record, make_write

FOLDER = Path(__file__).parent / "store"

# document → (namespace, names of its packets); sizes of records end at and beside a chunk's end
DOCUMENTS = {
    "alone": ("default", ["a"]),
    "shares": ("default", ["b", "c"]),
    "shares too": ("default", ["c", "d"]),
    "русский/漢字.md": ("default", ["e"]),
    "elsewhere": ("tenant", ["c"]),
    "in layers": ("default", ["two layers", "a"]),
}
RECORD_BYTES = {
    "a": 1,
    "b": 131_056,
    "c": 5000,
    "d": 131_057,
    "e": 7000,
    "header": 4000,
    "two layers": 131_056,
}
ENHANCEMENT_BYTES = {"two layers": 140_000}
PINNED = ("default", "shares")


def record(name):
    return make_record(name, RECORD_BYTES[name], enhancement_bytes=ENHANCEMENT_BYTES.get(name))


def fill(store):
    for document, (namespace, names) in DOCUMENTS.items():
        store.put_documents(namespace, [make_write(document, [record(name) for name in names])])
    store.put_documents("default", [make_write("deleted", [record("a"), make_record("gone")])])
    store.delete_document("default", "deleted")
    store.pin_document(*PINNED)
    store.put_shared(record("header"))
    store.stage_packets("default", {r.packet_key: r for r in [make_record("staged", 5000)]})


def main():
    target = FOLDER / f"v{FORMAT_VERSION}.tar.zst"
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "golden.kvps"
        with PacketStore.create(path, make_meta()) as store:
            fill(store)
            store.compact()
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as archive:
            archive.add(path / "data.mdb", "golden.kvps/data.mdb")
    FOLDER.mkdir(exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(tar.getvalue()))


if __name__ == "__main__":
    main()
