"""A novel: how a sentence of one of its passages goes on."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from kvpacket_store.benchmarks.paragraphs import QuestionItem
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.quality.datasets.dataset import (
    HELD_OUT,
    DataOptions,
    DataSet,
    among,
    find_file,
)
from kvpacket_store.types import Document

__all__ = ["novel"]

_FILES = ("novel.txt", "novel.txt.gz", "alice.txt.gz", "alice.txt")
_CHECKOUT = Path(__file__).resolve().parents[3] / "tests" / "data"
_PACKETS = 5
_USUAL_TOKENS = 320
_WORDS_A_TOKEN = 0.75
_SENTENCE = re.compile(r"[A-Z][^.!?;:]{60,240}[.!?;:]")
_SHOWN_WORDS, _ASKED_WORDS = 8, 6


def novel(options: DataOptions) -> DataSet:
    """Return beginnings of sentences, over passages of the same chapters."""
    path = _file(options)
    passages = _passages(path, options.document_tokens or _USUAL_TOKENS)
    candidates = [(p, s) for p in passages for s in _sentences(p.text)]
    if len(passages) < 2 or not candidates:
        raise UsageError(f"{path} has no sentences of a novel; put another text there")
    items = []
    for index, (passage, words) in enumerate(options.drawn("novel", candidates)):
        chance = options.random("novel", index)
        start, rest = words[:_SHOWN_WORDS], words[_SHOWN_WORDS : _SHOWN_WORDS + _ASKED_WORDS]
        question = f'How does this sentence go on: "{" ".join(start)} ..."'
        documents = among([passage], passages, options.packets or _PACKETS, chance)
        items.append(QuestionItem(question, [" ".join(rest)], documents))
    return DataSet("novel", HELD_OUT, f"passages of {path.name}", "public domain (Alice)", items)


def _file(options: DataOptions) -> Path:
    """Return the novel: from the data folder, else the one beside the tests of a checkout."""
    shipped = _CHECKOUT / "alice.txt.gz"
    try:
        return find_file(options, _FILES)
    except NotFoundError:
        if not shipped.is_file():
            raise
        return shipped


def _passages(path: Path, tokens: int) -> list[Document]:
    """Cut at paragraphs into passages of about so many tokens."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace")
    words, found, passage = int(tokens * _WORDS_A_TOKEN), [], []
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        passage.append(" ".join(paragraph.split()))
        if sum(len(part.split()) for part in passage) >= words:
            found.append("\n\n".join(part for part in passage if part))
            passage = []
    return [Document(f"passage-{index}", part) for index, part in enumerate(found)]


def _sentences(text: str) -> list[list[str]]:
    found = [sentence.split() for sentence in _SENTENCE.findall(text)]
    return [words for words in found if len(words) >= _SHOWN_WORDS + _ASKED_WORDS]
