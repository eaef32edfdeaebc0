"""Where rows look: all of it is accounted for, and looking changes nothing."""

import pytest
import torch

from kvpacket_store.cli.boundary_page import boundary_page
from kvpacket_store.models import attending
from kvpacket_store.quality.arm import ARMS
from kvpacket_store.quality.arms import Arms
from kvpacket_store.quality.boundary import KINDS, attention_mass

ANSWER = (70, 71, 72)


def test_a_row_looks_somewhere_and_where_nothing_is_it_does_not(any_model, adapter_of, prompt_of):
    prompt, arms = prompt_of(any_model), Arms(any_model, adapter_of(any_model))
    for name in ARMS:
        found = attention_mass(any_model, arms.start(name, prompt), ANSWER)
        assert len(found["mass"]) == any_model.layout.num_layers
        for shares in found["mass"]:
            assert sum(shares) == pytest.approx(1, abs=1e-4)
            soft = shares[KINDS.index("header")] + shares[KINDS.index("trailer")]
            if name != "packet":
                assert soft == 0
        if name == "packet":
            assert max(shares[KINDS.index("header")] for shares in found["mass"]) > 0
        assert all(entropy > 0 for entropy in found["entropy"])


def test_looking_changes_no_answer(model, adapter_of, prompt_of):
    """The rule that watches mixes values as the slots' own attention does, and as APE's does."""
    prompt, arms = prompt_of(model), Arms(model, adapter_of(model))
    for name in ("full", "packet", "ape"):
        logits = []
        original = type(model).forward

        def forward(self, inputs, cache, *, keep_logits=1, original=original, out=logits):
            found = original(self, inputs, cache, keep_logits=keep_logits)
            out.append(found)
            return found

        type(model).forward = forward
        try:
            attention_mass(model, arms.start(name, prompt), ANSWER)
        finally:
            type(model).forward = original
        ready = arms.start(name, prompt)()
        with torch.inference_mode(), attending(ready.rule):
            expected = model.forward((*ready.input_ids, *ANSWER), ready.cache)
        torch.testing.assert_close(logits[-1], expected, rtol=1e-3, atol=1e-3)


def test_mass_is_the_share_of_exponentials(model, adapter_of, prompt_of, monkeypatch):
    """With keys all alike every slot that a row sees gets the same."""
    prompt, arms = prompt_of(model), Arms(model, adapter_of(model))

    def start():
        ready = arms.start("packet", prompt)()
        ready.cache.k_slots.zero_()
        return ready

    for attention in model.attentions:
        monkeypatch.setattr(attention.k_proj, "forward", lambda x: x.new_zeros(*x.shape[:-1], 32))
    found = attention_mass(model, start, ())
    slots = {span.kind: 0 for span in start().spans}
    for span in start().spans:
        slots[span.kind] += span.end - span.start
    before, rows = sum(slots.values()) - slots["question"], slots["question"]
    seen = [1 / (before + i + 1) for i in range(rows)]
    wanted = slots["header"] * sum(seen) / rows
    assert found["mass"][0][KINDS.index("header")] == pytest.approx(wanted, rel=1e-4)


def test_the_page_shows_every_arm():
    arm = {"mass": [[0.5, 0, 0.1, 0.3, 0, 0.1]] * 3, "mean": [0.5, 0, 0.1, 0.3, 0, 0.1]}
    arms = {"full": {**arm, "distance": 0.0}, "<packet>": {**arm, "distance": 0.2}}
    shown = boundary_page(
        {"model": "tiny", "adapter": None, "items": 2, "kinds": list(KINDS), "arms": arms}
    )
    assert shown.count("<svg") == 2
    assert shown.count("<rect") == 2 * 3 * 6
    assert "<packet>" not in shown
    assert "http" not in shown
