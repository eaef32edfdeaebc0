"""``docs/promises.md`` names tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = sorted(
    set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/promises.md").read_text()))
)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_is_there(path, name):
    text = (ROOT / path).read_text()
    any_test = r"^ *(async )?def test_|^(class )?Test\w+( =|\()"
    wanted = rf"^ *(async )?def {name}\(" if name else any_test
    assert re.search(wanted, text, re.MULTILINE)
