"""``kvps ask`` drafts on what it is told to, says how it went, and shows drafts where asked to."""

import json

import pytest
from typer.testing import CliRunner

from kvpacket_store.cli.main import app
from kvpacket_store.errors import UsageError

QUESTION = "Where does the river end?"
DRAFTED = ("--decode", "verified", "--compressor", "int8", "--draft-tokens", "4")


def ask(folder, *options):
    arguments = ["ask", str(folder), QUESTION, "--docs", "a", "--max-new-tokens", "12"]
    return CliRunner().invoke(app, [*arguments, *options])


def test_a_draft_by_name_gives_the_same_answer_and_says_so(folder):
    plain = json.loads(ask(folder, "--decode", "full", "--json").stdout)
    drafted = json.loads(ask(folder, *DRAFTED, "--json").stdout)
    assert drafted["token_ids"] == plain["token_ids"]
    assert plain["decode"]["mode"] == "full"
    assert drafted["decode"]["mode"] == "verified"
    assert 8 <= drafted["decode"]["draft_bits_per_scalar"] < 16
    usage = drafted["usage"]
    tried = usage["accepted_draft_tokens"] + usage["rejected_draft_tokens"]
    assert 0 < tried <= 4 * drafted["decode"]["rounds"]


def test_people_are_told_how_it_was_decoded(folder):
    answer = json.loads(ask(folder, *DRAFTED, "--json").stdout)
    usage, decode = answer["usage"], answer["decode"]
    tried = usage["accepted_draft_tokens"] + usage["rejected_draft_tokens"]
    told = ask(folder, *DRAFTED).stderr
    assert f"verified in {decode['rounds']} rounds" in told
    assert f"{usage['accepted_draft_tokens']} of {tried} drafted tokens accepted" in told
    assert f"drafts on {decode['draft_bits_per_scalar']:.2f} bits a scalar" in told
    assert "exact K and V pinned" in told
    assert "verified" not in ask(folder, "--decode", "full").stderr


def test_provisional_text_is_on_stderr_and_the_answer_alone_on_stdout(folder):
    without = ask(folder, *DRAFTED)
    shown = ask(folder, *DRAFTED, "--provisional")
    assert shown.stdout == without.stdout
    assert len(shown.stderr) > len(without.stderr)


def test_a_smaller_model_drafts_where_one_is_named(folder, monkeypatch):
    """Here the store's own model stands in for it."""
    from kvpacket_store.models import load_model  # the folder's stand-in

    named = []
    monkeypatch.setattr(
        "kvpacket_store.api.draft_model.load_model",
        lambda name: named.append(name) or load_model(name),
    )
    plain = json.loads(ask(folder, "--decode", "full", "--json").stdout)
    drafted = json.loads(
        ask(folder, "--decode", "verified", "--draft-model", "tiny", "--json").stdout
    )
    assert named == ["tiny"]
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["decode"]["mode"] == "verified"


@pytest.mark.parametrize(
    "flags",
    [
        ("--decode", "verified", "--compressor", "nonsense"),
        ("--compressor", "snapkv:25"),
        ("--compressor", "lookup+model"),
        ("--draft-tokens", "0"),
        ("--draft-tokens", "65"),
        ("--provisional", "--json"),
    ],
)
def test_what_cannot_be_drafted_is_a_usage_error(folder, flags):
    assert isinstance(ask(folder, *flags).exception, UsageError)  # exit status 2
