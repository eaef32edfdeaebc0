"""How small and how fast is the codec, beside zstd, split planes, pcodec, OpenZL and blosc2.

K and V are those of the example passages and of other texts, prefilled here; of documents, each a
packet of its own length; or arrays ``k`` and ``v`` [L, H, T, D] of bit patterns in the ``.npz``
files of a folder.
"""

import argparse
from pathlib import Path

from _report import report

from kvpacket_store.benchmarks.codec import measure_codec
from kvpacket_store.benchmarks.codec_data import CodecData, arrays_of, documents_of, prefilled
from kvpacket_store.codec.linear.pack import CodecPack


def _data(a: argparse.Namespace) -> CodecData:
    pack = CodecPack.from_bytes(a.pack.read_bytes()) if a.pack else None
    if a.data:
        return arrays_of(a.data, a.model, a.tokens, a.packets, pack)
    if a.documents:
        return documents_of(a.model, a.documents, a.packets, pack)
    return prefilled(a.model, a.text, a.tokens, a.packets, pack)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--data", type=Path, help="folder of .npz files instead of a prefill")
    source.add_argument("--documents", type=Path, help="JSONL; each document is a packet")
    source.add_argument("--text", type=Path, nargs="*", default=[], help="texts of other kinds")
    parser.add_argument("--pack", type=Path, help="codec pack; the shipped one unless given")
    parser.add_argument("--tokens", type=int, nargs="*", default=[128, 256, 512])
    parser.add_argument("--packets", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--name", help="of the file in bench/results; codec or codec_MODEL")
    a = parser.parse_args()
    name = a.name or ("codec" if a.model == "smollm2" else f"codec_{a.model}")
    report(name, measure_codec(_data(a), runs=a.runs, cores=a.cores))
