"""Questions over Wikipedia paragraphs: XQuAD's held-out articles, and Natural Questions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kvpacket_store.benchmarks.paragraphs import QuestionItem, example_questions
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.quality.datasets.dataset import (
    HELD_OUT,
    IN_DOMAIN,
    DataOptions,
    DataSet,
    among,
    find_file,
)
from kvpacket_store.types import Document

__all__ = ["natural_questions", "xquad"]

_XQUAD_FILE = "xquad.en.json"
_FIRST_HELD_OUT = 24
"""Adapters train on the articles before it."""
_NQ_FILES = ("nq-open-oracle.jsonl.gz", "nq-open-oracle.jsonl")
_PACKETS = 5


def xquad(options: DataOptions) -> DataSet:
    """Return questions over the paragraphs of their article; further ones come from others.

    Without the file the examples serve: the last twenty articles of the same set.
    """
    licence = "CC BY-SA 4.0 (SQuAD v1.1)"
    try:
        path = find_file(options, [_XQUAD_FILE])
    except NotFoundError:
        items, source = _one_an_article(example_questions()), "examples (XQuAD, articles 28 to 47)"
    else:
        items = _one_an_article(_read_xquad(path))
        source = f"{_XQUAD_FILE} (google-deepmind/xquad), articles 24 to 47"
    everything = list({d.id: d for item in items for d in item.documents}.values())
    chosen = [_resized(item, everything, options, i) for i, item in enumerate(items)]
    return DataSet("xquad", HELD_OUT, source, licence, chosen[: options.limit])


def _one_an_article(items: Iterable[QuestionItem]) -> list[QuestionItem]:
    """Go through the articles in turn, so that a few items are of many articles."""
    by_article: dict[str, list[QuestionItem]] = {}
    for item in items:
        by_article.setdefault(item.documents[0].id.rpartition("-")[0], []).append(item)
    turns = zip_longest(*by_article.values())
    return [item for turn in turns for item in turn if item is not None]


def _resized(
    item: QuestionItem, others: list[Document], options: DataOptions, index: int
) -> QuestionItem:
    """Take paragraphs away that hold no answer, or add some of other articles."""
    count = options.packets
    if count is None or count == len(item.documents):
        return item
    chance = options.random("xquad", index)
    gold = [d for d in item.documents if any(a in d.text for a in item.answers)][:1]
    own = [d for d in item.documents if d not in gold]
    keep = [*gold, *chance.sample(own, min(len(own), max(0, count - len(gold))))]
    return QuestionItem(item.question, item.answers, among(keep, others, count, chance))


def _read_xquad(path: Path) -> list[QuestionItem]:
    items = []
    try:
        articles = json.loads(path.read_text(encoding="utf-8"))["data"][_FIRST_HELD_OUT:]
        for number, article in enumerate(articles):
            title = article["title"].replace("_", " ")
            paragraphs = article["paragraphs"]
            documents = [
                Document(f"{number}-{i}", paragraph["context"], {"title": title})
                for i, paragraph in enumerate(paragraphs)
            ]
            # a question of each paragraph in turn
            for turn in zip_longest(*(paragraph["qas"] for paragraph in paragraphs)):
                for qa in turn:
                    if qa is not None:
                        answers = sorted({answer["text"] for answer in qa["answers"]})
                        items.append(QuestionItem(qa["question"], answers, documents))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is not of SQuAD's form: {error!r}") from error
    return items


def natural_questions(options: DataOptions) -> DataSet:
    """Return questions over their gold passage and gold passages of others.

    Source: Liu et al. 2023 (Lost in the Middle), the oracle file. Adapters are trained on it.
    """
    path = find_file(options, _NQ_FILES)
    rows = _rows(path)
    try:
        passages = [
            Document(str(i), row["ctxs"][0]["text"], {"title": row["ctxs"][0]["title"]})
            for i, row in enumerate(rows)
        ]
        items = []
        for index, at in enumerate(options.drawn("nq", range(len(rows)))):
            chance = options.random("nq", index)
            documents = among([passages[at]], passages, options.packets or _PACKETS, chance)
            items.append(QuestionItem(rows[at]["question"], list(rows[at]["answers"]), documents))
    except (LookupError, TypeError) as error:
        raise UsageError(f"{path} is not of the oracle file's form: {error!r}") from error
    source = f"{path.name} (nelson-liu/lost-in-the-middle)"
    return DataSet("nq", IN_DOMAIN, source, "CC BY-SA 3.0 (Natural Questions)", items)


def _rows(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        return [json.loads(line) for line in text.splitlines()]
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} cannot be read as JSON lines: {error}") from error
