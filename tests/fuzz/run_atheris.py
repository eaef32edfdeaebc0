"""Fuzz one target with coverage: ``python run_atheris.py TARGET SECONDS FOLDER``."""

import sys
from pathlib import Path

# numba compiles bytecode, and cannot make sense of what coverage adds to it
KERNELS = [
    *("kvpacket_store.codec.rans_decode", "kvpacket_store.codec.rans_describe"),
    *("kvpacket_store.codec.rans_encode", "kvpacket_store.codec.rans_kernels"),
    *("kvpacket_store.codec.linear.decode_kernel", "kvpacket_store.codec.linear.encode_kernel"),
    *("kvpacket_store.codec.linear.items", "kvpacket_store.codec.linear.lanes"),
    *("kvpacket_store.codec.linear.multiply_tile", "kvpacket_store.codec.linear.prediction"),
]


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["kvpacket_store"], exclude=KERNELS):
        from targets import TARGETS

    name, seconds, folder = sys.argv[1:]
    target = TARGETS[name]
    for number, seed in enumerate(target.seeds()):
        Path(folder, f"seed{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=20",  # for one input: it hangs
        "-malloc_limit_mb=256",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={folder}/found-",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, folder], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
