"""What steps cost is measured on a store's packets, kept in it, and decides its bases."""

import numpy as np
import pytest
from verified_requests import DOCS, ask

from kvpacket_store.api import Engine, Store
from kvpacket_store.api.recode import recode
from kvpacket_store.api.step_costs import find_costs, measure_step_costs
from kvpacket_store.errors import CorruptRecordError, ReadOnlyError, UsageError


def test_costs_are_measured_kept_and_used(layered_store):
    told = []
    costs = measure_step_costs(
        layered_store, prompts=1, progress=lambda stage, share: told.append(share)
    )
    layers = layered_store.layout.num_layers
    assert costs.harm.shape == costs.bits.shape == (2, layers, 3)
    assert (costs.harm[..., 0] == 0).all()
    assert (np.diff(costs.harm) >= 0).all()
    assert costs.harm.sum() > 0
    assert told == sorted(told)
    assert len(told) == 2 * layers
    kept = find_costs(layered_store.codec_packs.folder, layered_store.meta.codec_pack)
    assert kept.to_dict() == costs.to_dict()
    bits = costs.bits_of((("sigma/2", "sigma/2"),) * layers) + 0.1
    recode(layered_store, "linear", 2, base_step=bits)
    assert layered_store.meta.base_step == costs.steps_within(bits)
    engine = Engine(layered_store, memory_bytes=0)
    drafted = ask(engine, decode="verified", compressor="base")
    assert drafted.token_ids == ask(engine, decode="full").token_ids


def test_measuring_leaves_the_packets_as_they_were(layered_store):
    before = layered_store.packet("rhine")
    measure_step_costs(layered_store, prompts=1)
    after = layered_store.packet("rhine")
    assert np.array_equal(before.k, after.k)
    assert layered_store.verify(deep=True).damaged == []


def test_bits_without_costs_are_refused(layered_store):
    with pytest.raises(UsageError, match="kvps codec steps"):
        recode(layered_store, "linear", 2, base_step=2.5)


def test_a_store_of_another_level_has_no_steps(new_store):
    store = new_store()
    store.ingest(DOCS)
    with pytest.raises(UsageError, match="level linear"):
        measure_step_costs(store)


def test_an_empty_store_has_nothing_to_measure_on(new_store, pack):
    store = new_store(codec="linear", kv_dtype="bf16", codec_pack=pack)
    with pytest.raises(UsageError, match="no packets"):
        measure_step_costs(store)


def test_a_store_for_reading_alone_keeps_none(layered_store):
    path, model = layered_store.path, layered_store.model
    layered_store.close()
    with (
        Store.open(path, model=model, read_only=True) as again,
        pytest.raises(ReadOnlyError, match="reading alone"),
    ):
        measure_step_costs(again)


def test_a_damaged_file_is_named(layered_store):
    folder, digest = layered_store.codec_packs.folder, layered_store.meta.codec_pack
    (folder / f"{digest}.steps.json").write_bytes(b"\xff")
    with pytest.raises(CorruptRecordError, match="kvps codec steps"):
        find_costs(folder, digest)
