"""What this machine can promise is measured once a model, and `kvps doctor` says it."""

import pytest

from kvpacket_store.api import exactness
from kvpacket_store.api.exactness import Exactness, check_exactness, exactness_of, measure_exactness


def test_rows_of_the_row_kernels_are_alike(tiny_model):
    found = measure_exactness(tiny_model("llama"))
    assert found.rows_alike
    assert found.blocks_alike
    assert found.largest_difference == found.guard_logits == 0


def test_what_is_published_has_the_guard():
    fields = Exactness(False, True, 0.25).to_dict()
    assert fields == {
        "rows_alike": False,
        "blocks_alike": True,
        "largest_difference": 0.25,
        "guard_logits": 1.0,
    }


def test_it_is_measured_once_a_model(tiny_model, monkeypatch):
    model, found = tiny_model("qwen3"), exactness_of(tiny_model("qwen3"))
    monkeypatch.setattr(exactness, "measure_exactness", lambda model: pytest.fail("again"))
    assert exactness_of(model) is found


@pytest.fixture
def told(tiny_model, monkeypatch):
    """A function: what is found, whether the model's rows should be alike → the check."""

    def tell(found, kind):
        monkeypatch.setattr(exactness, "exactness_of", lambda model: found)
        return check_exactness(tiny_model(kind))

    return tell


def test_alike_rows_and_blocks_are_well(told):
    rows = told(Exactness(True, True, 0.0), "llama")
    assert (rows.ok, rows.level, rows.remedy) == (True, "info", None)
    assert "bit and guarded are both exact" in rows.detail
    blocks = told(Exactness(False, True, 0.05), "gemma3")
    assert (blocks.ok, blocks.level) == (True, "info")
    assert "within 0.4 logits of a tie" in blocks.detail


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Exactness(False, False, 0.05), "gemma3"),
        (Exactness(False, True, 0.05), "llama"),  # its row kernels do not keep their promise
    ],
)
def test_what_holds_nothing_is_a_warning_with_a_remedy(told, found, kind):
    check = told(found, kind)
    assert (check.ok, check.level, check.exit_code) == (False, "warning", 0)
    assert "--decode full" in check.remedy


def test_every_family_is_exact_in_one_way_or_the_other(any_model):
    check = check_exactness(any_model)
    assert check.ok, check
