"""The text that benchmarks run on: the example corpus, or a folder of the reader's."""

from __future__ import annotations

import json
from pathlib import Path

from kvpacket_store.errors import UsageError
from kvpacket_store.text import QuestionItem, read_documents, read_questions
from kvpacket_store.types import Document

__all__ = ["QuestionItem", "example_documents", "example_questions", "read_questions"]

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example_documents(folder: Path | None = None) -> list[Document]:
    """Return the documents of a folder (default: the example corpus).

    Raises
    ------
    UsageError
        The examples are not beside the package (a wheel leaves them out); name a folder.
    """
    folder = folder or _EXAMPLES / "corpus"
    if not folder.is_dir():
        raise UsageError(f"no corpus at {folder}; pass --data FOLDER")
    return [d for d in read_documents([str(folder)]) if isinstance(d, Document)]


def example_questions() -> list[QuestionItem]:
    """Return the example questions, each with the paragraphs of its article."""
    by_article: dict[str, list[Document]] = {}
    for document in example_documents():
        by_article.setdefault(_article(document.id), []).append(document)
    items = []
    for line in (_EXAMPLES / "questions.jsonl").read_text().splitlines():
        row = json.loads(line)
        documents = by_article[_article(row["document"])]
        items.append(QuestionItem(row["question"], row["answers"], documents))
    return items


def _article(document_id: str) -> str:
    return document_id.rpartition("-")[0]
