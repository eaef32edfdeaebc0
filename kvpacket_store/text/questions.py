"""Question sets: JSONL lines of ``{"question", "answers", "documents": ["text", …]}``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpacket_store.errors import DocumentError, UsageError
from kvpacket_store.text.records import document_from_record
from kvpacket_store.types import Document

__all__ = ["QuestionItem", "read_questions"]


@dataclass(frozen=True, slots=True)
class QuestionItem:
    """A question, its gold answers, and the documents that go with it."""

    question: str
    answers: list[str]
    documents: list[Document]


def read_questions(path: Path, *, need_answers: bool = True) -> list[QuestionItem]:
    """Read a question set.

    Parameters
    ----------
    path : Path
        UTF-8; blank lines are none.
    need_answers : bool
        Refuse lines without a gold answer. Training compares with none.

    Raises
    ------
    UsageError
        The file cannot be read, or a line is not of that form; it names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"question set {path} cannot be read: {error}") from error
    items = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            items.append(_item(json.loads(line), f"{path.name}:{number}", need_answers))
        except (KeyError, TypeError, ValueError, DocumentError) as error:
            raise UsageError(
                f"{path} line {number} is not {{question, answers, documents}}: {error!r}"
            ) from error
    return items


def _item(row: dict[str, Any], where: str, need_answers: bool) -> QuestionItem:
    question, answers, texts = row["question"], row.get("answers", []), row["documents"]
    if not isinstance(question, str) or not question.strip():
        raise ValueError("question is no text")
    for name, value in (("answers", answers), ("documents", texts)):
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ValueError(f"{name} is no list of texts")
    if need_answers and not answers:
        raise ValueError("there is no answer")
    documents = [
        document_from_record({"id": f"{where}-{i}", "text": text}, where, where.rpartition(":")[0])
        for i, text in enumerate(texts)
    ]
    return QuestionItem(question, answers, documents)
