"""How small and how fast is the codec, beside zstd, split planes, pcodec and blosc2.

K and V are those of held-out passages, prefilled here, or arrays ``k`` and ``v`` [L, H, T, D] of
bit patterns in the ``.npz`` files of a folder. All codecs take the same packets in turn, so that
what else the machine does meets all of them; times are medians. ``encode_mb_s`` and ``decode_mb_s``
are raw bytes by the clock, ``..._cpu`` by processor time, which says what one undisturbed core
would do. Peers code layer by layer, as the codec does; those that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard
from _report import report

from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.codec import decode, encode, workers

Pair = tuple[np.ndarray, np.ndarray]


class Codec(NamedTuple):
    """A name, K and V → any compressed thing, its bytes, and back."""

    name: str
    encode: Callable[[Pair], Any]
    size: Callable[[Any], int]
    decode: Callable[[Any, Pair], Pair]


def ours(level: str, kv_dtype: str) -> Codec:
    """Return one of the codec's levels; encoding includes its own verification."""
    return Codec(
        level,
        lambda pair: encode(*pair, kv_dtype=kv_dtype, level=level),
        len,
        lambda record, _: decode(record),
    )


def by_layer(
    name: str,
    pack: Callable[[np.ndarray], list[bytes]],
    unpack: Callable[[list[bytes], np.ndarray], np.ndarray],
    threads: int,
) -> Codec:
    """Apply a peer to each layer's K and V on as many threads as the codec has."""
    pool = ThreadPoolExecutor(threads)

    def pack_all(pair: Pair) -> list[list[bytes]]:
        return list(pool.map(pack, [layer for side in pair for layer in side]))

    def unpack_all(packed: list[list[bytes]], like: Pair) -> Pair:
        shaped = [layer for side in like for layer in side]
        layers = list(pool.map(unpack, packed, shaped))
        half = len(layers) // 2
        return np.stack(layers[:half]), np.stack(layers[half:])

    return Codec(
        name,
        pack_all,
        lambda packed: sum(len(part) for parts in packed for part in parts),
        unpack_all,
    )


def zstd_peer(threads: int) -> Codec:
    """Return zstd, level 3, on the bytes as they are."""
    return by_layer(
        "zstd",
        lambda layer: [zstandard.ZstdCompressor(level=3).compress(layer.tobytes())],
        lambda parts, like: np.frombuffer(
            zstandard.ZstdDecompressor().decompress(parts[0]), like.dtype
        ).reshape(like.shape),
        threads,
    )


def zstd_planes_peer(threads: int) -> Codec:
    """Return zstd, tuned for entropy coding alone, on the exponents of bf16; the rest raw."""
    parameters = zstandard.ZstdCompressionParameters(
        strategy=zstandard.STRATEGY_FAST, window_log=15, hash_log=6, chain_log=6, min_match=7
    )

    def pack(layer: np.ndarray) -> list[bytes]:
        exponents = (layer >> 7).astype(np.uint8).tobytes()
        rest = ((layer & 0x7F) | (layer >> 8 & 0x80)).astype(np.uint8).tobytes()
        return [zstandard.ZstdCompressor(compression_params=parameters).compress(exponents), rest]

    def unpack(parts: list[bytes], like: np.ndarray) -> np.ndarray:
        exponents = np.frombuffer(zstandard.ZstdDecompressor().decompress(parts[0]), np.uint8)
        rest = np.frombuffer(parts[1], np.uint8).astype(np.uint16)
        joined = (rest & 0x80) << 8 | rest & 0x7F
        joined |= exponents.astype(np.uint16) << 7
        return joined.reshape(like.shape)

    return by_layer("zstd planes", pack, unpack, threads)


def optional_peers(threads: int) -> Iterator[Codec]:
    """Yield peers that are installed: ``pip install pcodec blosc2``."""
    try:
        pco = importlib.import_module("pcodec.standalone")
        config = importlib.import_module("pcodec").ChunkConfig()
        yield by_layer(
            "pcodec",
            lambda layer: [pco.simple_compress(layer.reshape(-1), config)],
            lambda parts, like: pco.simple_decompress(parts[0]).reshape(like.shape),
            threads,
        )
    except ImportError:
        pass
    try:
        blosc2 = importlib.import_module("blosc2")
        options = {"typesize": 2, "clevel": 5, "codec": blosc2.Codec.ZSTD}
        yield by_layer(
            "blosc2",
            lambda layer: [blosc2.compress2(layer, filters=[blosc2.Filter.SHUFFLE], **options)],
            lambda parts, like: np.frombuffer(blosc2.decompress2(parts[0]), like.dtype).reshape(
                like.shape
            ),
            threads,
        )
    except ImportError:
        pass


def packets_of(model: str, data: Path | None, tokens: int, count: int) -> Iterator[Pair]:
    """Yield K and V of ``count`` packets of ``tokens`` tokens."""
    if data is None:
        yield from _prefilled(model, tokens, count)
        return
    for path in sorted(data.glob(f"{model}*test*.npz")) or sorted(data.glob("*.npz")):
        arrays = np.load(path)
        k, v = arrays["k"], arrays["v"]
        if k.ndim == 4:
            k, v = k[None], v[None]
        for one_k, one_v in zip(k[:count], v[:count], strict=True):
            yield (
                np.ascontiguousarray(one_k[:, :, :tokens]),
                np.ascontiguousarray(one_v[:, :, :tokens]),
            )


def _prefilled(model: str, tokens: int, count: int) -> Iterator[Pair]:
    from kvpacket_store.adapters import Adapter
    from kvpacket_store.models import load_model
    from kvpacket_store.prefill import Prefiller

    loaded = load_model(model)
    prefiller = Prefiller(loaded, Adapter.none(int(loaded.embedding.weight.shape[1])))
    text = "\n".join(document.text for document in example_documents())
    ids = loaded.tokenizer.tokenize(text)
    for start in range(0, min(count * tokens, len(ids) - tokens + 1), tokens):
        body = prefiller.segment(tuple(ids[start : start + tokens]))
        yield body.k, body.v


def measure(
    codecs: list[Codec], packets: list[Pair], runs: int, cores: int
) -> list[dict[str, Any]]:
    """Return a row a codec."""
    times: dict[str, list[np.ndarray]] = {codec.name: [] for codec in codecs}
    sizes = dict.fromkeys(times, 0)
    lossless = dict.fromkeys(times, True)
    for run in range(runs):
        for pair in packets:
            for codec in codecs:
                marks = [_now()]
                packed = codec.encode(pair)
                marks.append(_now())
                back = codec.decode(packed, pair)
                marks.append(_now())
                times[codec.name].append((np.diff(marks, axis=0) / pair[0].nbytes / 2).ravel())
                if run == 0:
                    sizes[codec.name] += codec.size(packed)
                    lossless[codec.name] &= all(map(np.array_equal, back, pair))
    raw_bytes = sum(k.nbytes + v.nbytes for k, v in packets)
    scalars = sum(k.size + v.size for k, v in packets)
    rows = []
    for name, seconds_a_byte in times.items():
        speeds = 1e-6 / np.median(seconds_a_byte, axis=0)
        columns = ("encode_mb_s", "encode_mb_s_cpu", "decode_mb_s", "decode_mb_s_cpu")
        rows.append(
            {
                "codec": name,
                "bits_per_scalar": 8 * sizes[name] / scalars,
                "ratio": raw_bytes / sizes[name],
                **dict(zip(columns, map(float, speeds), strict=True)),
                "cores": cores,
                "lossless": lossless[name],
            }
        )
    return rows


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def main() -> None:
    """Measure at each length and number of cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, help="folder of .npz files instead of a prefill")
    parser.add_argument("--tokens", type=int, nargs="*", default=[128, 256, 512])
    parser.add_argument("--packets", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    arguments = parser.parse_args()
    rows = []
    for tokens in arguments.tokens:
        packets = list(packets_of(arguments.model, arguments.data, tokens, arguments.packets))
        for cores in arguments.cores:
            workers._num_threads = lambda cores=cores: cores
            codecs = [ours("fast", "bf16"), ours("raw", "bf16")]
            codecs += [zstd_planes_peer(cores), zstd_peer(cores), *optional_peers(cores)]
            for codec in codecs:  # compilation, threads, files
                codec.decode(codec.encode(packets[0]), packets[0])
            found = measure(codecs, packets, arguments.runs, cores)
            rows += [{"tokens": tokens, **row} for row in found]
    report(
        "codec" if arguments.model == "smollm2" else f"codec_{arguments.model}",
        {
            "machine": machine(),
            "model": arguments.model,
            "packets": arguments.packets,
            "rows": rows,
        },
    )


if __name__ == "__main__":
    main()
