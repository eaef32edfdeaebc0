"""The rANS body of level fast, written from docs/format.md §5 and §6 alone."""

from pathlib import Path

from spec_reading import CORRUPT, ITEM_BYTES, Sections, number, refuse_if

MAGNITUDE_BITS = {"bf16": 9, "fp16": 6, "fp32": 9, "fp8_e4m3": 5, "fp8_e5m2": 6}
LOW_BITS = {"bf16": 6, "fp16": 9, "fp32": 22, "fp8_e4m3": 2, "fp8_e5m2": 1}


def unrans(body, dtype, num_heads, num_tokens, head_dim):
    """§5."""
    num_magnitude_bits, num_low_bits = MAGNITUDE_BITS[dtype], LOW_BITS[dtype]
    refuse_if(len(body) < 8, CORRUPT)
    base, delta_bits, zero_bits, reserved = body[:4]
    num_escapes = number(body, 4, 32)
    refuse_if(base >= 1 << (num_magnitude_bits - 1), CORRUPT)
    refuse_if(delta_bits > 8 or zero_bits > num_low_bits or reserved != 0, CORRUPT)
    refuse_if(2 * num_escapes > len(body), CORRUPT)
    num_channels = num_heads * head_dim
    num_items = num_channels * num_tokens
    take = Sections(body, 8)
    said = take(-(-num_channels * (5 + delta_bits) // 8))
    lanes = read_lanes(take, min(32, num_channels))
    escapes = [number(take(2), 0, 16) for _ in range(num_escapes)][::-1]
    low = read_low_bits(take, num_items, zero_bits, num_low_bits - zero_bits)
    refuse_if(take.at != len(body), CORRUPT)
    channels = read_channels(said, num_channels, base, delta_bits, num_magnitude_bits)
    symbols = [unlane(*lane, num_tokens, channels[i::32]) for i, lane in enumerate(lanes)]
    items = bytearray()
    for i in range(num_items):
        head, token, d = i // (num_tokens * head_dim), i // head_dim % num_tokens, i % head_dim
        channel = head * head_dim + d
        _, flip, top = channels[channel]
        symbol = symbols[channel % 32][channel // 32 * num_tokens + token]
        magnitude = (top - (symbol & 31)) % (1 << num_magnitude_bits)
        if symbol & 31 == 31:
            refuse_if(not escapes, CORRUPT)
            magnitude = escapes.pop()
            refuse_if(magnitude >= 1 << num_magnitude_bits, CORRUPT)
        high = ((symbol >> 5) ^ flip) << num_magnitude_bits | magnitude
        items += (high << num_low_bits | low[i]).to_bytes(ITEM_BYTES[dtype], "little")
    refuse_if(escapes, CORRUPT)
    return bytes(items)


def read_lanes(take, num_lanes):
    """Return (state, words) of every lane."""
    states = [number(take(4), 0, 32) for _ in range(num_lanes)]
    lengths = [number(take(2), 0, 16) for _ in range(num_lanes)]
    words = [[number(take(2), 0, 16) for _ in range(length)] for length in lengths]
    return list(zip(states, words, strict=True))


def read_low_bits(take, num_items, zero_bits, width):
    low, first_bit = [0] * num_items, zero_bits
    for bits in [8] * (width // 8) + [bits for bits in (4, 2, 1) if width & bits]:
        part = take(-(-num_items * bits // 8))
        for i in range(num_items):
            shift = bits * (i // len(part))
            low[i] |= ((part[i % len(part)] >> shift) & ((1 << bits) - 1)) << first_bit
        first_bit += bits
    return low


def read_channels(said, num_channels, base, delta_bits, num_magnitude_bits):
    """Return (table, flip, top) of every channel."""
    bits, width = int.from_bytes(said, "little"), 5 + delta_bits
    channels = []
    for _ in range(num_channels):
        delta = (bits & ((1 << width) - 1)) >> 5
        exponent = (base + delta) % (1 << (num_magnitude_bits - 1))
        channels.append((bits & 15, bits >> 4 & 1, 2 * exponent + 1))
        bits >>= width
    refuse_if(bits != 0, CORRUPT)
    return channels


def unlane(state, words, num_tokens, channels):
    """Return the symbols of a lane's channels, one channel after the other."""
    refuse_if(state < 1 << 16, CORRUPT)
    symbols, words = [], words[::-1]
    for table, _, _ in channels:
        frequencies = TABLES[table]
        for _ in range(num_tokens):
            symbol, state = pop_symbol(state, words, frequencies)
            symbols.append(symbol)
    refuse_if(state != 1 << 16 or words, CORRUPT)
    return symbols


def pop_symbol(state, words, frequencies):
    """Return a symbol and the next state; `words` are in reverse order."""
    slot, symbol, first = state % 4096, 0, 0
    while slot >= first + frequencies[symbol]:
        first += frequencies[symbol]
        symbol += 1
    state = frequencies[symbol] * (state // 4096) + slot - first
    if state < 1 << 16:
        refuse_if(not words, CORRUPT)
        state = state << 16 | words.pop()
    return symbol, state


def read_tables():
    """§6, out of the document itself."""
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    numbers = [int(word) for word in text.split("## 6.")[1].split("```")[1].split()]
    return [numbers[64 * table : 64 * table + 64] for table in range(16)]


TABLES = read_tables()
