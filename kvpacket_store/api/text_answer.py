"""The text of an answer as it grows: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from kvpacket_store.text import StopMatcher, TextStream, Tokenizer

__all__ = ["ProvisionalText", "TextAnswer"]


class TextAnswer:
    """Takes token ids, gives the text that may be shown.

    Parameters
    ----------
    tokenizer : Tokenizer
        The model's.
    stops : sequence of str
        The text ends before the first of these.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._stream = TextStream(tokenizer)
        self._matcher = StopMatcher(stops)
        self._pieces: list[str] = []
        self.token_ids: list[int] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """Everything shown so far."""
        return "".join(self._pieces)

    def push(self, token_id: int) -> str:
        """Take a token; return the text that became certain, often empty."""
        self.token_ids.append(token_id)
        return self._show(self._stream.push(token_id))

    def finish(self) -> str:
        """Return what was held back: the answer is over."""
        if self.stopped:
            return ""
        shown = self._show(self._stream.finish())
        rest = self._matcher.finish()  # nothing, after a stop
        self._pieces.append(rest)
        return shown + rest

    def _show(self, piece: str) -> str:
        text, self.stopped = self._matcher.push(piece)
        self._pieces.append(text)
        return text


class ProvisionalText:
    """Text of drafted tokens, for show: stop strings are not looked for.

    Parameters
    ----------
    tokenizer : Tokenizer
        The model's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.forget()

    def push(self, token_id: int) -> str:
        """Take a drafted token; return what it adds to the draft's text, sometimes nothing."""
        return self._stream.push(token_id)

    def forget(self) -> None:
        """Begin again: a token became final."""
        self._stream = TextStream(self._tokenizer)
