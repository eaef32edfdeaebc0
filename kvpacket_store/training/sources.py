"""Where training text comes from: a store, files, question sets; and what is held out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.store import PacketStore
from kvpacket_store.text import QuestionItem, read_documents, read_questions
from kvpacket_store.types import Document

__all__ = ["Corpus", "Pool", "Source", "gather", "split"]

_PAGE = 256
_HELD_OUT = 10  # one of so many
_FEWEST_CHARS = 40


@dataclass(frozen=True, slots=True)
class Source:
    """One origin of training text, for the adapter's metadata."""

    name: str
    documents: int
    questions: int
    digest: str


@dataclass(frozen=True, slots=True)
class Pool:
    """Documents, and questions with their documents, that samples are drawn from."""

    documents: tuple[Document, ...]
    questions: tuple[QuestionItem, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """All that was named to train on, and what of it could not be read."""

    documents: list[Document]
    questions: list[QuestionItem]
    sources: list[Source]
    failures: list[str]


def gather(
    *,
    store: str | Path | None = None,
    namespace: str | None = None,
    paths: Sequence[str] = (),
    question_sets: Sequence[Path] = (),
) -> Corpus:
    """Read everything to train on.

    Parameters
    ----------
    store : path, optional
        Its documents, of one namespace or of all.
    paths : sequence of str
        Files, folders, JSONL of documents.
    question_sets : sequence of Path
        JSONL lines of ``{"question", "answers", "documents"}``.

    Raises
    ------
    UsageError
        A path is not there, a question set is malformed.
    NotFoundError
        No store is there, or no such namespace in it.
    """
    corpus = Corpus([], [], [], [])
    if store is not None:
        found = list(_stored(store, namespace))
        corpus.documents.extend(found)
        corpus.sources.append(_source(Path(store).name, found))
    for path in paths:
        results = list(read_documents([path]))
        found = [result for result in results if isinstance(result, Document)]
        corpus.documents.extend(found)
        corpus.sources.append(_source(Path(path).name, found))
        corpus.failures.extend(str(r) for r in results if not isinstance(r, Document))
    for file in question_sets:
        items = read_questions(file, need_answers=False)
        corpus.questions.extend(items)
        corpus.sources.append(_question_source(file.name, items))
    return corpus


def _stored(path: str | Path, namespace: str | None) -> Iterator[Document]:
    with PacketStore.open(path, read_only=True) as packets:
        if namespace is not None and namespace not in packets.namespaces():
            raise NotFoundError(f"no namespace {namespace!r} in {path}")
        after: str | None = None
        while True:
            page = packets.document_page(namespace, _PAGE, after)
            for one in page.documents:
                text = packets.document_text(one.namespace or "", one.id)
                yield Document(one.id, text, dict(one.metadata))
            if page.following is None:
                return
            after = page.following


def split(
    documents: Iterable[Document], questions: Iterable[QuestionItem], seed: int = 0
) -> tuple[Pool, Pool]:
    """Return what is trained on, and what is held out: a tenth of the documents, at least one.

    A text is on one side only, wherever it comes from. A question goes where its answer is; those
    of its documents that are on the other side are left out.

    Raises
    ------
    UsageError
        Fewer than two different documents have 40 characters or more.
    """
    questions = list(questions)
    own = {d.text: d for d in documents if _is_long_enough(d)}
    asked = {d.text: d for item in questions for d in item.documents if _is_long_enough(d)}
    texts = sorted({**own, **asked}, key=lambda text: _digest([str(seed), text]))
    if len(texts) < 2:
        raise UsageError(
            f"there are {len(texts)} different documents of {_FEWEST_CHARS} characters or more "
            "to train on, 2 are the least; name more files, a store or a question set"
        )
    held_out = set(texts[: max(1, len(texts) // _HELD_OUT)])
    pools = [
        Pool(
            tuple(d for text, d in {**asked, **own}.items() if (text in held_out) is wanted),
            tuple(_on_side(questions, held_out, wanted)),
        )
        for wanted in (False, True)
    ]
    return pools[0], pools[1]


def _on_side(
    questions: Iterable[QuestionItem], held_out: set[str], wanted: bool
) -> Iterator[QuestionItem]:
    for item in questions:
        usable = [d for d in item.documents if _is_long_enough(d)]
        telling = [d for d in usable if _has_answer(d, item)] or usable
        if telling and (telling[0].text in held_out) is wanted:
            kept = [d for d in usable if (d.text in held_out) is wanted]
            yield QuestionItem(item.question, item.answers, kept)


def _has_answer(document: Document, item: QuestionItem) -> bool:
    text = document.text.lower()
    return any(answer and answer.lower() in text for answer in item.answers)


def _is_long_enough(document: Document) -> bool:
    return len(document.text.strip()) >= _FEWEST_CHARS


def _source(name: str, documents: Sequence[Document]) -> Source:
    return Source(name, len(documents), 0, _digest(document.text for document in documents))


def _question_source(name: str, items: Sequence[QuestionItem]) -> Source:
    documents = [document for item in items for document in item.documents]
    texts = [*(item.question for item in items), *(document.text for document in documents)]
    return Source(name, len(documents), len(items), _digest(texts))


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
