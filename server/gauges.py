"""What is so now, read when Prometheus asks: who runs, the RAM tier, audits, this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .generations import Generations

if TYPE_CHECKING:
    from kvpacket_store.api import Engine
    from kvpacket_store.api.exactness import Exactness

__all__ = ["Gauges"]


class Gauges(Collector):
    """Reads an engine that is loaded, and its requests.

    Parameters
    ----------
    engine : Engine
        Its RAM tier and its audits.
    exactness : Exactness
        What was measured on this machine.
    promises : dict
        Which promises are kept here, by name.
    generations : Generations
        Its requests.
    """

    def __init__(
        self,
        engine: Engine,
        exactness: Exactness,
        promises: dict[str, bool],
        generations: Generations,
    ) -> None:
        self._engine = engine
        self._exactness = exactness
        self._kept = promises
        self._generations = generations

    def collect(self) -> Iterator[Metric]:
        """Yield everything as of now."""
        yield from self._requests()
        yield from self._memory()
        yield from self._audits()
        yield from self._promises()

    def _requests(self) -> Iterator[Metric]:
        generations = self._generations
        yield _gauge("requests_running", "Requests that are decoded.", generations.num_running)
        yield _gauge("requests_waiting", "Requests that wait.", generations.num_waiting)
        yield _gauge(
            "running_kv_bytes", "K and V of requests that are decoded.", generations.held_bytes
        )

    def _memory(self) -> Iterator[Metric]:
        stats = self._engine.memory.stats()
        yield _counter("memory_hits", "Packets found in the RAM tier.", stats.hits)
        yield _counter("memory_misses", "Packets that were not there.", stats.misses)
        yield _counter("memory_evictions", "Packets that made room for others.", stats.evicted)
        yield _gauge("memory_bytes", "Bytes in the RAM tier.", stats.held_bytes)
        yield _gauge("memory_max_bytes", "Most that may be there.", stats.max_bytes)

    def _audits(self) -> Iterator[Metric]:
        totals = self._engine.auditor.totals
        yield _counter("audited_answers", "Compared with a joint prefill.", totals.requests)
        yield _counter("audited_tokens", "Tokens of these answers.", totals.tokens)
        yield _counter(
            "audit_agreed_tokens", "Those that a joint prefill would choose too.", totals.agreed
        )
        yield _counter(
            "audit_kl_nats", "KL(joint prefill, packets), summed over tokens.", totals.kl_nats
        )
        if means := totals.means():
            yield _gauge("audit_agreement_ratio", "Agreed of audited tokens.", means["agreement"])
            yield _gauge("audit_mean_kl_nats", "KL a token, in the mean.", means["kl_nats"])

    def _promises(self) -> Iterator[Metric]:
        holds = GaugeMetricFamily(
            "kvpacket_exactness",
            "1 where drafted answers of this promise are those of one token a step here.",
            labels=["promise"],
        )
        for promise, is_kept in self._kept.items():
            holds.add_metric([promise], float(is_kept))
        yield holds
        yield _gauge(
            "guard_logits", "How far logits may move with company.", self._exactness.guard_logits
        )


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"kvpacket_{name}", documentation, value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(f"kvpacket_{name}", documentation, value)
