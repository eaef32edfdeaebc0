"""Owners have turns; nobody waits behind all that another has sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_requests import ASKED, Heard, engine_of, run_out

from kvpacket_store.api.fair_queue import FairQueue
from kvpacket_store.api.request import new_request
from kvpacket_store.api.running import Running


def asked_by(owner):
    request = new_request("Who?", [])
    request.owner = owner
    return request


def taken(queue):
    order = []
    while (request := queue.take()) is not None:
        order.append(request)
    return order


def test_owners_have_turns_and_each_keeps_its_own_order():
    queue, requests = FairQueue(), [asked_by(owner) for owner in "aaaabbc"]
    for request in requests:
        queue.append(request)
    order = taken(queue)
    assert "".join(request.owner for request in order) == "abcabaa"
    for owner in "abc":
        own = [request for request in requests if request.owner == owner]
        assert [request for request in order if request.owner == owner] == own


def test_who_comes_later_waits_for_one_of_anothers_not_for_all():
    queue = FairQueue()
    for _ in range(4):
        queue.append(asked_by("a"))
    queue.take()
    late = asked_by("b")
    queue.append(late)
    assert [queue.take().owner, queue.take()] == ["a", late]


def test_what_is_put_back_is_next_again():
    queue = FairQueue()
    for owner in "aabb":
        queue.append(asked_by(owner))
    first = queue.take()
    queue.put_back(first)
    assert queue.take() is first
    last_of_b = [asked_by("c")]
    queue.put_back(last_of_b[0])
    assert queue.take() is last_of_b[0]
    assert "".join(request.owner for request in taken(queue)) == "bab"


@given(st.lists(st.sampled_from("abcd+-p"), max_size=60))
def test_nothing_is_lost_or_doubled_whatever_happens(events):
    """``a``–``d``: one comes; ``+``: one is taken; ``-``: one leaves; ``p``: one is put back."""
    queue, waiting = FairQueue(), []
    for event in events:
        if event in "abcd":
            waiting.append(asked_by(event))
            queue.append(waiting[-1])
        elif event == "-" and waiting:
            gone = waiting.pop(0)
            assert queue.remove(gone)
            assert not queue.remove(gone)
        elif (request := queue.take()) is not None:
            own = [one for one in waiting if one.owner == request.owner]
            assert request is own[0]
            if event == "p":
                queue.put_back(request)
            else:
                waiting.remove(request)
        assert len(queue) == len(waiting)
        assert all(
            queue.num_of(owner) == sum(r.owner == owner for r in waiting) for owner in "abcd"
        )
        assert set(queue.items()) == set(waiting)


@pytest.mark.parametrize("flood", [6])
def test_a_flood_of_one_owner_does_not_hold_up_another(new_store, flood):
    running = Running(engine_of(new_store), most=1, most_begun_a_step=1)
    ended = []

    def come(owner):
        request = new_request("Where?", **ASKED, max_new_tokens=2)
        request.owner = owner
        running.add(request, lambda given: given.answer and ended.append(owner))

    for owner in "a" * flood + "bb":
        come(owner)
    assert (running.num_unfinished_of("a"), running.num_unfinished_of("b")) == (flood, 2)
    run_out(running)
    assert "".join(ended) == "abab" + "a" * (flood - 2)
    assert (running.num_unfinished_of("a"), running.num_unfinished_of("b")) == (0, 0)


def test_everything_can_be_cancelled(new_store):
    running = Running(engine_of(new_store), most=1)
    heard = [Heard(running, **ASKED, max_new_tokens=50) for _ in range(3)]
    running.step()
    running.cancel_all()
    running.step()
    assert all(one.error is not None for one in heard)
    assert running.num_unfinished == running.num_running == 0
