"""Level linear: what was written stays readable, what must be refused is refused, twice over."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import spec_linear

from kvpacket_store import errors
from kvpacket_store.codec import decode, decode_base, decode_layers
from kvpacket_store.codec.frame import Encoding, parse_head
from kvpacket_store.codec.linear.pack import CodecPack

pytestmark = pytest.mark.golden

HERE = Path(__file__).parent
FOLDER = HERE / "linear" / "v1"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
VALID = [vector for vector in MANIFEST["vectors"] if "sha256" in vector]
INVALID = [vector for vector in MANIFEST["vectors"] if "error" in vector]
READ = {"decode": decode, "decode_base": decode_base, "decode_layers": decode_layers}


def read_files(vector):
    return [(FOLDER / name).read_bytes() for name in vector["files"]]


def named(vectors):
    ids = [f"{vector['read']}-{vector['files'][-1]}" for vector in vectors]
    return pytest.mark.parametrize("vector", vectors, ids=ids)


@pytest.fixture(scope="module")
def packs():
    """The packs of all records, as the package and as the second decoder read them."""
    files = [(FOLDER / name).read_bytes() for name in MANIFEST["files"] if name.startswith("pack_")]
    return [CodecPack.from_bytes(data) for data in files], list(map(spec_linear.read_pack, files))


def test_vectors_are_those_of_the_manifest():
    found = {path.name for path in FOLDER.iterdir()} - {"manifest.json"}
    assert found == set(MANIFEST["files"])
    assert found == {name for vector in MANIFEST["vectors"] for name in vector["files"]}
    for name, digest in MANIFEST["files"].items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def read_as_package(vector, packs):
    """Return the digest that the manifest has."""
    data = read_files(vector)
    if vector["read"] == "pack":
        return CodecPack.from_bytes(*data).digest
    k, v = READ[vector["read"]](*data, packs=packs[0])
    return hashlib.sha256(k.tobytes() + v.tobytes()).hexdigest()


def read_as_document(vector, packs):
    """Likewise, with the second decoder."""
    data = read_files(vector)
    if vector["read"] == "pack":
        return spec_linear.read_pack(*data).digest.hex()
    _, _, k, v = getattr(spec_linear, vector["read"])(*data, packs[1])
    return hashlib.sha256(k + v).hexdigest()


@named(VALID)
def test_the_package_reads(vector, packs):
    assert read_as_package(vector, packs) == vector["sha256"]


@named(VALID)
def test_the_second_decoder_reads_the_same(vector, packs):
    assert read_as_document(vector, packs) == vector["sha256"]


@named(INVALID)
def test_the_package_refuses(vector, packs):
    with pytest.raises(errors.KVPacketError) as caught:
        read_as_package(vector, packs)
    assert type(caught.value).__name__ == vector["error"]


@named(INVALID)
def test_the_second_decoder_refuses_likewise(vector, packs):
    with pytest.raises(spec_linear.RefusedError, match=f"^{vector['error']}$"):
        read_as_document(vector, packs)


def test_all_encodings_are_among_the_vectors():
    found = {
        (frame.part.name, entry.encoding.name)
        for vector in VALID
        if vector["read"] != "pack"
        for frame in [parse_head(memoryview(data)) for data in read_files(vector)]
        for entry in frame.entries
    }
    whole = {("WHOLE", encoding.name) for encoding in Encoding if encoding is not Encoding.NOTHING}
    layers = {
        ("BASE", "RAW"),
        ("BASE", "LINEAR"),
        ("ENHANCEMENT", "LINEAR"),
        ("ENHANCEMENT", "NOTHING"),
    }
    assert found == whole | layers


def test_a_base_is_near_what_it_is_the_base_of(packs):
    files = [FOLDER / f"{part}_bf16_sigma_8.kvr" for part in ("base", "enhancement")]
    base, enhancement = (path.read_bytes() for path in files)
    near, exact = (
        decode_base(base, packs=packs[0]),
        decode_layers(base, enhancement, packs=packs[0]),
    )
    values = [(side.astype(np.uint32) << 16).view(np.float32) for side in (near[0], exact[0])]
    ordinary = np.isfinite(values[1]) & (np.abs(values[1]) < 8)
    error = (values[0] - values[1])[ordinary]
    assert 0 < np.sqrt(np.mean(error**2)) < 0.5 * values[1][ordinary].std()
