"""`kvps serve` hands its limits to the server, and refuses what is none."""

import pytest
from kvpacket_store._server import read_keys
from typer.testing import CliRunner

from kvpacket_store.cli.main import app
from kvpacket_store.errors import UsageError


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


def test_so_do_times_keys_and_the_form_of_the_log(served):
    given = ("--request-timeout-s", 2.5, "--shutdown-s", 0, "--max-new-tokens", 9)
    given += ("--max-waiting", 5, "--api-keys", "keys", "--log-json", "--host", "0.0.0.0")
    result = serve("s.kvps", *given)
    assert result.exit_code == 0, result.output
    [(_, options)] = served
    limits = options["limits"]
    assert (limits.request_timeout_s, limits.shutdown_s) == (2.5, 0)
    assert (limits.max_new_tokens, limits.waiting_generations) == (9, 5)
    assert limits.waiting_generations_of_key == 3
    assert (options["api_keys"], options["log_json"]) == ("keys", True)
    assert options["host"] == "0.0.0.0"


def test_a_new_key_is_all_that_stdout_has(served, tmp_path):
    path = tmp_path / "keys"
    result = serve("--api-keys", path, "--new-key", "ann", "write", "default")
    assert result.exit_code == 0, result.output
    key = result.stdout.removesuffix("\n")
    assert read_keys(path).caller_of(key.encode()).name == "ann"
    assert key not in path.read_text()
    assert key not in result.stderr
    assert not served


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "which store"),
        (["--new-key", "ann", "read", "a"], "--api-keys"),
        (["--api-keys", "keys", "--new-key", "ann", "owner", "a"], "read, write or admin"),
    ],
)
def test_what_is_missing_is_told(served, tmp_path, monkeypatch, options, told):
    monkeypatch.chdir(tmp_path)
    result = serve(*options)
    assert isinstance(result.exception, UsageError)
    assert told in str(result.exception)
    assert not [*tmp_path.iterdir()]


def test_a_file_without_keys_serves_nothing(tmp_path):
    (tmp_path / "keys").write_text("ann read\n")
    result = serve(tmp_path / "s.kvps", "--api-keys", tmp_path / "keys")
    assert isinstance(result.exception, UsageError)
    assert "line 1" in str(result.exception)


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
        ["--max-waiting", "-1"],
        ["--max-new-tokens", "0"],
        ["--request-timeout-s", "0"],
        ["--request-timeout-s", "nan"],
        ["--shutdown-s", "-1"],
        ["--new-key", "ann"],
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
