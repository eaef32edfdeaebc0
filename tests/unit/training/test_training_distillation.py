"""Teacher and student are one model: what differs is what packets see."""

import dataclasses
import itertools

import pytest
import torch

from kvpacket_store.adapters import Adapter
from kvpacket_store.assemble import place
from kvpacket_store.errors import AdapterError
from kvpacket_store.models import frozen
from kvpacket_store.prefill import Prefiller
from kvpacket_store.training.loss import cross_entropy, top_k_kl
from kvpacket_store.training.samples import Sample
from kvpacket_store.training.student import SoftTokenStudent, Weights
from kvpacket_store.training.teacher import Answer, Teacher

PREAMBLE = tuple(range(60, 80))
SEGMENTS = (tuple(range(5, 45)), tuple(range(100, 170)), tuple(range(30, 50)))
QUESTIONS = (tuple(range(200, 215)), tuple(range(70, 78)))
SAMPLE = Sample(PREAMBLE, SEGMENTS, QUESTIONS, ("", ""))
CLOSE = {"atol": 2e-3, "rtol": 2e-3}


def untrained(model, num_tokens=3):
    return Adapter.untrained(model.embedding.weight.detach().numpy(), num_tokens=num_tokens)


def answers(model, sample=SAMPLE, answer_tokens=6, top_k=300):
    return Teacher(model, answer_tokens=answer_tokens, top_k=top_k).answers(sample)


def logits(model, sample, given, adapter=None, **options):
    student = SoftTokenStudent(model, adapter or Adapter.none(64), **options)
    with torch.no_grad():
        return student.logits(sample, given)


def test_the_teacher_is_greedy_over_everything_before(any_model):
    for question, answer in zip(QUESTIONS, answers(any_model), strict=True):
        ids = (*PREAMBLE, *sum(SEGMENTS, ()), *question, *answer.token_ids[:-1])
        cache = any_model.new_cache(len(ids))
        count = len(answer.token_ids)
        expected = any_model.forward(ids, cache, keep_logits=count).log_softmax(-1)
        assert torch.allclose(answer.top_logp, expected.gather(1, answer.top_ids), **CLOSE)
        assert answer.token_ids == tuple(answer.top_ids[:, 0].tolist())
        assert count == 6 or answer.token_ids[-1] in any_model.eos_ids


def test_one_packet_without_preamble_and_soft_tokens_is_the_teacher(any_model):
    """Then nothing is hidden from anybody."""
    sample = dataclasses.replace(SAMPLE, preamble=(), segments=SEGMENTS[:1])
    given = answers(any_model, sample)
    found = logits(any_model, sample, given).log_softmax(-1)
    ids = torch.cat([answer.top_ids for answer in given])
    assert torch.allclose(found.gather(1, ids), torch.cat([a.top_logp for a in given]), **CLOSE)


@pytest.mark.parametrize("header_stays", [True, False])
def test_the_student_sees_what_packets_give(any_model, header_stays):
    """Rows of the packed forward are those behind placed packets, as the engine has them."""
    adapter = dataclasses.replace(untrained(any_model), header_stays=header_stays)
    given = answers(any_model)
    prefiller = Prefiller(any_model, adapter)
    spans = [prefiller.preamble(PREAMBLE)]
    for segment in SEGMENTS:
        spans += [prefiller.header(), prefiller.segment(segment)]
    expected = []
    for question, answer in zip(QUESTIONS, given, strict=True):
        cache, start = any_model.new_cache(400), 0
        for span in spans:
            place(any_model, cache, span.k, span.v, kv_dtype=prefiller.kv_dtype, start=start)
            start += span.k.shape[2]
        cache.set_length(start)
        count = len(answer.token_ids)
        rows = (*question, *answer.token_ids[:-1])
        expected.append(any_model.forward(rows, cache, keep_logits=count))
    found = logits(any_model, SAMPLE, given, adapter)
    assert torch.allclose(found, torch.cat(expected), atol=5e-3, rtol=5e-3)


def test_a_question_is_answered_as_if_it_were_alone(model):
    adapter, given = untrained(model), answers(model)
    together = logits(model, SAMPLE, given, adapter)
    for at, part in enumerate(together.split([len(answer.token_ids) for answer in given])):
        alone = dataclasses.replace(SAMPLE, questions=(QUESTIONS[at],), kinds=("",))
        assert torch.allclose(logits(model, alone, [given[at]], adapter), part, **CLOSE)


def test_packets_do_not_see_each_other(model):
    """Another first packet changes nothing but what is read of it: another order, other logits."""
    given = answers(model)
    swapped = dataclasses.replace(SAMPLE, segments=SEGMENTS[::-1])
    full = answers(model, swapped)
    assert not torch.allclose(logits(model, SAMPLE, given), logits(model, swapped, given), **CLOSE)
    assert full[0].top_logp.shape == given[0].top_logp.shape


def test_only_soft_tokens_get_gradients_and_recomputing_gives_the_same(any_model):
    given, gradients = answers(any_model), []
    for limit in (1 << 40, 0):
        student = SoftTokenStudent(any_model, untrained(any_model), max_kept_bytes=limit)
        with frozen(any_model):
            student.loss(SAMPLE, given, Weights(1.0, 0.5)).backward()
        gradients.append(student.parameter.grad)
        assert all(p.grad is None for p in any_model.hf.parameters())
        assert all(p.requires_grad for p in any_model.hf.parameters())
    assert gradients[0].shape == (6, 64)
    assert float(gradients[0].abs().sum(1).min()) > 0  # each of them, header and trailer
    assert torch.allclose(*gradients, atol=1e-5, rtol=1e-3)
    assert not any(module.training for module in any_model.hf.modules())


@pytest.mark.parametrize(("limit", "runs"), [(1 << 40, 1), (0, 2)])
def test_layers_run_again_only_where_memory_asks_for_it(model, limit, runs):
    given, seen = answers(model), []
    student = SoftTokenStudent(model, untrained(model), max_kept_bytes=limit)
    handle = model.attentions[0].register_forward_hook(lambda *_: seen.append(1))
    try:
        with frozen(model):
            student.loss(SAMPLE, given, Weights(1.0, 0.0)).backward()
    finally:
        handle.remove()
    assert len(seen) == runs


def test_logits_are_made_of_answer_rows_alone(model):
    """A table of all rows would be as large as everything else together."""
    seen = []
    head = model.hf.get_output_embeddings()
    handle = head.register_forward_hook(lambda _m, inputs, _out: seen.append(inputs[0].shape[-2]))
    given = answers(model)
    seen.clear()
    try:
        logits(model, SAMPLE, given, untrained(model))
    finally:
        handle.remove()
    assert seen == [sum(len(answer.token_ids) for answer in given)]


def test_an_adapter_of_another_width_is_refused(model):
    with pytest.raises(AdapterError, match="hidden size 32"):
        SoftTokenStudent(model, Adapter.none(32))


def of_logits(table, top_k):
    best = torch.log_softmax(table, -1).topk(top_k)
    return Answer(tuple(table.argmax(-1).tolist()), best.indices, best.values)


def test_kl_over_kept_tokens_is_a_lower_bound_that_is_exact_with_all():
    torch.manual_seed(0)
    teacher, student = 3 * torch.randn(2, 5, 40)
    p, q = teacher.log_softmax(-1), student.log_softmax(-1)
    exact = (p.exp() * (p - q)).sum(-1)
    bounds = [top_k_kl(of_logits(teacher, k), student) for k in (1, 4, 16, 40)]
    assert torch.allclose(bounds[-1], exact, atol=1e-5)
    for less, more in itertools.pairwise(bounds):
        assert bool((less <= more + 1e-5).all())
    assert bool((bounds[0] > 0).all())
    assert torch.allclose(top_k_kl(of_logits(teacher, 4), teacher), torch.zeros(5), atol=1e-6)


def test_cross_entropy_is_on_the_teachers_tokens():
    table = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    found = cross_entropy(of_logits(table, 2), table)
    assert torch.allclose(found, -table.log_softmax(-1).max(-1).values)
