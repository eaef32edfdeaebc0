"""The exact K and V on their way while drafts run: when they are in memory, and what may fail."""

import threading
import time

import pytest
from verified_requests import LONG, QUESTION, ask, begun_of, failing, keys_of, taken

from kvpacket_store.api.swap_in import SwapPolicy
from kvpacket_store.errors import CancelledError, CorruptRecordError
from kvpacket_store.generate import Final, Provisional, decode_alone
from kvpacket_store.models import Transfer


@pytest.fixture
def store(layered_store):
    return layered_store


@pytest.fixture
def engine(layered_engine):
    return layered_engine


def test_while_drafts_run_the_exact_kv_is_not_in_memory_and_drafts_grow(engine, store):
    """The link to the enhancement is shut until 12 tokens are drafted."""
    is_open = threading.Event()
    policy = SwapPolicy(link=lambda _: is_open.wait(30))
    begun = begun_of(engine, policy, compressor="base*snapkv:0.25", draft_tokens=2)
    plain = ask(engine, decode="full").token_ids
    before = store.packets.bytes_read
    drafted, final = 0, []
    for event in decode_alone(begun.decoding, store.model.row_forward()):
        if isinstance(event, Provisional):
            drafted += 1
            if not final and drafted == 12:
                assert not begun.exact.is_here
                assert begun.resident_bytes < begun.exact.whole_bytes / 2
                assert store.packets.bytes_read.whole == before.whole
                is_open.set()
        elif isinstance(event, Final):
            assert is_open.is_set()
            final.append(event.token_id)
    assert drafted >= 12
    assert final == plain


def test_the_enhancement_is_not_read_before_it_is_wanted(engine, store):
    turns = taken()
    begun = begun_of(engine, SwapPolicy(turns=turns, streams_layers=False, keep=False))
    assert store.packets.bytes_read.base > 0
    assert store.packets.bytes_read.enhancement == 0
    assert begun.exact.resident_bytes == 0
    turns.leave("another")
    events = list(decode_alone(begun.decoding, store.model.row_forward()))
    assert [e.token_id for e in events if isinstance(e, Final)] == ask(
        engine, decode="full"
    ).token_ids
    assert store.packets.bytes_read.enhancement > 0
    assert begun.exact.resident_bytes < begun.exact.whole_bytes  # dropped again


def test_dropped_after_each_verification_it_comes_back(engine, store):
    policy = SwapPolicy(keep=False)
    begun = begun_of(engine, policy, compressor="base*noise:2")
    events = decode_alone(begun.decoding, store.model.row_forward())
    tokens = [e.token_id for e in events if isinstance(e, Final)]
    assert tokens == ask(engine, decode="full").token_ids
    assert begun.counts.rounds > 3
    enhancements = sum(
        store.packets.get_manifest("default", key).layer_bytes[1] for key in keys_of(store)
    )
    assert store.packets.bytes_read.enhancement >= begun.counts.rounds * enhancements


@pytest.mark.parametrize("failed", [0, 1, -1])
@pytest.mark.parametrize("streams", [True, False])
def test_a_swap_that_fails_falls_back(engine, store, monkeypatch, failed, streams):
    """Whatever packet cannot be completed is prefilled again; no token differs."""
    plain = ask(engine, decode="full").token_ids
    keys = keys_of(store)
    broken = failing(store.packets.read_enhancement, keys[failed])
    monkeypatch.setattr(store.packets, "read_enhancement", broken)
    engine.decoder.policy = SwapPolicy(streams_layers=streams)
    answer = ask(engine, decode="verified")
    assert answer.token_ids == plain
    assert [f.packet_key for f in answer.fallbacks] == [keys[failed]]


def test_a_layer_that_fails_amid_a_verification_decides_nothing(engine, store, monkeypatch):
    from kvpacket_store.api import swap_in

    plain = ask(engine, decode="full").token_ids
    place, failed = swap_in.place_layer, []

    def placing(model, cache, layer, *args, **kwargs):
        last = max(part.start for part in parts)
        if layer == 2 and kwargs["start"] == last and not failed:
            failed.append(layer)
            time.sleep(0.2)  # the verification has begun meanwhile
            raise CorruptRecordError("damaged in the middle")
        place(model, cache, layer, *args, **kwargs)

    begun = begun_of(engine, SwapPolicy(turns=taken()))
    parts = begun.assembled.swap_parts
    monkeypatch.setattr(swap_in, "place_layer", placing)
    answer = ask(engine, decode="verified")
    assert failed == [2]
    assert answer.token_ids == plain
    assert len(answer.fallbacks) == 1


def test_a_damaged_base_costs_time_alone(engine, store, monkeypatch):
    plain = ask(engine, decode="full").token_ids
    broken = failing(store.packets.read_base, *keys_of(store))
    monkeypatch.setattr(store.packets, "read_base", broken)
    answer = ask(engine, decode="verified")
    assert answer.token_ids == plain


@pytest.mark.parametrize("bad", [0, 2, -1])
@pytest.mark.parametrize("name", ["base", "base*snapkv:0.5"])
def test_one_base_that_cannot_be_read_is_made_again_beside_the_others(
    engine, store, monkeypatch, bad, name
):
    """Its exact K and V must reach the target too."""
    plain = ask(engine, decode="full").token_ids
    keys = keys_of(store)
    broken = failing(store.packets.read_base, keys[bad])
    monkeypatch.setattr(store.packets, "read_base", broken)
    for policy in (SwapPolicy(), SwapPolicy(keep=False)):
        engine.decoder.policy = policy
        assert ask(engine, decode="verified", compressor=name).token_ids == plain


def test_a_document_deleted_meanwhile_ends_no_answer(engine, store):
    plain = ask(engine, decode="full").token_ids
    turns = taken()
    begun = begun_of(engine, SwapPolicy(turns=turns))
    store.delete("elbe")
    turns.leave("another")
    events = decode_alone(begun.decoding, store.model.row_forward())
    assert [e.token_id for e in events if isinstance(e, Final)] == plain
    assert begun.fallbacks()


def test_cancelling_ends_a_request_that_waits(engine):
    cancel = threading.Event()
    shut = threading.Event()
    engine.decoder.policy = SwapPolicy(link=lambda _: shut.wait(30))
    stream = engine.stream(QUESTION, **LONG, decode="verified", cancel=cancel)
    threading.Timer(0.3, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(CancelledError):
        list(stream)
    assert time.monotonic() - started < 20  # the link is still shut
    shut.set()


class Late(Transfer):
    """As a device with a queue: slots are written once somebody waits for what was sent."""

    def __init__(self, model, kv_dtype):
        super().__init__(model, kv_dtype)
        self.queue, self.done, self.lock = [], 0, threading.Lock()

    def sent(self):
        return _Queued(self, len(self.queue))

    def run_until(self, count):
        with self.lock:
            for write in self.queue[self.done : count]:
                write()
            self.done = max(self.done, count)


class _Queued:
    def __init__(self, late, count):
        self.late, self.count = late, count

    def wait(self):
        self.late.run_until(self.count)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("failed", [None, 0, -1])
def test_what_a_device_has_not_yet_is_waited_for(engine, store, monkeypatch, keep, failed):
    """Whether layers stream, arrive together, come back, or are made again."""
    from kvpacket_store.api import swap_in

    plain = ask(engine, decode="full").token_ids
    place, late = swap_in.place_layer, []

    def queued(transfer, cache, layer, k, v, **where):
        k, v = k.copy(), v.copy()
        transfer.queue.append(lambda: place(transfer, cache, layer, k, v, **where))

    def transfer_to(*args):
        late.append(Late(*args))
        return late[-1]

    monkeypatch.setattr(swap_in, "place_layer", queued)
    monkeypatch.setattr(swap_in, "transfer_to", transfer_to)
    if failed is not None:
        broken = failing(store.packets.read_enhancement, keys_of(store)[failed])
        monkeypatch.setattr(store.packets, "read_enhancement", broken)
    for streams in (True, False):
        engine.decoder.policy = SwapPolicy(keep=keep, streams_layers=streams)
        answer = ask(engine, decode="verified", compressor="base*noise:1")
        assert answer.token_ids == plain
        assert late[-1].queue
        assert late[-1].done == len(late[-1].queue)
