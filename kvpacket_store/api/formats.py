"""Prompt formats by system prompt: an engine's own, and those that requests bring."""

from __future__ import annotations

import threading
from collections import OrderedDict

from kvpacket_store.models import HFTokenizer, PromptFormat

__all__ = ["Formats"]

_MOST = 8  # kept besides the engine's own


class Formats:
    """Formats of one tokenizer. Safe for many threads.

    Parameters
    ----------
    tokenizer : HFTokenizer
        The model's.
    system_prompt : str
        Of requests that bring none.
    """

    def __init__(self, tokenizer: HFTokenizer, system_prompt: str) -> None:
        self.default = PromptFormat(tokenizer, system_prompt)
        self._tokenizer, self._system_prompt = tokenizer, system_prompt
        self._others: OrderedDict[str, PromptFormat] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, system_prompt: str | None) -> PromptFormat:
        """Return the format with this system prompt; None is the engine's."""
        if system_prompt is None or system_prompt == self._system_prompt:
            return self.default
        with self._lock:
            if system_prompt not in self._others:
                self._others[system_prompt] = PromptFormat(self._tokenizer, system_prompt)
            self._others.move_to_end(system_prompt)
            while len(self._others) > _MOST:
                self._others.popitem(last=False)
            return self._others[system_prompt]
