"""A wheel has every room, and what is no code."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_is_in_the_wheel():
    folders = {init.parent for init in (ROOT / "kvpacket_store").rglob("__init__.py")}
    named = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(SETUPTOOLS["packages"]) == named | {"kvpacket_store._server"}


def test_every_file_that_is_no_code_is_in_the_wheel():
    package = ROOT / "kvpacket_store"
    patterns = SETUPTOOLS["package-data"]["kvpacket_store"]
    carried = {file for pattern in patterns for file in package.glob(pattern)}
    there = {
        file
        for file in package.rglob("*")
        if file.is_file() and file.suffix not in {".py", ".pyc", ".nbi", ".nbc"}
    }
    assert there == carried


def test_the_page_of_the_server_is_in_the_wheel():
    patterns = SETUPTOOLS["package-data"]["kvpacket_store._server"]
    carried = {file for pattern in patterns for file in (ROOT / "server").glob(pattern)}
    assert {file for file in (ROOT / "server" / "ui").rglob("*") if file.is_file()} == carried
