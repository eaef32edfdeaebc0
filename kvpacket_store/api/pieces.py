"""The events of a decoding → pieces of text, and the answer at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kvpacket_store.api.answer import Piece, Timings
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.request import finished_answer
from kvpacket_store.api.text_answer import ProvisionalText, TextAnswer
from kvpacket_store.generate import Final, Provisional, decode_alone
from kvpacket_store.models import Model

__all__ = ["answer_pieces"]


def answer_pieces(
    begun: Begun, model: Model, timings: Timings, clock: float, *, provisional: bool = False
) -> Iterator[Piece]:
    """Decode a request by itself; yield its text, the last piece with the whole answer.

    Parameters
    ----------
    begun : Begun
        The request.
    model : Model
        Runs its forwards.
    timings : Timings
        Filled in.
    clock : float
        When the request came, ``time.perf_counter()``.
    provisional : bool
        Drafted text comes too, in pieces of its own.
    """
    text = TextAnswer(model.tokenizer, begun.answering.options.stop)
    drafted = ProvisionalText(model.tokenizer)

    def elapsed_ms() -> float:
        return 1e3 * (time.perf_counter() - clock)

    for event in _events(begun, model):
        if not isinstance(event, Final):
            timings.first_draft = timings.first_draft or elapsed_ms()
            if provisional and (piece := drafted.push(event.token_id)):
                yield Piece(piece, provisional=True)
            continue
        drafted.forget()
        timings.first_token = timings.first_token or elapsed_ms()
        if piece := text.push(event.token_id):
            yield Piece(piece)
        if text.stopped:
            break
    rest = text.finish()
    timings.total = elapsed_ms()
    yield Piece(rest, finished_answer(begun, text, timings))


def _events(begun: Begun, model: Model) -> Iterator[Final | Provisional]:
    """Run a decoding; whoever stops listening lets what is on its way be."""
    try:
        yield from decode_alone(begun.decoding, model.row_forward())
    finally:
        if begun.swap is not None:
            begun.swap.abandon()
