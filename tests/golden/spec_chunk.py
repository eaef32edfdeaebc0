"""A chunk of level linear, written from docs/format.md §7 alone: bins, lanes, rest bits."""

from spec_pack import EXPONENT_BITS
from spec_rans import pop_symbol, read_lanes
from spec_reading import CORRUPT, number, refuse_if

MANTISSA_BITS = {"bf16": 7, "fp16": 10, "fp32": 7, "fp8_e4m3": 3, "fp8_e5m2": 2}
FIRST_FINE = (0, 0, 10, 22)


def clamp(x, low, high):
    return min(max(x, low), high)


def places_of(c, context):
    """Return where a channel's items are in [H, tokens, D]."""
    head, d = divmod(c, context.pack.head_dim)
    first = head * context.num_tokens * context.pack.head_dim + d
    return range(first, first + context.num_tokens * context.pack.head_dim, context.pack.head_dim)


def bin_of(item, step, dtype):
    """Return an item's bin, and whether it must escape. §7.2."""
    exponent_bits, mantissa_bits = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    mantissa, top = item % 2**mantissa_bits, item >> mantissa_bits
    exponent, sign = top % 2**exponent_bits, top >> exponent_bits
    up = exponent - step - mantissa_bits
    exact = (2**mantissa_bits + mantissa) * 2 ** max(up, 0) // 2 ** max(-up, 0)
    special = exponent == 2**exponent_bits - 1
    size = 4095 if special else min(4095, exact)
    escapes = special or exponent == 0 or exponent < step - 12 or exact > 4095
    return (-1 - size if sign else size), escapes


def item_of(found, step, dtype, take_bits):
    """Return the item of a bin whose rest `take_bits` gives. §7.2."""
    exponent_bits, mantissa_bits = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    found = clamp(found, -4096, 4095)
    size, sign = (found, 0) if found >= 0 else (-1 - found, 1)
    if size > 0:
        octave = size.bit_length() - 1
        rest = take_bits(max(mantissa_bits - octave, 0))
        exponent = step + octave
        mantissa = (size - 2**octave) * 2**mantissa_bits // 2**octave + rest
    else:
        zeros = 0
        while zeros < 11 and take_bits(1) == 0:
            zeros += 1
        if zeros == 11:
            take_bits(1)
        exponent, mantissa = step - 1 - zeros, take_bits(mantissa_bits)
    exponent %= 2**exponent_bits
    return (sign << exponent_bits | exponent) << mantissa_bits | mantissa


class Lanes:
    """§7.4."""

    def __init__(self, take, num_tokens):
        lanes = read_lanes(take, min(32, num_tokens))
        self.states, self.words = [state for state, _ in lanes], [words[::-1] for _, words in lanes]
        refuse_if(min(self.states) < 2**16, CORRUPT)

    def pop(self, tables):
        """Return the symbols of a channel, whose tokens have these tables."""
        symbols = []
        for token, table in enumerate(tables):
            lane = token % len(self.states)
            state, words = self.states[lane], self.words[lane]
            symbol, self.states[lane] = pop_symbol(state, words, table)
            symbols.append(symbol)
        return symbols

    def check_end(self):
        refuse_if({*self.states} != {2**16} or any(self.words), CORRUPT)


class Chunk:
    """A chunk whose base part has been decoded, and has become context. §7.5."""

    def __init__(self, context, place, setting, take):
        self.context, self.setting, self.dtype = context, setting, context.pack.dtype
        self.channels = context.pack.channels[place]
        num_escapes = number(take(4), 0, 32)
        lanes = Lanes(take, context.num_tokens)
        refuse_if(2 * num_escapes > len(take.body), CORRUPT)
        escapes = [number(take(2), 0, 16) for _ in range(num_escapes)][::-1]
        item_bits = 1 + EXPONENT_BITS[self.dtype] + MANTISSA_BITS[self.dtype]
        refuse_if(any(item >> item_bits for item in escapes), CORRUPT)
        self.predicted, self.coarse, self.rebuilt, self.escaped = [], [], [], []
        for c in range(len(self.channels)):
            self._decode_channel(c, context.predict(place, c), lanes, escapes)
            context.write(place, c, self.rebuilt[c])
        refuse_if(escapes, CORRUPT)
        lanes.check_end()

    def _decode_channel(self, c, predicted, lanes, escapes):
        channel = self.channels[c]
        width = 2 ** channel.drops[self.setting]
        tables = self.context.pack.coarse[channel.classes[self.setting]]
        symbols = lanes.pop([tables[width - 1 + p % width] for p in predicted])
        coarse, rebuilt, escaped = [], [], []
        for p, symbol in zip(predicted, symbols, strict=True):
            q = p // width + symbol - 31
            found = clamp(p, q * width + width // 4, q * width + width - 1 - width // 4)
            item = None
            if symbol == 63:
                refuse_if(not escapes, CORRUPT)
                item = escapes.pop()
                found, _ = bin_of(item, channel.step, self.dtype)
                q = found // width
            coarse.append(q)
            rebuilt.append(found)
            escaped.append(item)
        self.predicted.append(predicted)
        self.coarse.append(coarse)
        self.rebuilt.append(rebuilt)
        self.escaped.append(escaped)

    def rebuilt_items(self):
        """§7.7."""
        items = []
        for channel, escaped, rebuilt in zip(
            self.channels, self.escaped, self.rebuilt, strict=True
        ):
            middles = [self._middle(found, channel.step) for found in rebuilt]
            items.append([m if e is None else e for m, e in zip(middles, escaped, strict=True)])
        shift = 16 if self.dtype == "fp32" else 0
        return [item << shift for item in self._in_order(items)]

    def _middle(self, found, step):
        if found in (0, -1):
            rest = iter([1, 0])
            return item_of(found, step, self.dtype, lambda bits: next(rest))
        return item_of(found, step, self.dtype, lambda bits: 2**bits // 2)

    def exact_items(self, take):
        """§7.6."""
        bins = self._fine_bins(take)
        num_items = len(bins) * self.context.num_tokens
        lower = take.body[len(take.body) - 2 * num_items :] if self.dtype == "fp32" else b""
        refuse_if(len(take.body) - take.at < len(lower), CORRUPT)
        bits = Bits(take(len(take.body) - len(lower) - take.at))
        items = [
            [
                item_of(found, channel.step, self.dtype, bits.take) if item is None else item
                for found, item in zip(row, escaped, strict=True)
            ]
            for channel, row, escaped in zip(self.channels, bins, self.escaped, strict=True)
        ]
        bits.check_end()
        items = self._in_order(items)
        if self.dtype == "fp32":
            take(len(lower))
            items = [upper << 16 | number(lower, 2 * at, 16) for at, upper in enumerate(items)]
        return items

    def _fine_bins(self, take):
        drops = [channel.drops[self.setting] for channel in self.channels]
        lanes = Lanes(take, self.context.num_tokens) if any(drops) else None
        bins = []
        for c, drop in enumerate(drops):
            row = self.coarse[c]
            if drop:
                tables = self.context.pack.fine[self.channels[c].classes[self.setting]]
                starts = [q * 2**drop for q in row]
                distances = [
                    clamp(p - start + 4, 0, 2**drop + 7)
                    for p, start in zip(self.predicted[c], starts, strict=True)
                ]
                symbols = lanes.pop([tables[FIRST_FINE[drop] + x] for x in distances])
                row = [start + symbol for start, symbol in zip(starts, symbols, strict=True)]
            bins.append(row)
        if lanes:
            lanes.check_end()
        return bins

    def _in_order(self, by_channel):
        """Return items [C][T] in the order [H, tokens, D]."""
        ordered = [0] * (len(by_channel) * self.context.num_tokens)
        for c, row in enumerate(by_channel):
            for at, item in zip(places_of(c, self.context), row, strict=True):
                ordered[at] = item
        return ordered


class Bits:
    """Take bits from the lowest up."""

    def __init__(self, data):
        self.value, self.length, self.at = int.from_bytes(data, "little"), len(data), 0

    def take(self, bits):
        taken = self.value >> self.at & ((1 << bits) - 1)
        self.at += bits
        refuse_if(self.at > 8 * self.length, CORRUPT)
        return taken

    def check_end(self):
        refuse_if((self.at + 7) // 8 != self.length, CORRUPT)
