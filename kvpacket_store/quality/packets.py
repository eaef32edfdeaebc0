"""The packets of one item, prefilled, and where they lie in a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from kvpacket_store.assemble import Correct, Corrector, Predecessors, place
from kvpacket_store.models import SlotCache
from kvpacket_store.prefill import BodyKV, Prefiller
from kvpacket_store.quality.prompt import PromptTokens

__all__ = ["PacketSet", "Span", "joint_spans", "spans_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """Slots of one kind: ``preamble``, ``header``, ``body``, ``trailer`` or ``question``."""

    kind: str
    start: int
    end: int


def spans_of(sizes: Iterable[tuple[str, int]]) -> tuple[Span, ...]:
    """Lay spans of these kinds and sizes in a row; what is empty is left out.

    Examples
    --------
    >>> spans_of([("preamble", 3), ("header", 0), ("body", 2)])
    (Span(kind='preamble', start=0, end=3), Span(kind='body', start=3, end=5))
    """
    found, start = [], 0
    for kind, size in sizes:
        if size:
            found.append(Span(kind, start, start + size))
        start += size
    return tuple(found)


def joint_spans(prompt: PromptTokens) -> tuple[Span, ...]:
    """Where everything lies that has no soft tokens around it, the question included."""
    bodies = (("body", len(segment)) for segment in prompt.segments)
    return spans_of(
        [("preamble", len(prompt.preamble)), *bodies, ("question", len(prompt.question))]
    )


class PacketSet:
    """One item's packets under one adapter.

    Parameters
    ----------
    prefiller : Prefiller
        Prefills them, each alone.
    prompt : PromptTokens
        The item.
    change : callable, optional
        What every part's K and V go through before they are placed: a lossy codec.
    """

    def __init__(
        self,
        prefiller: Prefiller,
        prompt: PromptTokens,
        change: Callable[[BodyKV], BodyKV] = lambda part: part,
    ) -> None:
        self.prompt = prompt
        self._prefiller = prefiller
        self._preamble = change(prefiller.preamble(prompt.preamble))
        self._header = change(prefiller.header())
        self._bodies = [change(prefiller.segment(segment)) for segment in prompt.segments]

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Where everything before the question lies, in order; what is empty is left out."""
        adapter = self._prefiller.adapter
        sizes = [("preamble", len(self.prompt.preamble))]
        for segment in self.prompt.segments:
            sizes.append(("header", adapter.header_slots))
            sizes.append(("body", len(segment)))
            sizes.append(("trailer", adapter.trailer_tokens))
        return spans_of(sizes)

    @property
    def num_slots(self) -> int:
        """Slots before the question."""
        return self.spans[-1].end

    @property
    def bodies(self) -> list[Span]:
        """Where the segments' own tokens lie."""
        return [span for span in self.spans if span.kind == "body"]

    def place(self) -> SlotCache:
        """Put all packets into slots, with room for question and answer."""
        model, prompt = self._prefiller.model, self.prompt
        cache = model.new_cache(self.num_slots + len(prompt.question) + prompt.room_tokens)
        corrector = Corrector(self._prefiller.adapter, model)
        predecessors, header = Predecessors(), self._prefiller.adapter.header_slots
        start = self._put(cache, self._preamble, 0)
        for segment, body in zip(prompt.segments, self._bodies, strict=True):
            correct = corrector.behind(predecessors.then(segment, header + body.k.shape[2]))
            start = self._put(cache, self._header, start)
            start = self._put(cache, body, start, correct)
        cache.set_length(start)
        return cache

    def _put(
        self, cache: SlotCache, part: BodyKV, start: int, correct: Correct | None = None
    ) -> int:
        model, kv_dtype = self._prefiller.model, self._prefiller.kv_dtype
        place(model, cache, part.k, part.v, kv_dtype=kv_dtype, start=start, correct=correct)
        return start + int(part.k.shape[2])
