"""The codec's first use: compiling its kernels into an empty cache; and the starts after it.

Each is a whole process: import the codec (no torch), encode one small packet, decode it. The
first has an empty ``NUMBA_CACHE_DIR``; those after it find there what it compiled. ``raw``, which
compiles nothing, is the floor. What else the machine does is in the times: ``min_s`` is nearest to
an idle one, ``processor_s`` (of all threads) depends on it least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _report import report

from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.codec.packs import installed_packs

TOKENS, LATER = 128, 3
PROCESS = """
import json, sys, time
import numpy as np
from kvpacket_store.codec import decode, encode
from kvpacket_store.codec.packs import installed_packs
file, level, started = sys.argv[1], sys.argv[2], float(sys.argv[3])
k, v = np.load(file)
imported = time.monotonic() - started
pack = installed_packs()[0] if level == "linear" else None
record = encode(k, v, kv_dtype="bf16", level=level, pack=pack)
encoded = time.monotonic() - started
back = decode(record)
decoded = time.monotonic() - started
equal = all(map(np.array_equal, back, (k, v)))
print(json.dumps({"imported_s": imported, "encoded_s": encoded, "decoded_s": decoded,
    "lossless": equal, "torch": "torch" in sys.modules}))
"""
TIMES = ("imported_s", "encoded_s", "decoded_s", "process_s", "processor_s")


def _packet() -> Any:
    """Return bit patterns [2, L, H, T, D]: noise about each channel's usual value in SmolLM2.

    No token tells of another as in K and V, so what it is coded in says nothing of the levels.
    """
    pack, rng = installed_packs()[0], np.random.default_rng(0)
    bins = pack.centers[..., None] + rng.normal(0, 2, (*pack.centers.shape, TOKENS))
    values = np.ldexp(bins, pack.steps[..., None].astype(int) - 127).astype(np.float32)
    shape = pack.shape.layers, 2, pack.shape.heads, pack.shape.head_dim, TOKENS
    bits = (values.view(np.uint32) >> 16).astype(np.uint16).reshape(shape)
    bits[-1] = rng.integers(1 << 16, size=bits.shape[1:])  # no prediction: a kernel of its own
    return np.ascontiguousarray(bits.transpose(1, 0, 2, 4, 3))


def _start(file: Path, level: str, cache: Path) -> dict[str, Any]:
    """Return what one process says, and its seconds by the clock and of processor time."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    before, started = os.times(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(file), level, repr(started)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    process_s, after = time.monotonic() - started, os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    compiled = sum(1 for _ in cache.rglob("*.nbc"))
    said = json.loads(done.stdout)
    return {**said, "process_s": process_s, "processor_s": used, "kernels": compiled}


def _row(level: str, start: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    whole = [one["process_s"] for one in found]
    medians = {key: statistics.median(one[key] for one in found) for key in TIMES}
    return {
        "level": level,
        "start": start,
        "n": len(found),
        **medians,
        "min_s": min(whole),
        "max_s": max(whole),
        "kernels": found[0]["kernels"],
        "lossless": all(one["lossless"] for one in found),
        "torch_imported": any(one["torch"] for one in found),
    }


def measure(runs: int) -> dict[str, Any]:
    """Return a row for each level's first use and one for its later starts, levels in turn."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "packet.npy"
        np.save(file, _packet())
        _start(file, "fast", Path(scratch) / "uncounted")  # fills the file cache
        for run in range(runs):
            for level in ("raw", "fast", "linear"):
                cache = Path(scratch) / f"{level}-{run}"
                for start in ("first", *["later"] * LATER):
                    found.setdefault((level, start), []).append(_start(file, level, cache))
    rows = [_row(level, start, said) for (level, start), said in found.items()]
    return {
        "machine": machine(),
        "runs": runs,
        "load_average": os.getloadavg(),
        "tokens": TOKENS,
        "rows": rows,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="first uses of each level")
    report("first_use", measure(parser.parse_args().runs))
