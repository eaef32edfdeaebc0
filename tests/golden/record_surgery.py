"""Changing a record of level linear and making its lengths and checksums right again."""

import struct

import xxhash

TABLE = 112  # where the table begins, behind two settings a layer


def row_of(record, index):
    (num_layers,) = struct.unpack_from("<I", record, 12)
    return TABLE + 2 * num_layers + 24 * index


def table_end(record):
    return row_of(record, struct.unpack_from("<I", record, 28)[0])


def span_of(record, index):
    lengths = [struct.unpack_from("<I", record, row_of(record, i))[0] for i in range(index + 1)]
    end = table_end(record) + 8 + sum(lengths)
    return end - lengths[-1], end


def chunk_of(record, index):
    begin, end = span_of(record, index)
    return record[begin:end]


def changed(record, offset, *values, seal=True):
    data = bytearray(record)
    data[offset : offset + len(values)] = bytes(values)
    return resealed(data) if seal else bytes(data)


def resealed(data):
    is_linear = data[10] == 2
    (num_chunks,) = struct.unpack_from("<I", data, 28)
    end = table_end(data) if is_linear else 40 + 24 * num_chunks
    struct.pack_into("<Q", data, end, xxhash.xxh3_64_intdigest(bytes(data[:end])))
    return bytes(data)


def in_chunk(record, offset, fmt, *values):
    body = bytearray(chunk_of(record, 0))
    struct.pack_into(fmt, body, offset, *values)
    return with_chunk(record, 0, bytes(body), encoding=3, items=None)


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
    return resealed(out)
