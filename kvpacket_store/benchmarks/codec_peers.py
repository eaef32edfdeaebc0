"""The codec and its peers as one kind of thing: K and V → bytes, and back.

Peers code layer by layer, as the codec does, on as many threads; those that are not installed are
left out (``pip install pcodec openzl blosc2``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import zstandard

from kvpacket_store.codec import BASE_STEPS, Layers, decode, decode_base, decode_layers, encode
from kvpacket_store.codec import encode_layers as encode_two
from kvpacket_store.types import BitArray, KVDtype

__all__ = ["Contender", "Pair", "contenders"]

Pair = tuple[BitArray, BitArray]


class Contender(NamedTuple):
    """One way to store K and V.

    Parameters
    ----------
    codec : str
        Its name.
    encode : callable or None
        A pair to whatever it is stored as; None: it reads what the contender before it has stored.
    decode : callable
        Back; it is also given the pair, for shapes.
    size : callable
        Bytes of what is stored.
    layers : int or None
        Of ours: 1, or 2 for base and enhancement.
    base_step : str or None
        How coarse the base is.
    """

    codec: str
    encode: Callable[[Pair], Any] | None
    decode: Callable[[Any, Pair], Pair]
    size: Callable[[Any], int]
    layers: int | None = None
    base_step: str | None = None


def contenders(kv_dtype: KVDtype, pack: object | None, threads: int) -> Iterator[Contender]:
    """Yield ours, those of ``linear`` where there is a pack, and the peers that are here."""
    yield from (_level(level, kv_dtype) for level in ("raw", "fast"))
    if pack is not None:
        yield from _linear(kv_dtype, pack)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="peer")
    yield _zstd(pool)
    if kv_dtype is KVDtype.BF16:
        yield _zstd_planes(pool)
    for name, peer in (("pcodec", _pcodec), ("openzl", _openzl), ("blosc2", _blosc2)):
        module = _module({"pcodec": "pcodec.standalone", "openzl": "openzl.ext"}.get(name, name))
        if module is not None and (name != "openzl" or kv_dtype is KVDtype.BF16):
            yield peer(module, pool)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _level(level: str, kv_dtype: KVDtype) -> Contender:
    """Return one of our levels; encoding includes its own verification."""
    return Contender(
        level,
        lambda pair: encode(*pair, kv_dtype=kv_dtype, level=level),
        lambda record, _: decode(record),
        len,
        layers=1,
    )


def _linear(kv_dtype: KVDtype, pack: object) -> Iterator[Contender]:
    yield Contender(
        "linear",
        lambda pair: encode(*pair, kv_dtype=kv_dtype, level="linear", pack=pack),
        lambda record, _: decode(record, packs=[pack]),
        len,
        layers=1,
    )
    for step in BASE_STEPS:

        def both(pair: Pair, step: str = step) -> Layers:
            return encode_two(*pair, kv_dtype=kv_dtype, pack=pack, base_step=step)

        yield Contender(
            "linear 2 layers",
            both,
            lambda records, _: decode_layers(*records, packs=[pack]),
            lambda records: len(records.base) + len(records.enhancement),
            2,
            step,
        )
        yield Contender(
            "base",
            None,
            lambda records, _: decode_base(records.base, packs=[pack]),
            lambda records: len(records.base),
            2,
            step,
        )


def _by_layer(
    name: str,
    pool: ThreadPoolExecutor,
    pack: Callable[[BitArray], list[bytes]],
    unpack: Callable[[list[bytes], BitArray], BitArray],
) -> Contender:
    """Apply a peer to each layer's K and V."""

    def pack_all(pair: Pair) -> list[list[bytes]]:
        return list(pool.map(pack, [layer for side in pair for layer in side]))

    def unpack_all(packed: list[list[bytes]], like: Pair) -> Pair:
        shaped = [layer for side in like for layer in side]
        layers = list(pool.map(unpack, packed, shaped))
        half = len(layers) // 2
        return np.stack(layers[:half]), np.stack(layers[half:])

    def size(packed: list[list[bytes]]) -> int:
        return sum(len(part) for parts in packed for part in parts)

    return Contender(name, pack_all, unpack_all, size)


def _zstd(pool: ThreadPoolExecutor) -> Contender:
    """Return zstd, level 3, on the bytes as they are."""
    return _by_layer(
        "zstd",
        pool,
        lambda layer: [zstandard.ZstdCompressor(level=3).compress(layer.tobytes())],
        lambda parts, like: np.frombuffer(
            zstandard.ZstdDecompressor().decompress(parts[0]), like.dtype
        ).reshape(like.shape),
    )


def _zstd_planes(pool: ThreadPoolExecutor) -> Contender:
    """Return zstd, tuned for entropy coding alone, on the exponents of bf16; the rest raw."""
    parameters = zstandard.ZstdCompressionParameters(
        strategy=zstandard.STRATEGY_FAST, window_log=15, hash_log=6, chain_log=6, min_match=7
    )

    def pack(layer: BitArray) -> list[bytes]:
        exponents = (layer >> 7).astype(np.uint8).tobytes()
        rest = ((layer & 0x7F) | (layer >> 8 & 0x80)).astype(np.uint8).tobytes()
        return [zstandard.ZstdCompressor(compression_params=parameters).compress(exponents), rest]

    def unpack(parts: list[bytes], like: BitArray) -> BitArray:
        exponents = np.frombuffer(zstandard.ZstdDecompressor().decompress(parts[0]), np.uint8)
        rest = np.frombuffer(parts[1], np.uint8).astype(np.uint16)
        joined = (rest & 0x80) << 8 | rest & 0x7F
        joined |= exponents.astype(np.uint16) << 7
        return np.asarray(joined.reshape(like.shape), np.uint16)

    return _by_layer("zstd planes", pool, pack, unpack)


def _pcodec(standalone: Any, pool: ThreadPoolExecutor) -> Contender:
    config = importlib.import_module("pcodec").ChunkConfig()
    return _by_layer(
        "pcodec",
        pool,
        lambda layer: [standalone.simple_compress(layer.reshape(-1), config)],
        lambda parts, like: standalone.simple_decompress(parts[0]).reshape(like.shape),
    )


def _openzl(zl: Any, pool: ThreadPoolExecutor) -> Contender:
    """Return OpenZL's own split of bf16, exponents by FSE: its best on K and V."""
    compressor = zl.Compressor()
    compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
    split = zl.nodes.BFloat16Deconstruct()
    stored, coded = zl.graphs.Store()(compressor), zl.graphs.Fse()(compressor)
    compressor.select_starting_graph(split(compressor, sign_frac=stored, exponent=coded))

    def pack(layer: BitArray) -> list[bytes]:
        context = zl.CCtx()
        context.ref_compressor(compressor)
        return [context.compress([zl.Input(zl.Type.Numeric, layer.reshape(-1))])]

    def unpack(parts: list[bytes], like: BitArray) -> BitArray:
        found: BitArray = zl.DCtx().decompress(parts[0])[0].content.as_nparray()
        return found.reshape(like.shape)

    return _by_layer("openzl", pool, pack, unpack)


def _blosc2(blosc2: Any, pool: ThreadPoolExecutor) -> Contender:
    options = {"clevel": 5, "codec": blosc2.Codec.ZSTD, "filters": [blosc2.Filter.SHUFFLE]}
    return _by_layer(
        "blosc2",
        pool,
        lambda layer: [blosc2.compress2(layer, typesize=layer.itemsize, **options)],
        lambda parts, like: np.frombuffer(blosc2.decompress2(parts[0]), like.dtype).reshape(
            like.shape
        ),
    )
