"""Stop strings in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from kvpacket_store.errors import UsageError

__all__ = ["StopMatcher"]


class StopMatcher:
    """Says what of a growing text may be shown before a stop string.

    The text stops at the first place where it ends with a stop string; of several that end there
    the longest counts. Neither depends on how the text was cut into pieces. Time is linear in the
    text, whatever the stop strings (Knuth, Morris and Pratt, 1977).

    Parameters
    ----------
    stops : sequence of str
        The stop strings; none at all is fine, an empty one is not.

    Raises
    ------
    UsageError
        If a stop string is empty.

    Examples
    --------
    >>> matcher = StopMatcher(["END"])
    >>> matcher.push("the E"), matcher.push("nd is the EN"), matcher.push("D, not this")
    (('the ', False), ('End is the ', False), ('', True))
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str):
            raise UsageError("stop strings come as a list; put the one string into a list")
        if not all(stops):
            raise UsageError("a stop string is empty and would stop at once; leave it out")
        self._stops = tuple(dict.fromkeys(stops))
        self._fallbacks = [_fallback_lengths(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # characters of each stop that the text ends with
        self._held = ""
        self._stopped = False

    def push(self, piece: str) -> tuple[str, bool]:
        """Take the next piece of text.

        Returns
        -------
        text : str
            What may be shown now: certain to be before any stop string.
        stopped : bool
            Whether a stop string was hit. It is never part of the text, and whatever is pushed
            after it is dropped.
        """
        if self._stopped:
            return "", True
        text = self._held + piece
        for end, character in enumerate(piece, start=len(self._held) + 1):
            stop_length = self._advance(character)
            if stop_length:
                self._stopped, self._held = True, ""
                return text[: end - stop_length], True
        num_certain = len(text) - max(self._matched, default=0)
        self._held = text[num_certain:]
        return text[:num_certain], False

    def finish(self) -> str:
        """Return what was held back: the text is over, so it was no stop string."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> int:
        """Move every stop by one character; return the length of the longest that is complete."""
        longest = 0
        for index, stop in enumerate(self._stops):
            length = self._matched[index]
            while length and stop[length] != character:
                length = self._fallbacks[index][length - 1]
            if stop[length] == character:
                length += 1
            self._matched[index] = length
            if length == len(stop):
                longest = max(longest, length)
        return longest


def _fallback_lengths(stop: str) -> list[int]:
    """For each prefix of ``stop``: the length of its longest proper prefix that is its suffix."""
    lengths = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = lengths[length - 1]
        if stop[index] == stop[length]:
            length += 1
        lengths[index] = length
    return lengths
