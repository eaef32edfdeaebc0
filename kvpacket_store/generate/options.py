"""What a request may ask for, checked once at the door."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from types import UnionType

from kvpacket_store.errors import UsageError
from kvpacket_store.generate.logprobs import MOST_LOGPROBS

__all__ = ["CONSISTENCIES", "DECODE_MODES", "EXACTNESSES", "GenerationOptions"]

DECODE_MODES = ("auto", "verified", "full")
EXACTNESSES = ("bit", "guarded")
MOST_DRAFT_TOKENS = 64
CONSISTENCIES = ("packet", "recompute")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(allowed)}")


def _typed(name: str, value: object, kind: type | UnionType) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; it is a number")


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How to answer.

    Parameters
    ----------
    max_new_tokens : int
        Longest answer, tokens.
    temperature : float
        0 is greedy (ties break to the lowest id).
    seed : int or None
        For temperature > 0: noise is keyed by (seed, position), so equal seeds give equal answers
        whatever else runs. None draws one; the answer names it.
    sampling_top_k : int
        For temperature > 0: choose among the so many likeliest tokens; 0 among all. (``top_k``
        counts retrieved segments.)
    top_p : float
        For temperature > 0: choose among the likeliest tokens that together have this share of
        the probability; 1 among all.
    repetition_penalty : float
        Logits of tokens that occurred, in the prompt or the answer, are divided by this, or times
        it where negative; 1 leaves them. Greedy answers too.
    stop : tuple of str
        The answer ends before the first of these.
    ignore_eos : bool
        Go on past the end-of-sequence token (benchmarks).
    decode : str
        ``auto``, ``full`` (one token a step on the exact KV) or ``verified`` (drafts).
    exactness : str
        ``bit`` or ``guarded``; the same where the model's rows are alike (`Model.rows_are_alike`).
    compressor : str or None
        What drafts are made on: ``base`` (the base layer of stored packets), ``lookup`` (the
        request's own tokens), ``model`` (the engine's draft model), or as `parse_compressor`, from
        the exact K and V or, after ``base*``, from the base. Several with ``+`` between them are
        asked in turn. None chooses. With ``consistency="recompute"`` and ``decode="verified"`` it
        is the packets that are made small so; None leaves them whole.
    draft_tokens : int or None
        Tokens to draft before each verification. None follows what is accepted, and what drafts
        cost on this machine.
    logprobs : int or None
        Say how likely each token of the answer was, and the so many likeliest in its place.
    consistency : str
        ``packet``: as full-KV decoding over the assembled packets. ``recompute``: as a joint
        prefill of the same tokens without packets.

    Examples
    --------
    >>> GenerationOptions(temperature=0.8, seed=7).max_new_tokens
    64
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    seed: int | None = None
    sampling_top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    decode: str = "auto"
    exactness: str = "guarded"
    consistency: str = "packet"
    compressor: str | None = None
    draft_tokens: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _typed("max_new_tokens", self.max_new_tokens, int)
        _typed("temperature", self.temperature, int | float)
        _typed("seed", self.seed, int | None)
        if not all(isinstance(stop, str) for stop in self.stop):
            raise UsageError(f"stop is {self.stop!r}; it is a string or a list of strings")
        if self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens is {self.max_new_tokens}; ask for at least 1")
        if not isfinite(self.temperature) or self.temperature < 0:
            raise UsageError(f"temperature is {self.temperature}; it is a finite number from 0 up")
        if self.seed is not None and not 0 <= self.seed < 1 << 64:
            raise UsageError(f"seed is {self.seed}; it is a whole number from 0 to 2**64 - 1")
        _typed("draft_tokens", self.draft_tokens, int | None)
        if self.draft_tokens is not None and not 1 <= self.draft_tokens <= MOST_DRAFT_TOKENS:
            raise UsageError(
                f"draft_tokens is {self.draft_tokens}; it is from 1 to {MOST_DRAFT_TOKENS}"
            )
        if self.compressor is not None and not isinstance(self.compressor, str):
            raise UsageError(f"compressor is {self.compressor!r}; it is a name, as 'snapkv:0.25'")
        _typed("logprobs", self.logprobs, int | None)
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            raise UsageError(f"logprobs is {self.logprobs}; it is from 0 to {MOST_LOGPROBS}")
        self._check_sampling()
        _one_of("decode", self.decode, DECODE_MODES)
        _one_of("exactness", self.exactness, EXACTNESSES)
        _one_of("consistency", self.consistency, CONSISTENCIES)

    def _check_sampling(self) -> None:
        _typed("sampling_top_k", self.sampling_top_k, int)
        _typed("top_p", self.top_p, int | float)
        _typed("repetition_penalty", self.repetition_penalty, int | float)
        if self.sampling_top_k < 0:
            raise UsageError(f"sampling_top_k is {self.sampling_top_k}; it is 0 (off) or more")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}; it is above 0 and at most 1")
        if not isfinite(self.repetition_penalty) or self.repetition_penalty <= 0:
            raise UsageError(
                f"repetition_penalty is {self.repetition_penalty}; it is a finite number above 0"
            )
