"""Which packets go into a prompt: asked for by document, given as text, or retrieved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kvpacket_store.api.arguments import is_count, is_one, says_something
from kvpacket_store.api.given import GivenText, GivenTokens
from kvpacket_store.errors import NotFoundError, UsageError
from kvpacket_store.store import SegmentRef
from kvpacket_store.types import Document, Text

if TYPE_CHECKING:
    from kvpacket_store.api.store import Store
    from kvpacket_store.retrieve import Hit, Retriever

__all__ = ["DEFAULT_TOP_K", "DocumentItem", "Query", "SelectedDocument", "metadata_test", "select"]

DEFAULT_TOP_K = 5
DocumentItem: TypeAlias = str | tuple[str, Sequence[int]] | Document | Text | GivenText
"""A document's id, ``(id, [segment numbers])``, or a text that is matched by its content."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question, and which documents are to answer it.

    Parameters
    ----------
    question : str
        Not blank.
    documents : iterable or None
        Ids, ``(id, [segment numbers])``, or documents and texts by content; None retrieves.
    top_k, where : optional
        How many segments to retrieve, and the metadata that their documents must have.
    namespace : str
        Whose documents.
    history : sequence of (question, answer)
        Earlier turns of the conversation, as text, the first one first.
    system_prompt : str, optional
        In the place of the engine's.
    keep : bool
        File documents and texts that are given as such.

    Raises
    ------
    UsageError
        The question is empty, or what is asked for does not go together.
    """

    question: str
    documents: Iterable[DocumentItem] | None
    top_k: int | None
    where: Mapping[str, Any] | None
    namespace: str
    history: Sequence[tuple[str, str]] = ()
    system_prompt: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        if not says_something(self.question):
            raise UsageError("the question is empty; ask something")
        object.__setattr__(self, "history", _checked_history(self.history))
        if not isinstance(self.system_prompt, str | None):
            raise UsageError(f"system_prompt is {self.system_prompt!r:.60}; pass text")
        if self.documents is None:
            return
        if self.top_k is not None or self.where is not None:
            raise UsageError("pass either documents, or top_k and where")
        if is_one(self.documents):
            raise UsageError("documents is a list of ids or texts; put the one into a list")
        # read once: it may be an iterator, and selecting may have to be done again
        taken = (GivenText(i) if isinstance(i, Document | Text) else i for i in self.documents)
        object.__setattr__(self, "documents", tuple(taken))

    @property
    def given(self) -> list[GivenText]:
        """What came as text."""
        return [item for item in self.documents or () if isinstance(item, GivenText)]


@dataclass(slots=True)
class SelectedDocument:
    """A document and those of its segments that go into the prompt, in prompt order.

    ``tokens`` are those of a text that came with the question: its packets need not be stored.
    """

    id: str
    score: float | None
    segments: list[SegmentRef] = field(default_factory=list)
    tokens: GivenTokens = field(default_factory=dict)


def _checked_history(history: object) -> tuple[tuple[str, str], ...]:
    """Refuse what are no turns; an answer may be empty, a question may not."""
    if isinstance(history, str) or not isinstance(history, Iterable):
        raise UsageError("history is a list of (question, answer) pairs, the first turn first")
    turns = []
    for turn in history:
        match turn:
            case (str(question), str(answer)) if says_something(question):
                turns.append((question, answer))
            case _:
                raise UsageError(
                    f"history has {turn!r:.60}; pass (question, answer) pairs of text, the first "
                    "turn first; a question is not empty"
                )
    return tuple(turns)


def select(
    store: Store, query: Query, retriever: Callable[[], Retriever]
) -> list[SelectedDocument]:
    """Return what goes into the prompt; the retriever is made only if it is needed."""
    if query.documents is not None:
        return [_named(store, query.namespace, item) for item in query.documents]
    store.require_namespace(query.namespace)
    return _select_by_question(store, retriever(), query)


def _named(store: Store, namespace: str, item: object) -> SelectedDocument:
    """Take one item, in the order asked for (a repeat is repeated).

    Raises
    ------
    NotFoundError
        A document is not in the namespace, or has no such segment.
    UsageError
        It is none of those that `Query` takes.
    """
    if isinstance(item, GivenText):
        cut = item.cut(store, namespace)
        return SelectedDocument(item.document.id, None, cut.refs, cut.tokens)
    document_id, numbers = (item, None) if isinstance(item, str) else _part(item)
    manifest = store.packets.get_document(namespace, document_id)
    count = len(manifest.segments)
    if wrong := [n for n in numbers or () if not 0 <= n < count]:
        raise NotFoundError(f"document {document_id!r} has {count} segments, not {wrong[0]}")
    chosen = range(count) if numbers is None else numbers
    return SelectedDocument(document_id, None, [manifest.segments[n] for n in chosen])


def _part(item: object) -> tuple[str, list[int]]:
    """Check ``(id, [segment numbers])``."""
    match item:
        case (str(document_id), [*numbers]):
            whole = [n for n in numbers if isinstance(n, int)]
            if len(whole) == len(numbers):
                return document_id, whole
    raise UsageError(
        f"documents has {item!r:.60}; pass ids, (id, [segment numbers]), Document or Text"
    )


def _select_by_question(store: Store, retriever: Retriever, query: Query) -> list[SelectedDocument]:
    """Retrieve the best segments and group them by document, best document first.

    Raises
    ------
    UsageError
        ``top_k`` below 1, or a malformed filter.
    """
    top_k = DEFAULT_TOP_K if query.top_k is None else query.top_k
    if not is_count(top_k):
        raise UsageError(f"top_k is {top_k!r}; ask for a whole number of at least 1")
    keep = metadata_test(store, query.namespace, query.where) if query.where else None
    hits = retriever.retrieve(query.question, query.namespace, top_k, keep)
    return _grouped(store, query.namespace, hits)


def _grouped(store: Store, namespace: str, hits: Sequence[Hit]) -> list[SelectedDocument]:
    """Group hits by document; a document deleted since the index was made is left out."""
    by_document: dict[str, list[Hit]] = {}
    for hit in hits:
        by_document.setdefault(hit.document_id, []).append(hit)
    selected = []
    for document_id, own in by_document.items():
        try:
            manifest = store.packets.get_document(namespace, document_id)
        except NotFoundError:
            continue
        segments = [
            manifest.segments[hit.segment_index]
            for hit in sorted(own, key=lambda hit: hit.segment_index)
            if hit.segment_index < len(manifest.segments)
            and manifest.segments[hit.segment_index].packet_key == hit.packet_key
        ]
        if segments:
            selected.append(SelectedDocument(document_id, own[0].score, segments))
    return selected


def metadata_test(store: Store, namespace: str, where: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return what says of a document's id whether its metadata is what is wanted."""
    from kvpacket_store.retrieve import MetadataFilter

    wanted = MetadataFilter(where)

    def keep(document_id: str) -> bool:
        try:
            return wanted(store.packets.get_document(namespace, document_id).metadata)
        except NotFoundError:
            return False

    return keep
