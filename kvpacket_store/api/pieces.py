"""The events of a decoding → pieces of text, and the answer at the end."""

from __future__ import annotations

from collections.abc import Iterator

from kvpacket_store.api.answer import Piece
from kvpacket_store.api.begun import Begun
from kvpacket_store.api.request import Request, finished_answer
from kvpacket_store.api.text_answer import ProvisionalText, TextAnswer
from kvpacket_store.generate import Final, Provisional, decode_alone
from kvpacket_store.models import Model
from kvpacket_store.text import Tokenizer

__all__ = ["AnswerPieces", "answer_pieces"]


class AnswerPieces:
    """Takes what one decoding gives, whoever drives it; gives pieces of text.

    Parameters
    ----------
    request : Request
        Its timings are filled in.
    begun : Begun
        The same request.
    tokenizer : Tokenizer
        The model's.
    """

    def __init__(self, request: Request, begun: Begun, tokenizer: Tokenizer) -> None:
        self._request, self._begun = request, begun
        self._tokenizer = tokenizer
        self._text = TextAnswer(tokenizer, request.options.stop)
        self._drafted = ProvisionalText(tokenizer) if request.provisional else None

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string came: the answer is over, whatever the decoding gives next."""
        return self._text.stopped

    def push(self, event: Final | Provisional) -> Piece | None:
        """Take a token; return the text that may be shown now, if any."""
        timings = self._request.timings
        if isinstance(event, Provisional):
            timings.first_draft = timings.first_draft or self._request.elapsed_ms()
            drafted = self._drafted.push(event.token_id) if self._drafted else ""
            return Piece(drafted, provisional=True) if drafted else None
        if self._drafted:
            self._drafted.forget()
        timings.first_token = timings.first_token or self._request.elapsed_ms()
        text = self._text.push(event.token_id)
        return Piece(text) if text else None

    def finish(self) -> Piece:
        """Return the last piece: what was held back, and the whole answer."""
        rest = self._text.finish()
        self._request.timings.total = self._request.elapsed_ms()
        timings = self._request.timings
        return Piece(rest, finished_answer(self._begun, self._text, timings, self._tokenizer))


def answer_pieces(begun: Begun, pieces: AnswerPieces, model: Model) -> Iterator[Piece]:
    """Decode a request by itself; yield its text, the last piece with the whole answer.

    Whoever stops listening lets what is on its way be.
    """
    try:
        for event in decode_alone(begun.decoding, model.row_forward()):
            if piece := pieces.push(event):
                yield piece
            if pieces.is_stopped:
                break
    finally:
        if begun.swap is not None:
            begun.swap.abandon()
    yield pieces.finish()
