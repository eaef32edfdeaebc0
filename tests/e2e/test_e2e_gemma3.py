"""Gemma3-270m, from its packages: two RoPE bases, a sliding window, no chat template."""

import pytest

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.models import load_model

pytestmark = pytest.mark.e2e


def test_the_whole_journey_on_a_second_architecture(tmp_path):
    model = load_model("gemma3-270m")
    assert model.layout.shape(1) == (18, 1, 1, 256)
    assert {layer.sliding_window_tokens for layer in model.layout.layers} == {None, 512}
    documents = example_documents()[:5]
    with Store.create(tmp_path / "gemma.kvps", model=model) as store:
        report = store.ingest(documents)
        assert report.packets.added == 5
        ids = [d.id for d in documents]
        engine = Engine(store)
        question = "Who wrote the political poem The Mask of Anarchy?"
        packets = engine.generate(question, documents=ids, max_new_tokens=12)
        whole = engine.generate(question, documents=ids, max_new_tokens=12, consistency="recompute")
        assert "Shelley" in whole.text
        assert packets.usage.cached_tokens == sum(d.tokens for d in store.list().documents)
        # the prompt is longer than the window: local layers see only its end
        assert packets.usage.prompt_tokens > 512
        packet = store.packet(ids[0])
        body = store.prefiller.segment(packet.token_ids)
        assert (packet.k == body.k).all()
        again = engine.generate(question, documents=ids, max_new_tokens=12)
        assert again.token_ids == packets.token_ids
