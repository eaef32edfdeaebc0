"""Changing a record and making its lengths and checksums right again."""

import struct

import xxhash


def row_of(record, index):
    """Return where a row of the chunk table is; level linear has a pack section before it."""
    (num_layers,) = struct.unpack_from("<I", record, 12)
    table = 112 + 2 * num_layers if record[10] == 2 else 40
    return table + 24 * index


def table_end(record):
    return row_of(record, struct.unpack_from("<I", record, 28)[0])


def span_of(record, index):
    lengths = [struct.unpack_from("<I", record, row_of(record, i))[0] for i in range(index + 1)]
    end = table_end(record) + 8 + sum(lengths)
    return end - lengths[-1], end


def chunk_of(record, index):
    begin, end = span_of(record, index)
    return record[begin:end]


def changed(record, offset, *values, fmt="B", seal=True):
    """Put values at an offset, each of the format ``fmt``."""
    data = bytearray(record)
    struct.pack_into(f"<{len(values)}{fmt}", data, offset, *values)
    return sealed(data, table_end(record)) if seal else bytes(data)


def sealed(data, end):
    struct.pack_into("<Q", data, end, xxhash.xxh3_64_intdigest(bytes(data[:end])))
    return bytes(data)


def in_chunk(record, offset, *values, encoding, fmt="B"):
    """Put values at an offset of the first chunk, whose items keep their checksum."""
    body = bytearray(chunk_of(record, 0))
    struct.pack_into(f"<{len(values)}{fmt}", body, offset, *values)
    return with_chunk(record, 0, bytes(body), encoding)


def with_chunk(record, index, data, encoding, items=None):
    """Put `data` in a chunk's place, and make lengths and the stored checksum right.

    `items` is the checksum of the items, if it is to be another; a raw chunk's is the stored one.
    """
    begin, end = span_of(record, index)
    out, row = bytearray(record), row_of(record, index)
    out[begin:end] = data
    stored = xxhash.xxh3_64_intdigest(data)
    struct.pack_into("<IHBBQ", out, row, len(data), 0, 0, encoding, stored)
    if items is not None or encoding == 0:
        struct.pack_into("<Q", out, row + 16, stored if encoding == 0 else items)
    struct.pack_into("<Q", out, 32, len(out))
    return sealed(out, table_end(record))
