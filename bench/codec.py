"""How small and how fast is the codec, beside zstd, split planes, pcodec, OpenZL and blosc2.

K and V are those of the example passages and of other texts, prefilled here, or arrays ``k`` and
``v`` [L, H, T, D] of bit patterns in the ``.npz`` files of a folder.
"""

import argparse
from pathlib import Path

from _report import report

from kvpacket_store.benchmarks.codec import measure_codec
from kvpacket_store.benchmarks.codec_data import arrays_of, prefilled
from kvpacket_store.codec.linear.pack import CodecPack

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, help="folder of .npz files instead of a prefill")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="texts of other kinds")
    parser.add_argument("--pack", type=Path, help="codec pack; the shipped one unless given")
    parser.add_argument("--tokens", type=int, nargs="*", default=[128, 256, 512])
    parser.add_argument("--packets", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    a = parser.parse_args()
    pack = CodecPack.from_bytes(a.pack.read_bytes()) if a.pack else None
    report(
        "codec" if a.model == "smollm2" else f"codec_{a.model}",
        measure_codec(
            arrays_of(a.data, a.model, a.tokens, a.packets, pack)
            if a.data
            else prefilled(a.model, a.text, a.tokens, a.packets, pack),
            runs=a.runs,
            cores=a.cores,
        ),
    )
