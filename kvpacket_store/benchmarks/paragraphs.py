"""The text that benchmarks run on: the example corpus, or a folder of the reader's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpacket_store.errors import UsageError
from kvpacket_store.text import document_from_record, read_documents
from kvpacket_store.types import Document

__all__ = ["QuestionItem", "example_documents", "example_questions", "read_questions"]

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True, slots=True)
class QuestionItem:
    """A question, its gold answers, and the documents that go with it."""

    question: str
    answers: list[str]
    documents: list[Document]


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


def read_questions(path: Path) -> list[QuestionItem]:
    """Read a JSONL file of ``{"question", "answers", "documents": ["text", ...]}`` lines.

    Raises
    ------
    UsageError
        A line is not of that form.
    """
    items = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row: dict[str, Any] = json.loads(line)
            documents = [
                document_from_record(
                    {"id": f"{number}-{i}", "text": text}, f"{path}:{number}", path.name
                )
                for i, text in enumerate(row["documents"])
            ]
            items.append(QuestionItem(row["question"], list(row["answers"]), documents))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path} line {number} is not {{question, answers, documents}}: {error!r}"
            ) from error
    return items


def _article(document_id: str) -> str:
    return document_id.rpartition("-")[0]
