"""A bundle's members as bytes: named, bounded, checked against the index before they are used."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import IO

from kvpacket_store.bundle.directory import Place, local_header, read_directory
from kvpacket_store.bundle.limits import BundleLimits
from kvpacket_store.bundle.members import INDEX
from kvpacket_store.errors import BundleError, NotFoundError, UsageError

__all__ = ["Container"]

_INDEX_ROW = re.compile(rb"([0-9a-f]{64}) (0|[1-9][0-9]{0,18}) ([!-~]{1,80})\n")


class Container:
    """The members of an open bundle. Close it.

    Raises
    ------
    NotFoundError, UsageError
        There is no such file, or it is no bundle.
    UnsupportedFormatError
        A later version wrote it.
    BundleError
        It is damaged, cut, or larger than the limits.
    """

    def __init__(self, path: Path, limits: BundleLimits) -> None:
        self._file = _open(path)
        try:
            file_bytes = os.fstat(self._file.fileno()).st_size
            self._places, index_sha256 = read_directory(self._file, file_bytes, limits)
            self._digests = self._read_index(bytes.fromhex(index_sha256))
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, name: str) -> bool:
        return name in self._digests

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def num_bytes(self, name: str) -> int:
        """Return a member's length."""
        return self._place(name).num_bytes

    def read(self, name: str) -> bytes:
        """Return a member that is what the index says.

        Raises
        ------
        BundleError
            It is not there, cut, or other bytes.
        """
        place = self._place(name)
        return self._read(name, place, self._digests[name])

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._file.close()

    def _place(self, name: str) -> Place:
        if name not in self._digests:
            raise BundleError(f"the bundle has no member {name}; export it again")
        return self._places[name]

    def _read(self, name: str, place: Place, digest: bytes) -> bytes:
        if self._file.closed:
            raise UsageError("the bundle is closed; open it again")
        header = local_header(name, place)
        try:
            self._file.seek(place.offset)
            found = self._file.read(len(header))
            data = self._file.read(place.num_bytes)
        except OSError as error:
            raise BundleError(
                f"member {name} of the bundle cannot be read ({error}); copy it again"
            ) from error
        if found != header or hashlib.sha256(data).digest() != digest:
            raise BundleError(
                f"member {name} of the bundle is damaged: its digest does not match; "
                "copy or export the bundle again"
            )
        return data

    def _read_index(self, digest: bytes) -> dict[str, bytes]:
        """Return each member's SHA-256; the index names all of them, in the order of the file."""
        rows = self._read(INDEX, self._places[INDEX], digest)
        digests: dict[str, bytes] = {}
        end = 0
        for row in _INDEX_ROW.finditer(rows):
            name = row[3].decode("ascii")
            place = self._places.get(name)
            if row.start() != end or place is None or int(row[2]) != place.num_bytes:
                break
            digests[name] = bytes.fromhex(row[1].decode("ascii"))
            end = row.end()
        if end != len(rows) or [*digests, INDEX] != [*self._places]:
            raise BundleError("the bundle's index does not fit its members; export it again")
        return digests


def _open(path: Path) -> IO[bytes]:
    """Open a regular file; anything else could keep us waiting for ever."""
    try:
        if not S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is not a file; pass a bundle that `kvps export` wrote")
        return path.open("rb")
    except FileNotFoundError:
        raise NotFoundError(f"there is no bundle {path}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be opened ({error}); correct that first") from error
