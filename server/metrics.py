"""What requests were and how they ended, counted for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from kvpacket_store.api import Answer

from .problems import problem_names, problem_of

__all__ = ["Metrics"]

_FIRST_TOKEN_BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_ANSWERED = "answered"


class Metrics:
    """Counts over one app's requests, in a registry of its own. Safe for many threads.

    Tokens and rows are counted where a request is answered, as its ``usage`` has them.

    Attributes
    ----------
    registry : CollectorRegistry
        What ``GET /metrics`` gives.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "kvpacket_requests",
            "Generate requests by how they ended: answered, or the problem that it was.",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in (_ANSWERED, *problem_names()):
            self._requests.labels(outcome)
        self._prompt = self._counter("prompt_tokens", "Positions that questions could see.")
        self._cached = self._counter("cached_tokens", "Those of them that ran no forward.")
        self._adapter = self._counter("adapter_tokens", "Soft tokens in prompts.")
        self._completion = self._counter("completion_tokens", "Tokens of answers.")
        self._accepted = self._counter("accepted_draft_tokens", "Drafted tokens that were right.")
        self._rejected = self._counter("rejected_draft_tokens", "Drafted tokens that were not.")
        self._guarded = self._counter("guarded_rows", "Rows near a tie, decided again alone.")
        self._fallbacks = self._counter("fallbacks", "Packets that had to be prefilled again.")
        self._jobs = Counter(
            "kvpacket_jobs", "Ingest jobs by how they ended.", ["state"], registry=self.registry
        )
        for state in ("done", "failed", "cancelled"):
            self._jobs.labels(state)
        self._prefetched = self._counter("prefetched_packets", "Packets sent for in advance.")
        self._first_token = Histogram(
            "kvpacket_first_token_seconds",
            "From a request's arrival to its first final token, waiting included.",
            buckets=_FIRST_TOKEN_BUCKETS_S,
            registry=self.registry,
        )

    def count_answered(self, answer: Answer) -> None:
        """Count a request that was answered."""
        usage = answer.usage
        self._requests.labels(_ANSWERED).inc()
        self._prompt.inc(usage.prompt_tokens)
        self._cached.inc(usage.cached_tokens)
        self._adapter.inc(usage.adapter_tokens)
        self._completion.inc(usage.completion_tokens)
        self._accepted.inc(usage.accepted_draft_tokens)
        self._rejected.inc(usage.rejected_draft_tokens)
        self._guarded.inc(answer.decode.guarded)
        self._fallbacks.inc(len(answer.fallbacks))
        if answer.timings_ms.first_token is not None:
            self._first_token.observe(answer.timings_ms.first_token / 1e3)

    def count_failed(self, error: BaseException) -> None:
        """Count a request that ended with an error, or was refused."""
        self._requests.labels(problem_of(error).name).inc()

    def count_job(self, state: str) -> None:
        """Count a job that has ended."""
        self._jobs.labels(state).inc()

    def count_prefetched(self, num_packets: int) -> None:
        """Count packets that are on their way into memory before anybody asks about them."""
        self._prefetched.inc(num_packets)

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(f"kvpacket_{name}", documentation, registry=self.registry)
