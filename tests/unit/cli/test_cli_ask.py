"""``kvps ask`` hands its options to the engine under their names."""

import json

import pytest
from typer.testing import CliRunner

import kvpacket_store as kv
from kvpacket_store.cli.main import app
from kvpacket_store.errors import UsageError

QUESTION = "Where does the river end?"


def ask(folder, *options):
    arguments = ["ask", str(folder), QUESTION, "--docs", "a", "--max-new-tokens", "12", "--json"]
    return CliRunner().invoke(app, [*arguments, *options])


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (("--repetition-penalty", "1.8"), {"repetition_penalty": 1.8}),
        (("--sampling-top-k", "3"), {"sampling_top_k": 3, "temperature": 1.5, "seed": 7}),
        (("--top-p", "0.4"), {"top_p": 0.4, "temperature": 1.5, "seed": 7}),
    ],
)
def test_sampling_options_are_the_engines(folder, model, word_embedder, flags, options):
    sampled = ("--temperature", "1.5", "--seed", "7") if "seed" in options else ()
    result = ask(folder, *flags, *sampled)
    assert result.exit_code == 0, result.output
    with kv.Store.open(folder, model=model, embedder=word_embedder) as store:
        engine = kv.Engine(store)
        expected = engine.generate(QUESTION, ["a"], max_new_tokens=12, **options)
    assert json.loads(result.stdout)["token_ids"] == expected.token_ids


@pytest.mark.parametrize("flag", ["--sampling-top-k=-1", "--top-p=0", "--repetition-penalty=0"])
def test_what_cannot_be_sampled_is_a_usage_error(folder, flag):
    assert isinstance(ask(folder, flag).exception, UsageError)  # exit status 2
