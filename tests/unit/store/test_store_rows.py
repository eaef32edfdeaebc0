import hashlib
import struct

import pytest
import zstandard

from kvpacket_store.errors import CorruptRecordError, UnsupportedFormatError, UsageError
from kvpacket_store.store import rows


def framed(kind: int, length: int, body: bytes) -> bytes:
    """A row whose digest holds, whatever it claims."""
    rest = struct.pack("<BI", kind, length) + body
    return hashlib.sha256(rest).digest() + rest


@pytest.mark.parametrize("payload", [b"", b"a", b"a" * 511, b"a" * 5000, bytes(range(256)) * 4])
def test_a_row_comes_back(payload):
    assert rows.unpack(rows.pack(payload), "a row") == payload


def test_what_compresses_is_compressed():
    assert len(rows.pack(b"text " * 1000)) < 100
    assert rows.pack(b"x" * 4096)[32] == 1
    assert rows.pack(b"short")[32] == 0


@pytest.mark.parametrize("payload", [b"hello", b"hello " * 200])
def test_every_flipped_bit_is_found(payload):
    row = rows.pack(payload)
    for position in range(len(row)):
        for bit in range(8):
            spoilt = bytearray(row)
            spoilt[position] ^= 1 << bit
            with pytest.raises(CorruptRecordError, match="a row"):
                rows.unpack(bytes(spoilt), "a row")


def test_every_cut_is_found():
    row = rows.pack(b"hello " * 200)
    for length in range(len(row)):
        with pytest.raises(CorruptRecordError, match="a row"):
            rows.unpack(row[:length], "a row")


BOMB = zstandard.compress(bytes(64 << 20))


LYING_ROWS = {
    "bomb that claims little": framed(1, 1000, BOMB),
    "bomb that claims too much": framed(1, 2**32 - 1, BOMB),
    "plain bytes that claim too much": framed(0, 2**32 - 1, b"x"),
    "plain bytes of another length": framed(0, 5, b"four"),
    "no frame": framed(1, 4, b"no frame"),
    "junk behind the frame": framed(1, 4, zstandard.compress(b"four") + b"junk"),
    "frame without a length": framed(
        1, 4, zstandard.ZstdCompressor(write_content_size=False).compress(b"four")
    ),
    "13 bytes that claim exabytes": framed(1, 4, bytes.fromhex("28b52ffdc0fffffffffffffffe")),
}


@pytest.mark.parametrize("row", LYING_ROWS.values(), ids=LYING_ROWS)
def test_lengths_are_believed_only_where_they_agree(row, monkeypatch):
    allocated = []
    decompress = rows._decompress

    def watching(frame, length, what):
        allocated.append(length)
        return decompress(frame, length, what)

    monkeypatch.setattr(rows, "_decompress", watching)
    with pytest.raises(CorruptRecordError, match="a row"):
        rows.unpack(row, "a row")
    assert all(length <= 1000 for length in allocated)


def test_a_kind_of_row_to_come_is_refused_by_name():
    with pytest.raises(UnsupportedFormatError, match="kind 7"):
        rows.unpack(framed(7, 1, b"x"), "a row")


@pytest.mark.parametrize("payload", [b"[1]", b"no json", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_damage(payload):
    with pytest.raises(CorruptRecordError, match="JSON"):
        rows.unpack_json(rows.pack(payload), "a row")


def test_a_row_has_a_greatest_length(monkeypatch):
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 10)
    with pytest.raises(UsageError, match="split the document"):
        rows.pack(b"x" * 11)


def test_one_value_has_one_json():
    assert rows.json_bytes({"b": [1, 2], "a": "\ud800"}) == b'{"a":"\\ud800","b":[1,2]}'
    with pytest.raises(ValueError, match="JSON"):
        rows.json_bytes(float("nan"))
