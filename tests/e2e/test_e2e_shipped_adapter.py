"""The adapter that ships for SmolLM2: it is chosen, it is what it says, and it was measured."""

import json
from importlib import resources

import pytest

from kvpacket_store.adapters import adapter_metadata, shipped_adapter, shipped_report
from kvpacket_store.api import Store
from kvpacket_store.api.quality_gate import check_verified

pytestmark = pytest.mark.e2e


def test_new_stores_have_it_and_it_is_verified(smollm2_store):
    model = smollm2_store.model
    adapter = shipped_adapter(model.fingerprint.to_dict())
    assert shipped_adapter({**model.fingerprint.to_dict(), "chat_template": "other"}) is None
    assert smollm2_store.adapter.digest == adapter.digest != "none"
    assert smollm2_store.meta.adapter == adapter.name == "smollm2"
    assert adapter.header_slots == adapter.trailer_tokens == 0
    assert check_verified(smollm2_store, required=True)


def test_its_file_says_how_it_was_made_and_its_report_what_it_is_worth(smollm2_store):
    folder = resources.files("kvpacket_store.adapters") / "shipped"
    with resources.as_file(folder / "smollm2.safetensors") as path:
        about = adapter_metadata(path)
    assert about["digest"] == smollm2_store.adapter.digest
    for of in ("header", "correction"):
        assert [source["name"] for source in json.loads(about[f"{of}_sources"])]
    assert float(about["header_kl_after"]) < float(about["header_kl_naive"])
    kl = json.loads(about["correction_kl"])
    assert kl[about["correction_strength"]] == min(kl.values()) < kl["0.0"]
    report = shipped_report(about["digest"])
    assert report["sane"]
    assert {block["domain"] for block in report["datasets"]} == {"held-out", "in-domain"}
    assert report["arms"]["packet"]["gold_nll"] < report["arms"]["epic"]["gold_nll"]
    assert report["gap_closed"]["kl"]["interval"][0] > 0


def test_others_can_be_asked_for(smollm2_store, tmp_path):
    for name in ("none", "preamble"):
        with Store.create(tmp_path / name, model=smollm2_store.model, adapter=name) as store:
            assert (store.meta.adapter or "none") == name
            assert store.adapter.header_slots == 0
            assert (store.adapter.header_tokens > 0) is (name == "preamble")
