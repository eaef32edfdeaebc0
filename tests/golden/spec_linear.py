"""Level linear, written from docs/format.md alone: slow, readable, independent of the package.

`read_pack` reads a codec pack's file; `decode`, `decode_base` and `decode_layers` take packs and
return (kv dtype, shape, K bytes, V bytes). All raise `RefusedError` naming the error.
"""

import spec_decoder
from spec_chunk import Chunk, bin_of, clamp, places_of
from spec_pack import read_pack
from spec_reading import CORRUPT, RefusedError, Sections, number, refuse_if, xxh3

__all__ = ["RefusedError", "decode", "decode_base", "decode_layers", "read_pack"]

UNAVAILABLE, USAGE = "LevelUnavailableError", "UsageError"


def decode(record, packs, max_bytes=8 << 30):
    """Decode a record of any level that is whole."""
    head = spec_decoder.read_head(record)
    if head.level != "linear":
        return spec_decoder.decode(record, max_bytes)
    return decode_parts([(record, head)], [spec_decoder.WHOLE], packs, max_bytes)


def decode_base(record, packs):
    head = spec_decoder.read_head(record)
    return decode_parts([(record, head)], [spec_decoder.BASE], packs)


def decode_layers(base, enhancement, packs):
    pairs = [(record, spec_decoder.read_head(record)) for record in (base, enhancement)]
    return decode_parts(pairs, [spec_decoder.BASE, spec_decoder.ENHANCEMENT], packs)


def decode_parts(pairs, parts, packs, max_bytes=8 << 30):
    """§9, from the limit on."""
    heads = [head for _, head in pairs]
    for head in heads:
        spec_decoder.check_limit(head, max_bytes)
    for head, part in zip(heads, parts, strict=True):
        refuse_if(head.section is None or head.section.part != part, USAGE)
    if len(heads) == 2:
        check_twins(*heads)
    found = [pack for pack in packs if pack.digest == heads[0].section.pack_digest]
    refuse_if(not found, UNAVAILABLE)
    layers, heads_, _, head_dim = heads[0].shape
    wanted = (heads[0].dtype, layers, heads_, head_dim)
    refuse_if(wanted != (found[0].dtype, *found[0][2:5]), CORRUPT)
    return decode_blocks(pairs, found[0])


def check_twins(base, enhancement):
    """§2.1."""
    said, other = base.section._replace(part=0), enhancement.section._replace(part=0)
    refuse_if(
        (base.dtype, base.shape, said) != (enhancement.dtype, enhancement.shape, other), CORRUPT
    )
    complete = [row.encoding == spec_decoder.RAW for row in base.rows]
    nothing = [row.encoding == spec_decoder.NOTHING for row in enhancement.rows]
    refuse_if(complete != nothing, CORRUPT)


def decode_blocks(pairs, pack):
    """§7.1."""
    head = pairs[0][1]
    sizes = spec_decoder.block_sizes(head.shape[2])
    chunks = [None] * len(head.rows)
    for block, num_tokens in enumerate(sizes):
        context = Context(pack, num_tokens)
        for row in range(2 * pack.layers):
            index = row * len(sizes) + block
            chunks[index] = decode_chunk(pairs, index, context, divmod(row, 2))
    return spec_decoder.join_chunks(chunks, head)


class Context:
    """The units of a block, and what predictions make of them."""

    def __init__(self, pack, num_tokens):
        self.pack, self.num_tokens = pack, num_tokens
        self.padded = -(-pack.heads * pack.head_dim // 16) * 16
        self.rows = [[0] * num_tokens for _ in range(2 * pack.layers * self.padded)]

    def write(self, place, c, rebuilt):
        channel = self.pack.channels[place][c]
        half = 2**channel.shift // 2
        units = [(found - channel.center + half) // 2**channel.shift for found in rebuilt]
        row = (2 * place[0] + place[1]) * self.padded + c
        self.rows[row] = [clamp(unit, -127, 127) for unit in units]

    def predict(self, place, c):
        """§7.3."""
        layer, side = place
        channel, weights = (
            self.pack.channels[place][c],
            self.pack.weights[layer, side, c // 16][c % 16],
        )
        first = 2 * self.padded * max(layer - self.pack.back, 0)
        rows = self.rows[first : (2 * layer + side) * self.padded + 16 * (c // 16)]
        constant = channel.base * 2 ** (channel.down - 8) + 2 ** (channel.down - 1)
        sums = [0] * self.num_tokens
        for weight, row in zip(weights, rows, strict=True):
            sums = [total + weight * unit for total, unit in zip(sums, row, strict=True)]
        return [(total * channel.multiplier + constant) // 2**channel.down for total in sums]


def decode_chunk(pairs, index, context, place):
    """Return a chunk's items as bytes; its units are written into the context."""
    record, head = pairs[0]
    row, pack, size = head.rows[index], context.pack, spec_decoder.ITEM_BYTES[head.dtype]
    num_items = pack.heads * context.num_tokens * pack.head_dim
    if row.encoding != spec_decoder.LINEAR:
        items = spec_decoder.read_chunk(record, row, head.dtype, head.shape, context.num_tokens)
        numbers = [number(items, at * size, 8 * size) for at in range(num_items)]
        upper = [item >> 16 for item in numbers] if size == 4 else numbers
        for c in range(pack.heads * pack.head_dim):
            step = pack.channels[place][c].step
            found = [bin_of(upper[at], step, head.dtype)[0] for at in places_of(c, context)]
            context.write(place, c, found)
        return items
    stored = [spec_decoder.stored_bytes(data, other.rows[index]) for data, other in pairs]
    parts = Sections(b"".join(stored), 0)
    setting = head.section.settings[2 * place[0] + place[1]]
    chunk = Chunk(context, place, setting, parts)
    refuse_if(head.section.part == spec_decoder.BASE and parts.at != len(stored[0]), CORRUPT)
    if head.section.part == spec_decoder.BASE and len(pairs) == 1:
        items = chunk.rebuilt_items()
    else:
        items = chunk.exact_items(parts)
        refuse_if(parts.at != len(parts.body), CORRUPT)
    items = b"".join(item.to_bytes(size, "little") for item in items)
    row = pairs[-1][1].rows[index]
    refuse_if(xxh3(items) != row.decoded_checksum, CORRUPT)
    return items
