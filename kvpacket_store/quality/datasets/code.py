"""Functions of the standard library, asked for by name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.quality.datasets.dataset import HELD_OUT, DataOptions, DataSet, among
from kvpacket_store.types import Document

__all__ = ["code"]

_PACKETS = 5
_USUAL_TOKENS = 320
_CHARS_A_TOKEN = 3.0


def code(options: DataOptions) -> DataSet:
    """Return questions for the parameters of a function, over the sources of several."""
    most_chars = int(_CHARS_A_TOKEN * (options.document_tokens or _USUAL_TOKENS))
    functions = [
        (name, answer, doc)
        for name, answer, doc in _functions()
        if most_chars // 4 <= len(doc.text) <= most_chars
    ]
    sources = [document for _, _, document in functions]
    items = []
    for index, (name, answer, document) in enumerate(options.drawn("code", functions)):
        chance = options.random("code", index)
        documents = among([document], sources, options.packets or _PACKETS, chance)
        question = f"Which parameters does the function {name} take?"
        items.append(QuestionItem(question, [answer], documents))
    source = "the standard library of the Python that runs this"
    return DataSet("code", HELD_OUT, source, "PSF-2.0", items)


def _modules() -> list[ModuleType]:
    import argparse
    import calendar
    import difflib
    import fnmatch
    import heapq
    import shutil
    import statistics
    import tarfile
    import textwrap
    import zipfile

    return [
        argparse,
        calendar,
        difflib,
        fnmatch,
        heapq,
        shutil,
        statistics,
        tarfile,
        textwrap,
        zipfile,
    ]


@cache
def _functions() -> tuple[tuple[str, str, Document], ...]:
    """Return name, parameters and source of functions whose name occurs once."""
    found: dict[str, list[tuple[str, str, Document]]] = {}
    for module in _modules():
        for one in _functions_of(module):
            found.setdefault(one[0], []).append(one)
    return tuple(ones[0] for ones in found.values() if len(ones) == 1)


def _functions_of(module: ModuleType) -> Iterator[tuple[str, str, Document]]:
    path = Path(inspect.getsourcefile(module) or "")
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        names = [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]
        source = ast.get_source_segment(text, node)
        if names and source:
            metadata = {"media_type": "text/x-python"}
            document = Document(f"{module.__name__}.{node.name}", source, metadata)
            yield node.name, ", ".join(names), document
