"""How coarse a base is: said when the store is made, kept by it, and changed by a recode."""

import dataclasses

import numpy as np
import pytest

from kvpacket_store.api import Store
from kvpacket_store.api.codec_choice import choose_base_step
from kvpacket_store.api.loader import PacketLoader
from kvpacket_store.api.recode import recode
from kvpacket_store.codec import info
from kvpacket_store.errors import StoreCorruptError, UsageError
from kvpacket_store.store import StoreMeta
from kvpacket_store.types import Document

DOCS = [Document("Rhine", "The Rhine flows to the sea. " * 12)]


@pytest.fixture
def new_linear(new_store, pack):
    """A function: base step → a store of level linear with one document."""

    def make(base_step=None, **options):
        name = f"{len(made)}.kvps"
        made.append(
            new_store(
                name=name, codec="linear", kv_dtype="bf16", codec_pack=pack, base_step=base_step,
                **options,
            )
        )  # fmt: skip
        made[-1].ingest(DOCS)
        return made[-1]

    made = []
    return make


def steps_of(store):
    [manifest] = store.packets.iter_packets()
    packet = store.packets.read_packet(manifest.namespace, manifest.packet_key)
    return info(packet.record).base_step


def kv_of(store, *, base=False):
    packet = store.packet("Rhine")
    if not base:
        return packet.k, packet.v
    base = PacketLoader(store).base("default", packet.key).body
    return base.k, base.v


def values(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def error(store, side):
    exact, near = values(kv_of(store)[side]), values(kv_of(store, base=True)[side])
    return float(np.sqrt(np.mean((exact - near) ** 2)))


def test_what_was_asked_for_is_kept_and_used(new_linear, tiny_model, word_embedder):
    store = new_linear(("sigma/8", "sigma/2"))
    num_layers = store.layout.num_layers
    assert steps_of(store) == store.meta.base_step == (("sigma/8", "sigma/2"),) * num_layers
    store.close()
    with Store.open(store.path, model=tiny_model("llama"), embedder=word_embedder) as again:
        assert again.meta.base_step == (("sigma/8", "sigma/2"),) * num_layers


def test_the_default_is_said_too(new_linear):
    store = new_linear()
    assert steps_of(store) == store.meta.base_step
    assert {step for pair in store.meta.base_step for step in pair} == {"sigma/4"}


def test_each_layer_may_have_its_own(new_linear):
    first = new_linear()
    rows = [("sigma/8", "sigma/4")] + [["sigma/2", "sigma/8"]] * (first.layout.num_layers - 1)
    assert steps_of(new_linear(rows)) == tuple(map(tuple, rows))


def test_a_coarser_step_is_coarser_and_the_exact_bits_are_the_same(new_linear):
    fine, mixed = new_linear("sigma/8"), new_linear(("sigma/8", "sigma/2"))
    for one, other in zip(kv_of(fine), kv_of(mixed), strict=True):
        assert np.array_equal(one, other)
    # K is predicted from the V of layers below: a coarser V moves it a little
    assert error(fine, 0) == pytest.approx(error(mixed, 0), rel=0.02)
    assert error(fine, 1) < 0.9 * error(mixed, 1)


def test_a_recode_goes_over_to_another_step_once(new_linear, pack):
    store = new_linear("sigma/8")
    before = kv_of(store)
    report = recode(store, "linear", pack=pack, base_step="sigma/2")
    assert (report.recoded, report.unchanged) == (1, 0)
    assert {step for pair in steps_of(store) for step in pair} == {"sigma/2"}
    for one, other in zip(before, kv_of(store), strict=True):
        assert np.array_equal(one, other)
    report = recode(store, "linear", pack=pack, base_step="sigma/2")
    assert (report.recoded, report.unchanged) == (0, 1)
    recode(store, "linear", layers=1)
    assert (steps_of(store), store.meta.base_step) == (None, None)


@pytest.mark.parametrize(
    "wrong", ["sigma/3", "", True, [], ("sigma/4",), [("sigma/4", "sigma/4")] * 99,
              [None, "sigma/4"], ("sigma/4", "sigma"), {"k": "sigma/4"}, [("sigma/4", 2)] * 2,
              ["sigma/4"] * 3]
)  # fmt: skip
def test_a_step_that_is_none_is_refused(wrong):
    with pytest.raises(UsageError, match="base_step is one of sigma/8, sigma/4, sigma/2"):
        choose_base_step(wrong, 2, 2)


def test_one_layer_has_no_base(new_store):
    assert choose_base_step(None, 1, 2) is None
    with pytest.raises(UsageError, match="no base"):
        new_store(codec="fast", base_step="sigma/4")


def test_a_recode_keeps_pack_and_step_unless_told_otherwise(new_linear, pack):
    store = new_linear(("sigma/8", "sigma/2"))
    before = store.meta
    other = dataclasses.replace(pack, about={"newer": True})
    store.codec_packs.keep(other)
    report = recode(store, "linear")
    assert (report.recoded, report.unchanged, store.meta) == (0, 1, before)
    assert (report.codec_pack, report.base_step) == (pack.digest, before.base_step)
    report = recode(store, "linear", pack=other)
    assert (report.recoded, report.codec_pack) == (1, other.digest)
    assert store.meta.base_step == before.base_step


@pytest.mark.parametrize(
    "wrong",
    [["ab", "cd"], "", {}, [["bogus", "bogus"]] * 4, [["sigma/4", "sigma/4"]] * 99, [[1, 2]] * 4,
     [["sigma/4", None]] * 4, [[["sigma/4"], "sigma/4"]] * 4, 5],
    ids=str,
)  # fmt: skip
def test_a_description_with_other_steps_is_damaged(new_linear, wrong):
    values = new_linear().meta.to_dict()
    with pytest.raises(StoreCorruptError):
        StoreMeta.from_dict(values | {"base_step": wrong})


def test_the_description_of_a_store_without_steps_reads_as_before(new_store):
    meta = new_store().meta
    values = meta.to_dict()
    assert "base_step" not in values
    assert StoreMeta.from_dict(values) == meta
    with pytest.raises(StoreCorruptError):  # one layer has no base
        StoreMeta.from_dict(values | {"base_step": [["sigma/4", "sigma/4"]] * 4})
