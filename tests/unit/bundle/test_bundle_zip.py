"""A zip file can say more than a bundle may."""

import struct
import zipfile

import pytest

from kvpacket_store.bundle import read_bundle
from kvpacket_store.bundle.members import INDEX, make_info
from kvpacket_store.errors import BundleError, UnsupportedFormatError, UsageError


def refuse(path, why):
    with pytest.raises(BundleError, match=why):
        read_bundle(path)


def patched(path, position, form, value):
    """Write a number over the bytes at a position."""
    content = bytearray(path.read_bytes())
    struct.pack_into(form, content, position, value)
    path.write_bytes(content)
    return path


def directory_of(path):
    """Return the offsets of the directory's entries."""
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        position, entries = archive.start_dir, []
        for info in archive.infolist():
            assert content[position : position + 4] == b"PK\x01\x02"
            entries.append(position)
            position += 46 + len(info.filename)
    return entries


def test_another_zip_file_is_no_bundle(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", b"a")
    with pytest.raises(UsageError, match="no bundle"):
        read_bundle(path)


def test_a_later_version_is_refused_by_name(small_bundle, reseal):
    comment = b"kvpacket-store bundle 12 " + b"0" * 64
    with pytest.raises(UnsupportedFormatError, match=r"format 12.*upgrade"):
        read_bundle(reseal(small_bundle, comment=comment))


@pytest.mark.parametrize("comment", [
    b"kvpacket-store bundle 0 " + b"0" * 64,
    b"kvpacket-store bundle 1 " + b"0" * 63,
    b"kvpacket-store bundle 1 " + b"A" * 64,
    b" kvpacket-store bundle 1 " + b"0" * 64,
    b"kvpacket-store bundle 1 " + b"0" * 64 + b"\n",
    b"x" * 89,
])  # fmt: skip
def test_other_comments(small_bundle, reseal, comment):
    refuse(reseal(small_bundle, comment=comment), "damaged")


def test_an_index_that_the_comment_does_not_seal(small_bundle, reseal):
    comment = b"kvpacket-store bundle 1 " + b"0" * 64
    refuse(reseal(small_bundle, comment=comment), "index.txt of the bundle is damaged")


@pytest.mark.parametrize(
    "kind",
    [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA],
    ids=["deflate", "bz2", "lzma"],
)
def test_compressed_members(small_bundle, reseal, kind):
    info = make_info("documents/00000000.txt")
    info.compress_type = kind
    refuse(reseal(small_bundle, infos={info.filename: info}), "compressed")


def test_a_bomb_is_refused_unread(small_bundle, reseal):
    info = make_info("documents/00000000.txt")
    info.compress_type = zipfile.ZIP_DEFLATED

    def change(members):
        members[info.filename] = bytes(50_000_000)

    path = reseal(small_bundle, change, infos={info.filename: info})
    assert path.stat().st_size < 100_000
    refuse(path, "compressed")


@pytest.mark.parametrize("name", [
    "../../etc/passwd", "/etc/passwd", "documents/00000001.json/", "documents/1.json", "a\\b",
    "packets/" + "G" * 64 + ".kvr", "index.txt.", "é.txt", "bundle.json ", "documents/00000000.exe",
])  # fmt: skip
def test_foreign_names(small_bundle, reseal, name):
    refuse(reseal(small_bundle, last=[(name, b"x")]), "is called")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["bundle.json", "documents/00000000.txt", INDEX])
def test_a_member_that_is_there_twice(small_bundle, reseal, name):
    refuse(reseal(small_bundle, last=[(name, b"x")]), "twice")


def test_a_member_that_the_index_does_not_name(small_bundle, reseal):
    refuse(reseal(small_bundle, last=[("documents/00000001.txt", b"x")]), "index does not fit")


FIELDS = {  # offset in an entry of the directory, width
    "flags: encrypted": (8, "<H", 1),
    "flags: length after the data": (8, "<H", 8),
    "method": (10, "<H", 8),
    "time": (12, "<H", 1),
    "stored length": (20, "<I", 3),
    "length": (24, "<I", 3),
    "both lengths": (20, "<Q", 3 << 32 | 3),
    "huge length": (20, "<Q", 0x3FFF_FFFF << 32 | 0x3FFF_FFFF),
    "length of the name": (28, "<H", 5),
    "length of extras": (30, "<H", 4),
    "length of the comment": (32, "<H", 4),
    "internal attributes": (36, "<H", 1),
    "external attributes": (38, "<I", 0o777 << 16),
    "offset: overlap": (42, "<I", 0),
    "offset: beyond the end": (42, "<I", 0x7FFF_FFFF),
    "needs a version to come": (6, "<H", 99),
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("entry", [1, -1], ids=["second", "last"])
def test_a_directory_that_says_something_else(small_bundle, field, entry):
    offset, form, value = FIELDS[field]
    refuse(
        patched(small_bundle, directory_of(small_bundle)[entry] + offset, form, value),
        "damaged|limits",
    )


@pytest.mark.parametrize(("offset", "form", "value"), [
    (4, "<H", 1), (6, "<H", 1), (8, "<H", 1), (8, "<I", 0), (8, "<I", 0xFFFF_FFFF),
    (10, "<H", 3), (12, "<I", 0), (12, "<I", 0xFFFF_FFFF), (16, "<I", 0), (16, "<I", 0xFFFF_FFFF),
    (20, "<H", 0), (20, "<H", 87),
])  # fmt: skip
def test_an_end_record_that_says_something_else(small_bundle, offset, form, value):
    end = small_bundle.read_bytes().rindex(b"PK\x05\x06")
    refuse(patched(small_bundle, end + offset, form, value), "damaged|max_members")


def test_members_that_overlap(small_bundle):
    """Two entries of the directory that lead to the same bytes."""
    with zipfile.ZipFile(small_bundle) as archive:
        infos = archive.infolist()
    entries = directory_of(small_bundle)
    patched(small_bundle, entries[2] + 42, "<I", infos[1].header_offset)
    refuse(small_bundle, "does not begin where the one before it ends")


def test_a_hole_between_members_and_directory(small_bundle):
    content = small_bundle.read_bytes()
    start, end = directory_of(small_bundle)[0], content.rindex(b"PK\x05\x06")
    hole = content[:start] + b"hidden" + content[start:]
    small_bundle.write_bytes(hole)
    refuse(patched(small_bundle, end + 6 + 16, "<I", start + 6), "something lies between")


def test_a_local_header_that_the_directory_does_not_know(small_bundle):
    with zipfile.ZipFile(small_bundle) as archive:
        info = archive.getinfo("documents/00000000.txt")
    patched(small_bundle, info.header_offset + 14, "<I", 7)
    with read_bundle(small_bundle) as bundle, pytest.raises(BundleError, match="damaged"):
        next(bundle.documents())


@pytest.mark.parametrize(
    ("limit", "value"), [("ZIP_FILECOUNT_LIMIT", 3), ("ZIP64_LIMIT", 2500)], ids=["count", "offset"]
)
def test_bundles_of_many_members_and_bytes(source, tmp_path, monkeypatch, limit, value):
    """What zip files need beyond 65,535 members or 2 GiB, made to happen sooner."""
    from kvpacket_store.bundle import write_bundle

    path = tmp_path / "large.kvpb"
    monkeypatch.setattr(zipfile, limit, value)
    write_bundle(source, path, namespace="n")
    content = path.read_bytes()
    assert b"PK\x06\x06" in content
    monkeypatch.undo()
    with read_bundle(path) as bundle:
        assert [len(packets) for _, packets, _ in bundle.documents()] == [2, 0, 3]
    end = content.rindex(b"PK\x06\x06")
    for position in range(end, content.rindex(b"PK\x05\x06")):
        spoilt = bytearray(content)
        spoilt[position] ^= 0x10
        path.write_bytes(spoilt)
        with pytest.raises(BundleError):
            read_bundle(path)
