"""Parsers of foreign bytes: a value, or an error by name; nothing else, and nothing large."""

import base64
import importlib.util
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.fuzz

HERE = Path(__file__).parent
MOST_BYTES = 32 << 20


def load_targets():
    spec = importlib.util.spec_from_file_location("targets", HERE / "targets.py")
    module = sys.modules["targets"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TARGETS


TARGETS = load_targets()
NUMBERS = [b"\x00" * 8, b"\xff" * 8, b"\x7f", b"\x00\x00\x00\x40", b"\x01" + b"\x00" * 7, b"\x80"]


@st.composite
def mutations(draw, seeds, words):
    """A true input with a few changes."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        until = at + draw(st.sampled_from([0, 1, 2, 4, 8, 40]))
        kind = draw(st.sampled_from(["flip", "put", "cut", "end", "twice"]))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "put":
            data[at:until] = draw(st.sampled_from([*words, *NUMBERS]))
        elif kind == "cut":
            del data[at:until]
        elif kind == "end":
            del data[at:]
        else:
            data[at:at] = data[at:until]
    return bytes(data)


ODD = [None, True, -1, 0, 1 << 70, 0.5, 1e308, "", "x", "\ud800", [], [[]], {}, {"a": None}]


def json_changes(seed):
    """Every way to put one odd value into the place of one that a true input has."""
    for start in (0, 1):
        try:
            whole = json.loads(seed[start:])
        except ValueError:
            continue
        places = list(places_of(whole)) if isinstance(whole, dict) else []
        for holder, key in places:
            true = holder[key]
            for holder[key] in ODD:
                yield seed[:start] + json.dumps(whole).encode()
            holder[key] = true
        return


def places_of(value):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, dict | list):
            yield from places_of(item)


@pytest.mark.parametrize("name", TARGETS)
def test_odd_values_in_json(name):
    for seed in TARGETS[name].seeds():
        for data in json_changes(seed):
            TARGETS[name].run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_true_input_is_read(name):
    for seed in TARGETS[name].seeds():
        if name != "manifest":
            TARGETS[name].parse(seed)
        TARGETS[name].run(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name):
    target = TARGETS[name]
    seeds = target.seeds()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(mutations(seeds, target.words), mutations(seeds, target.words), st.binary()))
    @example(b"")
    def check(data):
        tracemalloc.start()
        try:
            target.run(data)
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
        finally:
            tracemalloc.stop()

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_bytes_that_coverage_finds(name, tmp_path):
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    seconds = os.environ.get("KVPS_FUZZ_SECONDS", "60")
    child = subprocess.run(
        [sys.executable, "-W", "error", HERE / "run_atheris.py", name, seconds, tmp_path],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found = {path.name: base64.b64encode(path.read_bytes()) for path in tmp_path.glob("found-*")}
    assert child.returncode == 0, (found, child.stdout[-3000:], child.stderr[-3000:])
