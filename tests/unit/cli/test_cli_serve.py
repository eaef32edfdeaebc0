"""`kvps serve` hands its limits to the server, and refuses what is none."""

import pytest
from typer.testing import CliRunner

from kvpacket_store.cli.main import app


def serve(*options):
    return CliRunner().invoke(app, ["serve", *map(str, options)])


@pytest.fixture
def served(monkeypatch):
    """What the server was called with."""
    calls = []
    monkeypatch.setattr(
        "kvpacket_store._server.serve", lambda path, **options: calls.append((path, options))
    )
    return calls


def test_limits_reach_the_server(served):
    given = ("--memory-bytes", 5_000, "--audit", 0.25, "--max-running", 3, "--require-verified")
    result = serve("s.kvps", *given)
    assert result.exit_code == 0, result.output
    [(path, options)] = served
    assert (path, options["audit"], options["port"]) == ("s.kvps", 0.25, 8000)
    assert options["require_verified"]
    limits = options["limits"]
    assert (limits.running_generations, limits.running_kv_bytes) == (3, 5_000)


def test_without_them_memory_is_not_bounded_and_nothing_is_audited(served):
    assert serve("s.kvps").exit_code == 0
    [(_, options)] = served
    assert (options["audit"], options["limits"].running_kv_bytes) == (0.0, None)


@pytest.mark.parametrize(
    "options",
    [
        ["--memory-bytes", "-1"],
        ["--memory-bytes", "much"],
        ["--memory-bytes", "1.5"],
        ["--audit", "-0.1"],
        ["--audit", "1.1"],
        ["--audit", "all"],
        ["--audit", "nan"],
        ["--max-running", "0"],
        ["--max-running", "some"],
    ],
)
def test_what_is_no_limit_is_a_usage_error(served, options):
    assert serve("s.kvps", *options).exit_code == 2
    assert not served


def test_the_help_says_what_each_costs():
    said = " ".join(serve("--help").output.replace("│", " ").split())
    for cost in (
        "read their exact K and V anew",
        "Each costs that prefill",
        "steps a little longer",
    ):
        assert cost in said
