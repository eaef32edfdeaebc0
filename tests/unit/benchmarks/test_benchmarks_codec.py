"""The codec's benchmark: what its rows say, which data it refuses, and what its page shows."""

import json

import numpy as np
import pytest

from kvpacket_store.benchmarks.codec import measure_codec
from kvpacket_store.benchmarks.codec_data import (
    CodecData,
    Passages,
    arrays_of,
    documents_of,
    prefilled,
)
from kvpacket_store.cli.codec_page import codec_page, row_name
from kvpacket_store.codec.linear.synthetic import make_items
from kvpacket_store.codec.linear.train import Options, train
from kvpacket_store.errors import UsageError
from kvpacket_store.types import KVDtype

CONTRACT = {
    "codec",
    "bits_per_scalar",
    "ratio",
    "encode_mb_s",
    "decode_mb_s",
    "cores",
    "lossless",
}


def pair_of(tokens, seed=0):
    shape = (2, 1, tokens, 16)
    return make_items(shape, seed=seed, strange=0), make_items(shape, seed=seed + 1, strange=0)


def data_of(pack):
    passages = [Passages("<a text>", 40, [pair_of(40), pair_of(40, 5)])]
    return CodecData("tiny", KVDtype.BF16, pack, passages)


def test_rows_are_the_contracts_and_the_page_shows_them():
    shares = []
    data = data_of(train([pair_of(200)], "bf16", options=Options(back=1, num_classes=2)))
    result = measure_codec(data, runs=1, cores=(1, 2), progress=shares.append)
    rows = {(row_name(row), row["cores"]): row for row in result["rows"]}
    assert len(rows) == len(result["rows"])
    names = {name for name, _ in rows}
    steps = ("sigma/8", "sigma/4", "sigma/2")
    assert names >= {"raw", "fast", "linear", "zstd", "zstd planes", *(f"base {s}" for s in steps)}
    for (name, _), row in rows.items():
        assert set(row) >= CONTRACT
        assert row["lossless"] is not name.startswith("base")
        assert (row["encode_mb_s"] is None) == name.startswith("base")
        assert row["ratio"] == pytest.approx(16 / row["bits_per_scalar"])
        assert row["decode_mb_s"] > 0
        least, most = row["bits_range"]
        assert least <= row["bits_per_scalar"] <= most
    for step in steps:
        base, both = rows[f"base {step}", 1], rows[f"linear 2 layers {step}", 1]
        assert base["bits_per_scalar"] < both["bits_per_scalar"]
        assert base["snr_db"] > 0
    assert (shares[-1], shares) == (1.0, sorted(shares))
    page = codec_page(result)
    assert "&lt;a text&gt;: 2 packets of 40 tokens" in page
    assert "<a text>" not in page
    assert "<script" not in page
    assert "http" not in page.replace('xmlns="http', "")
    assert page.count("<tr>") == len(rows) + 2


def test_without_a_pack_the_page_says_what_is_left_out():
    result = measure_codec(data_of(None), runs=1, cores=(1,))
    assert not any(row["codec"].startswith(("linear", "base")) for row in result["rows"])
    assert result["data"]["codec_pack"] is None
    assert "level linear is left out" in codec_page(result)


def test_arrays_are_cut_into_packets(tmp_path):
    k, v = pair_of(100)
    np.savez(tmp_path / "tiny_one.npz", k=k, v=v)
    np.savez(tmp_path / "tiny_two.npz", k=k[None], v=v[None])
    data = arrays_of(tmp_path, "tiny", [30, 80], 2, None)
    found = [(p.text, p.tokens, len(p.packets)) for p in data.passages]
    sizes = [(30, 2), (80, 1)]
    assert found == [(text, *size) for text in ("tiny_one", "tiny_two") for size in sizes]
    assert np.array_equal(data.passages[2].packets[1][1], v[:, :, 30:60])


def test_data_that_cannot_be_measured_is_refused(tmp_path, model):
    with pytest.raises(UsageError, match=r"no \.npz file"):
        arrays_of(tmp_path, "tiny", [30], 2, None)
    np.savez(tmp_path / "a.npz", k=np.zeros((2, 3)), v=np.zeros((2, 3)))
    with pytest.raises(UsageError, match="bit patterns uint16"):
        arrays_of(tmp_path, "tiny", [30], 2, None)
    np.savez(tmp_path / "a.npz", k=np.zeros((2, 3)))
    with pytest.raises(UsageError, match="no arrays k and v"):
        arrays_of(tmp_path, "tiny", [30], 2, None)
    with pytest.raises(UsageError, match="positions; no packet of 4096"):
        prefilled(model, [], [4096], 1, None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no text that can be read"):
        prefilled(model, [tmp_path / "empty"], [16], 1, None)


def test_texts_are_prefilled_beside_the_examples(tmp_path, model):
    (tmp_path / "code.py").write_text("def one():\n    return 1\n" * 20)
    data = prefilled(model, [tmp_path / "code.py"], [16, 32], 2, None)
    found = [(p.text, p.tokens, len(p.packets)) for p in data.passages]
    assert found == [(text, n, 2) for text in ("examples", "code.py") for n in (16, 32)]
    assert data.passages[3].packets[0][0].shape == model.layout.shape(32)
    assert (data.model, data.pack) == ("tiny-llama", None)


def test_each_document_is_a_packet_of_its_own_length(tmp_path, model):
    file = tmp_path / "notes.jsonl"
    lines = [{"id": str(n), "text": "a" * n} for n in (10, 20, 30, 40, 60)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [passages] = documents_of(model, file, 9, None).passages
    assert [k.shape[2] for k, _ in passages.packets] == [10, 20, 30, 40, 60]
    assert (passages.text, passages.tokens) == ("notes.jsonl", 32)
    [some] = documents_of(model, file, 2, None).passages
    assert [k.shape[2] for k, _ in some.packets] == [10, 30]
    file.write_text(json.dumps({"id": "long", "text": "a" * 4096}))
    with pytest.raises(UsageError, match="not of 1 to 2048 tokens"):
        documents_of(model, file, 1, None)
