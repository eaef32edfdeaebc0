"""Verified decoding beside one-token decoding and Hugging Face ``generate``, token for token."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvpacket_store.api import Engine, Store
from kvpacket_store.benchmarks.baseline import Baseline
from kvpacket_store.benchmarks.decode_peer import fastest_peer, peer_ms_a_token, too_large
from kvpacket_store.benchmarks.decode_turns import AUTO, FULL, Cell, Tally, decode_turn
from kvpacket_store.benchmarks.machine import machine
from kvpacket_store.benchmarks.paragraphs import example_documents
from kvpacket_store.benchmarks.scores import repetition
from kvpacket_store.benchmarks.ttft import documents_of
from kvpacket_store.errors import LevelUnavailableError
from kvpacket_store.generate import GenerationOptions
from kvpacket_store.models import Model
from kvpacket_store.types import Document

__all__ = ["COMPRESSORS", "DecodePlan", "measure_decode", "store_of_examples"]

COMPRESSORS = (
    AUTO,
    "base",
    "base*snapkv:0.25",
    "snapkv:0.25",
    "lookup",
    "lookup+snapkv:0.25*int8",
)
_PEER_TOKENS = 16
_WARM_TOKENS = 4


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What is measured: every combination.

    Parameters
    ----------
    contexts : tuple of int
        Tokens of the documents, about.
    batches : tuple of int
        Requests decoded together.
    compressors : tuple of str
        What drafts are made on; ``auto`` is what ``decode="auto"`` does, and is always there.
    exactness : str
        As `GenerationOptions`.
    temperatures : tuple of float
        0 is greedy.
    new_tokens : int
        Of an answer; its end is ignored.
    runs : int
        Turns; medians are reported.
    """

    contexts: tuple[int, ...] = (1000, 2000, 4000, 7500)
    batches: tuple[int, ...] = (1, 8)
    compressors: tuple[str, ...] = COMPRESSORS
    exactness: str = "guarded"
    temperatures: tuple[float, ...] = (0.0, 0.8)
    new_tokens: int = 64
    runs: int = 3

    @property
    def names(self) -> tuple[str, ...]:
        """Compressors with ``auto``, each once."""
        return tuple(dict.fromkeys((AUTO, *self.compressors)))

    def check(self, engine: Engine) -> None:
        """Refuse what would fail an hour from now.

        Raises
        ------
        UsageError
            A compressor, exactness or temperature that there is not.
        """
        for name, temperature in itertools.product(self.names, self.temperatures):
            mode, compressor = (AUTO, None) if name == AUTO else ("verified", name)
            options = GenerationOptions(
                max_new_tokens=self.new_tokens,
                temperature=temperature,
                exactness=self.exactness,
                decode=mode,
                compressor=compressor,
            )
            engine.decoder.compressor_of(options)


@contextmanager
def store_of_examples(model: str | Model) -> Iterator[Store]:
    """Yield a store of the example corpus in two layers; in one where no codec pack ships."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "bench.kvps"
        try:
            store = Store.create(path, model=model, codec="linear")
        except LevelUnavailableError:
            store = Store.create(path, model=model)
        with store:
            store.ingest(example_documents())
            yield store


def measure_decode(
    store: Store,
    documents: Sequence[Document],
    plan: DecodePlan,
    *,
    peers: Sequence[Baseline] = (),
    progress: Callable[[float], None] = lambda share: None,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Take turns in each cell: one token a step, then every compressor; the peer once a batch.

    Parameters
    ----------
    store : Store
        Holds ``documents``.
    documents : sequence of Document
        Prompts have the first of them.
    plan : DecodePlan
        What to measure.
    peers : sequence of Baseline
        Stock models; the one that is fastest at a context is the peer there. None: no peer.
    progress, on_row : callable
        Told the share done, and each row.
    """
    engine = Engine(store)
    plan.check(engine)
    places = list(itertools.product(plan.contexts, plan.batches))
    rows: list[dict[str, Any]] = []
    for number, (tokens, batch) in enumerate(places):
        chosen = tuple(documents_of(store, documents, tokens))
        peer = _peer(engine, chosen, batch, plan, peers)
        for at, temperature in enumerate(plan.temperatures):
            cell = Cell(chosen, batch, plan.exactness, temperature)
            for row in _rows(_take_turns(engine, cell, plan), cell):
                rows.append({**row, **peer})
                on_row(rows[-1])
            progress((number + (at + 1) / len(plan.temperatures)) / len(places))
    setting = {"codec": store.meta.codec, "layers": store.meta.layers}
    return {"machine": machine(), "plan": asdict(plan), **setting, "rows": rows}


def _take_turns(engine: Engine, cell: Cell, plan: DecodePlan) -> dict[str, Tally]:
    """Run every way in every turn; the first turn, a short one, is not counted."""
    tallies = {name: Tally() for name in (FULL, *plan.names)}
    for name in tallies:
        decode_turn(engine, cell.requests(0, name, min(_WARM_TOKENS, plan.new_tokens)))
    for turn in range(plan.runs):
        full = decode_turn(engine, cell.requests(turn, FULL, plan.new_tokens))
        is_new = not turn or cell.temperature > 0
        tallies[FULL].take(full, full, is_new=is_new)
        for name in plan.names:
            answers = decode_turn(engine, cell.requests(turn, name, plan.new_tokens))
            tallies[name].take(answers, full, is_new=is_new)
    return tallies


def _rows(tallies: dict[str, Tally], cell: Cell) -> Iterator[dict[str, Any]]:
    full = tallies.pop(FULL)
    usage = full.answers[0].usage
    for name, tally in tallies.items():
        ratios = [mine / theirs for mine, theirs in zip(tally.speeds, full.speeds, strict=True)]
        decodes = [answer.decode for answer in tally.answers]
        yield {
            "compressor": name,
            "context_tokens": usage.prompt_tokens + usage.adapter_tokens,
            "batch": cell.batch,
            "exactness": cell.exactness,
            "temperature": cell.temperature,
            "mean_accepted": tally.mean_accepted,
            "repetition": statistics.mean(repetition(a.token_ids) for a in full.answers),
            "tokens_per_s": statistics.median(tally.speeds),
            "full_tokens_per_s": statistics.median(full.speeds),
            "ratio": statistics.median(ratios),
            "spread": [min(ratios), max(ratios)],
            "identical": tally.identical,
            "tokens_compared": tally.tokens_compared,
            "draft_bits_per_scalar": tally.mean("draft_bits_per_scalar"),
            "draft_tokens_kept_share": tally.mean("draft_tokens_kept_share"),
            "decode": "/".join(sorted({decode.mode for decode in decodes})),
            "pinned": all(decode.pinned for decode in decodes),
            "guarded": sum(decode.guarded for decode in decodes),
        }


def _peer(
    engine: Engine,
    chosen: Sequence[str],
    batch: int,
    plan: DecodePlan,
    peers: Sequence[Baseline],
) -> dict[str, Any]:
    """Return the peer's speed from the same K and V (greedy), or why there is none."""
    if not peers:
        return _no_peer("no stock model was given")
    question = Cell(tuple(chosen), 1, plan.exactness, 0.0).requests(0, FULL, 1)[0]["question"]
    room = plan.new_tokens + 1
    cache, ids = engine.assemble(question, documents=chosen, max_new_tokens=room)
    if (reason := too_large(cache, batch)) is not None:
        return _no_peer(reason)
    engine.store.model.forward(tuple(ids[0, cache.length : -1].tolist()), cache)
    best = fastest_peer(peers, ids, cache)
    count = min(plan.new_tokens, _PEER_TOKENS)
    times = [peer_ms_a_token(best, ids, cache, count, batch=batch) for _ in range(plan.runs)]
    speed = 1e3 * batch / statistics.median(times)
    return {"hf_tokens_per_s": speed, "hf_dtype": best.dtype, "hf_left_out": None}


def _no_peer(reason: str) -> dict[str, Any]:
    return {"hf_tokens_per_s": None, "hf_dtype": None, "hf_left_out": reason}
