"""What was once written stays readable, and what must be refused is refused by name, twice over."""

import ast
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import spec_decoder
import spec_rans

from kvpacket_store import errors
from kvpacket_store.codec import decode, info
from kvpacket_store.codec.frame import FORMAT_VERSION
from kvpacket_store.codec.tables import FREQUENCIES

pytestmark = pytest.mark.golden

HERE = Path(__file__).parent
FOLDER = HERE / "codec" / "v1"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
VALID = [entry for entry in MANIFEST if entry["kind"] == "valid"]
INVALID = [entry for entry in MANIFEST if entry["kind"] == "invalid"]


def record_of(entry):
    return (FOLDER / entry["file"]).read_bytes()


def named(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["file"] for entry in entries])


def test_vectors_are_those_of_the_manifest():
    assert {entry["file"] for entry in MANIFEST} == {path.name for path in FOLDER.glob("*.kvr")}
    for entry in MANIFEST:
        assert hashlib.sha256(record_of(entry)).hexdigest() == entry["sha256"], entry["file"]
    assert FORMAT_VERSION == 1, "a new version needs a folder of its own; v1 stays as it is"


@named(VALID)
def test_decoder_reads(entry):
    k, v = decode(record_of(entry))
    assert hashlib.sha256(k.tobytes() + v.tobytes()).hexdigest() == entry["planes_sha256"]


@named(VALID)
def test_spec_decoder_reads_the_same(entry):
    record = record_of(entry)
    kv_dtype, shape, k, v = spec_decoder.decode(record)
    assert hashlib.sha256(k + v).hexdigest() == entry["planes_sha256"]
    assert (info(record).kv_dtype, info(record).shape) == (kv_dtype, shape)


@named(INVALID)
def test_decoder_refuses(entry):
    with pytest.raises(errors.CodecError) as caught:
        decode(record_of(entry))
    assert type(caught.value).__name__ == entry["error"]


@named(INVALID)
def test_spec_decoder_refuses_likewise(entry):
    with pytest.raises(spec_decoder.RefusedError, match=f"^{entry['error']}$"):
        spec_decoder.decode(record_of(entry))


def test_both_decoders_refuse_what_is_over_the_caller_s_limit():
    record = record_of(VALID[0])
    raw_bytes = info(record).raw_bytes
    assert decode(record, max_bytes=raw_bytes)[0].nbytes == raw_bytes // 2
    with pytest.raises(errors.CorruptRecordError, match="max_bytes"):
        decode(record, max_bytes=raw_bytes - 1)
    with pytest.raises(spec_decoder.RefusedError, match="Corrupt"):
        spec_decoder.decode(record, max_bytes=raw_bytes - 1)


@pytest.mark.parametrize("file", sorted(HERE.glob("spec_*.py")), ids=lambda file: file.stem)
def test_the_second_decoder_is_independent_of_the_package(file):
    tree = ast.parse(file.read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    ours = {other.stem for other in HERE.glob("spec_*.py")}
    assert modules - ours <= {"hashlib", "json", "math", "pathlib", "typing", "xxhash", "zstandard"}


def test_the_document_s_tables_are_the_package_s():
    assert FREQUENCIES.tolist() == spec_rans.TABLES


def test_all_encodings_are_among_the_vectors():
    found = {record_of(entry)[47] for entry in VALID if info(record_of(entry)).shape[0]}
    assert found == {0, 1, 2}


def test_every_bf16_pattern_is_among_the_vectors():
    k, _ = decode((FOLDER / "valid_fast_bf16_every_pattern.kvr").read_bytes())
    assert np.array_equal(np.unique(k), np.arange(65536))
