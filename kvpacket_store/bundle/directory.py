"""Where the members of a bundle lie: a zip file without gaps, overlaps or anything unsaid.

A zip file may say one thing in two places. Here the two have to agree: members follow each other
from the first byte to the directory, the directory reaches to the end record, the comment ends the
file. Lengths are held against the file's own before a byte is read for them.
"""

from __future__ import annotations

import re
import struct
import zipfile
from dataclasses import dataclass
from typing import IO

from kvpacket_store.bundle.limits import BundleLimits
from kvpacket_store.bundle.members import (
    FORMAT_NAME,
    FORMAT_VERSION,
    HEAD,
    INDEX,
    NAME,
    limit_bytes,
    make_info,
)
from kvpacket_store.errors import BundleError, UnsupportedFormatError, UsageError

__all__ = ["Place", "local_header", "read_directory"]

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LOCAL_HEADER_BYTES = 30
_ENTRY_BYTES = 46
_LONGEST_ENTRY_BYTES = _ENTRY_BYTES + 77 + 12
_ENTRY = struct.Struct("<4s4B4H3L5H2L")
_FAR_OFFSET = struct.Struct("<HHQ")
_FIRST_OF_1980 = 1 << 5 | 1
_COMMENT = re.compile(rf"{FORMAT_NAME} ([1-9][0-9]{{0,5}}) ([0-9a-f]{{64}})".encode("ascii"))
_COMMENT_BYTES = len(FORMAT_NAME) + 1 + 1 + 1 + 64
_LONGEST_TAIL_BYTES = _END.size + _COMMENT_BYTES + 5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member lies: its header's offset, its length, its CRC-32."""

    offset: int
    num_bytes: int
    crc: int


def read_directory(
    file: IO[bytes], file_bytes: int, limits: BundleLimits
) -> tuple[dict[str, Place], str]:
    """Return every member's place, in the order of the file, and the SHA-256 of the index.

    Raises
    ------
    UsageError
        This is no bundle.
    UnsupportedFormatError
        A later version wrote it.
    BundleError
        It is damaged or cut, or larger than the limits.
    """
    if file_bytes > limits.max_bytes:
        raise BundleError(
            f"the bundle has {file_bytes} bytes, over max_bytes={limits.max_bytes}; "
            "pass a higher limit if that is right"
        )
    _require_bundle(file)
    end, index_sha256 = _find_end(file, file_bytes)
    count, directory_bytes, directory_offset, directory_end = _read_end(file, end)
    if directory_offset + directory_bytes != directory_end:
        raise _damaged("its directory does not lie where it should")
    if count > limits.max_members:
        raise BundleError(
            f"the bundle has {count} members, over max_members={limits.max_members}; "
            "pass a higher limit if that is right"
        )
    if not count * _ENTRY_BYTES <= directory_bytes <= count * _LONGEST_ENTRY_BYTES:
        raise _damaged("its directory is too long or too short")
    infos = _entries(file)
    if len(infos) != count:
        raise _damaged(f"its directory has {len(infos)} entries instead of {count}")
    _require_plain(file, infos, directory_offset)
    return _places(infos, directory_offset, limits), index_sha256


def local_header(name: str, place: Place) -> bytes:
    """Return the bytes that have to stand before a member's own."""
    info = make_info(name)
    info.file_size = info.compress_size = place.num_bytes
    info.CRC = place.crc
    return info.FileHeader(zip64=False)


def _require_bundle(file: IO[bytes]) -> None:
    """Tell a foreign file from a damaged one: a bundle begins with the member ``bundle.json``."""
    file.seek(0)
    start = file.read(_LOCAL_HEADER_BYTES + len(HEAD))
    if not start.startswith(b"PK\x03\x04") or not start.endswith(HEAD.encode("ascii")):
        raise UsageError("this file is no bundle; pass one that `kvps export` wrote")


def _find_end(file: IO[bytes], file_bytes: int) -> tuple[int, str]:
    """Return the offset of the end record, and the digest in the comment behind it."""
    file.seek(max(0, file_bytes - _LONGEST_TAIL_BYTES))
    tail = file.read(_LONGEST_TAIL_BYTES)
    start = tail.rfind(FORMAT_NAME.encode("ascii"))
    comment = None if start < _END.size else _COMMENT.fullmatch(tail, start)
    if comment is None:
        raise _damaged("it does not end as a bundle does: it was cut, or something was added")
    if int(comment[1]) > FORMAT_VERSION:
        raise UnsupportedFormatError(
            f"the bundle has format {int(comment[1])}, this version reads up to {FORMAT_VERSION}; "
            "upgrade kvpacket-store"
        )
    return file_bytes - len(tail) + start - _END.size, comment[2].decode("ascii")


def _read_end(file: IO[bytes], end: int) -> tuple[int, int, int, int]:
    """Return number of members, the directory's length and offset, and where it has to end."""
    file.seek(end)
    signature, disk, start_disk, here, count, num_bytes, offset, comment_bytes = _END.unpack(
        file.read(_END.size)
    )
    if (signature, disk, start_disk, here, comment_bytes) != (
        b"PK\x05\x06", 0, 0, count, _COMMENT_BYTES
    ):  # fmt: skip
        raise _damaged("its end record does not hold")
    end_64 = end - _LOCATOR_64.size - _END_64.size
    if end_64 < 0:
        return count, num_bytes, offset, end
    file.seek(end_64)
    large, locator = file.read(_END_64.size), file.read(_LOCATOR_64.size)
    if not locator.startswith(b"PK\x06\x07"):
        return count, num_bytes, offset, end
    small = (count, num_bytes, offset)
    count, num_bytes, offset = _END_64.unpack(large)[7:]
    if (
        locator != _LOCATOR_64.pack(b"PK\x06\x07", 0, end_64, 1)
        or large != _END_64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, num_bytes, offset)
        or small != (min(count, 0xFFFF), min(num_bytes, 0xFFFFFFFF), min(offset, 0xFFFFFFFF))
    ):
        raise _damaged("its end records do not agree")
    return count, num_bytes, offset, end_64


def _entries(file: IO[bytes]) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise _damaged(f"its directory cannot be read ({error})") from error


def _places(
    infos: list[zipfile.ZipInfo], directory_offset: int, limits: BundleLimits
) -> dict[str, Place]:
    places: dict[str, Place] = {}
    offset = 0
    for info in infos:
        name = info.filename
        if name in places:
            raise _damaged(f"member {name} is there twice")
        if info.file_size > limit_bytes(name, len(infos), limits):
            raise BundleError(
                f"member {name} of the bundle has {info.file_size} bytes, more than the limits "
                "allow; pass higher limits if that is right"
            )
        if info.header_offset != offset:
            raise _damaged(f"member {name} does not begin where the one before it ends")
        places[name] = Place(offset, info.file_size, info.CRC)
        offset += _LOCAL_HEADER_BYTES + len(name) + info.file_size
    if offset != directory_offset:
        raise _damaged("something lies between its last member and its directory")
    if not infos or (infos[0].filename, infos[-1].filename) != (HEAD, INDEX):
        raise _damaged("its first and last members are not the ones they should be")
    return places


def _require_plain(file: IO[bytes], infos: list[zipfile.ZipInfo], offset: int) -> None:
    """Refuse whatever the writer never does, down to the last bit of the directory."""
    file.seek(offset)
    for info in infos:
        if not NAME.fullmatch(info.orig_filename):
            raise _damaged(f"a member is called {info.orig_filename!r:.80}")
        entry = _entry(info)
        if file.read(len(entry)) != entry:
            raise _damaged(f"member {info.filename} is compressed, encrypted or otherwise special")


def _entry(info: zipfile.ZipInfo) -> bytes:
    """Return the one entry that a member of this name, length, place and CRC-32 may have."""
    name, plain = info.filename.encode("ascii"), make_info(info.filename)
    extra, version, offset = b"", 20, info.header_offset
    if info.extra:
        extra, version, offset = _FAR_OFFSET.pack(1, 8, offset), 45, 0xFFFFFFFF
    fields = (
        b"PK\x01\x02", version, plain.create_system, version, 0, 0, plain.compress_type, 0,
        _FIRST_OF_1980, info.CRC, info.file_size, info.file_size, len(name), len(extra), 0, 0, 0,
        plain.external_attr, offset,
    )  # fmt: skip
    return _ENTRY.pack(*fields) + name + extra


def _damaged(why: str) -> BundleError:
    return BundleError(f"the bundle is damaged: {why}; copy or export it again")
