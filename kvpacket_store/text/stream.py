"""Token ids to text, one id at a time, in whole characters."""

from __future__ import annotations

from kvpacket_store.text.tokenizer import Tokenizer

__all__ = ["TextStream"]

_REPLACEMENT = "\ufffd"
# A character has at most four bytes, so four byte tokens; the rest leaves room for tokens without
# text. Longer tails are bytes that will never become a character.
_MAX_HELD_TOKENS = 32


class TextStream:
    """Detokenizes a growing sequence of ids and never splits a character.

    Emoji and CJK characters arrive over several byte tokens, and sentencepiece tokenizers drop the
    first space of whatever they are given. So each step detokenizes a short window, the ids that
    were emitted last followed by those that are held back, and emits what the window has more than
    before. The window is bounded, so the time is linear in the number of ids.

    Parameters
    ----------
    tokenizer : Tokenizer
        The one that the ids belong to.

    Examples
    --------
    >>> class Letters:
    ...     digest, special_ids = "", frozenset()
    ...     def tokenize(self, text): return tuple(text.encode())
    ...     def detokenize(self, token_ids): return bytes(token_ids).decode(errors="replace")
    >>> stream = TextStream(Letters())
    >>> [stream.push(token_id) for token_id in "né".encode()], stream.finish()
    (['n', '', 'é'], '')
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._emitted: list[int] = []  # context: the ids of the last emission
        self._held: list[int] = []

    def push(self, token_id: int) -> str:
        """Take one id; return the text that is certain now, often empty."""
        self._held.append(token_id)
        text = self._new_text(len(self._held))
        if text and not text.endswith(_REPLACEMENT):
            return self._emit(len(self._held), text)
        if len(self._held) >= _MAX_HELD_TOKENS:
            return self._emit_hopeless(text)
        return ""

    def finish(self) -> str:
        """Return what is still held back; an unfinished character becomes U+FFFD."""
        return self._emit(len(self._held), self._new_text(len(self._held)))

    def _new_text(self, num_held: int) -> str:
        before = self._tokenizer.detokenize(self._emitted)
        window = self._tokenizer.detokenize(self._emitted + self._held[:num_held])
        return window[len(before) :]

    def _emit(self, num_held: int, text: str) -> str:
        if num_held:
            self._emitted, self._held = self._held[:num_held], self._held[num_held:]
        return text

    def _emit_hopeless(self, text: str) -> str:
        """Emit about half of a tail that is no character, cut where no character is split."""
        for num_held in range(_MAX_HELD_TOKENS // 2, 0, -1):
            part = self._new_text(num_held)
            if text.startswith(part):
                return self._emit(num_held, part)
        return self._emit(len(self._held), text)
