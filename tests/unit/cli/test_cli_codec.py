"""``kvps codec list`` and ``recode`` name packs; pages hold what they are given."""

import dataclasses

import pytest
from typer.testing import CliRunner

from kvpacket_store.api.store import Store
from kvpacket_store.cli.codec_packs import find_packs, named_pack
from kvpacket_store.cli.main import app
from kvpacket_store.cli.page import write_text
from kvpacket_store.cli.stats_page import heat_map, stats_page
from kvpacket_store.codec.linear.shapes import PackShape
from kvpacket_store.codec.linear.synthetic import make_pack
from kvpacket_store.errors import UsageError
from kvpacket_store.types import Document


@pytest.fixture
def store(new_store):
    return new_store(kv_dtype="bf16")


def pack_for(store, seed=0):
    layout = store.layout
    shape = PackShape(layout.num_layers, layout.num_kv_heads, layout.head_dim, 1)
    weights = store.meta.fingerprint["weights"]
    return dataclasses.replace(make_pack(shape, "bf16", seed), weights=weights)


def own(store):
    return [found.to_dict(store) for found in find_packs(store) if found.where == "store"]


def test_packs_are_listed_with_what_they_are_good_for(store):
    assert own(store) == []
    pack, other = pack_for(store), dataclasses.replace(pack_for(store, 1), weights="f" * 64)
    for one in (pack, other):
        store.codec_packs.keep(one)
    (store.codec_packs.folder / "0.kvc").write_bytes(b"no pack")
    by_digest = {one["digest"]: one for one in own(store)}
    assert set(by_digest) == {pack.digest, other.digest, None}
    assert (by_digest[pack.digest]["fits"], by_digest[other.digest]["fits"]) == (True, False)
    assert by_digest[pack.digest]["bytes"] == len(pack.to_bytes())
    assert "not a codec pack" in by_digest[None]["damage"]


def test_a_pack_is_named_by_a_file_or_the_beginning_of_its_digest(store, tmp_path):
    packs = [pack_for(store, seed) for seed in range(2)]
    for pack in packs:
        store.codec_packs.keep(pack)
    assert named_pack(store, packs[1].digest[:10]).digest == packs[1].digest
    file = tmp_path / "p.kvc"
    file.write_bytes(packs[0].to_bytes())
    assert named_pack(store, str(file)) == file
    for asked in ("xyz", ""):
        with pytest.raises(UsageError, match=packs[0].digest[:12]):
            named_pack(store, asked)


def test_recode_tells_what_it_did_and_stats_show_it(store):
    store.ingest([Document(id="a", text="The Rhine rises in the Alps. " * 9)])
    store.codec_packs.keep(pack_for(store))
    path, run = str(store.path), CliRunner().invoke
    said = run(app, ["codec", "recode", path, "--codec", "linear"])
    assert said.exit_code == 0
    assert "1 packets recoded, 0 left as they were" in said.stdout
    assert "1 left as they were" in run(app, ["codec", "recode", path, "--codec", "linear"]).stdout
    assert "in use" in run(app, ["codec", "list", path]).stdout
    assert "bits, k, base" in run(app, ["stats", path]).stdout
    back = run(app, ["codec", "recode", path, "--codec", "fast", "--pack", "abc"])
    assert isinstance(back.exception, UsageError)
    assert run(app, ["codec", "recode", path, "--codec", "fast"]).exit_code == 0
    with Store.open(path, model=store.model, embedder=store.embedder) as again:
        assert again.stats().bits_per_scalar["base"] is None


def test_stats_by_layer_add_up_to_what_is_stored(store):
    store.ingest([Document(id=str(i), text=f"Number {i}. " * 40) for i in range(3)])
    stats = store.stats()
    assert (stats.sampled_packets, stats.pack_bytes) == (3, 0)
    scalars = stats.raw_bytes / 2
    mean = sum(layer["k"] + layer["v"] for layer in stats.layers) / (2 * len(stats.layers))
    heads = 8 * (stats.live_bytes / scalars) - mean
    assert 0 < heads < 0.4 * mean
    assert stats.layers[0]["k_base"] is None
    assert store.stats(namespace="default").layers == stats.layers


def test_a_heat_map_has_a_cell_for_every_layer_and_side():
    layers = [{"layer": i, "k": 8.0 + i, "v": 9.0, "k_base": 2.0, "v_base": 2.5} for i in range(3)]
    drawn = heat_map(layers)
    assert drawn.count("<rect") == 12
    assert "10.00" in drawn
    same = heat_map([{"layer": 0, "k": 8.0, "v": 8.0, "k_base": None, "v_base": None}])
    assert same.count("<rect") == 2


def test_a_page_of_an_empty_store_says_so_and_shows_no_markup_of_names(store):
    page = stats_page("<b>&.kvps", store.stats().to_dict())
    assert "Sizes of &lt;b&gt;&amp;.kvps" in page
    assert "nothing to show by layer" in page
    assert "prefers-color-scheme: dark" in page


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "file" / "x.html", "text")
    write_text(tmp_path / "new" / "x.html", "text")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["x.html"]
