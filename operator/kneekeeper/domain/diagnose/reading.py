"""One reading of an engine's metrics, by vLLM's own names; a family that was not there is not in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Gauge(StrEnum):
    """State after the last step."""

    RUNNING = "num_requests_running"
    WAITING = "num_requests_waiting"
    KV_USAGE = "kv_cache_usage_perc"


class Counter(StrEnum):
    """Only grows; begins anew with the process."""

    PROMPT_TOKENS = "prompt_tokens_total"
    GENERATION_TOKENS = "generation_tokens_total"
    PREEMPTIONS = "num_preemptions_total"
    PREFIX_QUERIES = "prefix_cache_queries_total"
    PREFIX_HITS = "prefix_cache_hits_total"


class Family(StrEnum):
    """Histograms. Latencies in seconds, lengths in tokens, all of finished requests but TTFT and ITL."""

    TTFT = "time_to_first_token_seconds"
    TPOT = "request_time_per_output_token_seconds"
    ITL = "inter_token_latency_seconds"
    E2E = "e2e_request_latency_seconds"
    QUEUE = "request_queue_time_seconds"
    PREFILL = "request_prefill_time_seconds"
    PROMPT_LENGTH = "request_prompt_tokens"
    OUTPUT_LENGTH = "request_generation_tokens"


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts at ascending bounds, the last of which is infinite, and the sum of all values."""

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    sum: float

    @property
    def count(self) -> float:
        return self.cumulative[-1] if self.cumulative else 0.0

    @property
    def mean(self) -> float | None:
        """Exact, whatever the buckets; None without values."""
        return self.sum / self.count if self.count > 0 else None

    def above(self, value: float) -> tuple[float, float]:
        """How many values lie surely above `value`, and how many may: equal where it is a bound."""
        surely_within = max((c for b, c in zip(self.bounds, self.cumulative, strict=True) if b <= value), default=0.0)
        perhaps_within = min((c for b, c in zip(self.bounds, self.cumulative, strict=True) if b >= value), default=0.0)
        return max(0.0, self.count - perhaps_within), max(0.0, self.count - surely_within)

    def quantile_bracket(self, q: float) -> tuple[float, float] | None:
        """The bucket that holds the quantile: above the first number, at or below the second."""
        if self.count <= 0:
            return None
        lower = 0.0
        for bound, cumulative in zip(self.bounds, self.cumulative, strict=True):
            if cumulative >= q * self.count:
                return lower, bound
            lower = bound
        return lower, math.inf

    def since(self, earlier: Histogram | None) -> Histogram | None:
        """What was added since; None where the buckets are others or the counts fell."""
        if earlier is None or earlier.bounds != self.bounds or earlier.count > self.count:
            return None
        added = tuple(after - before for before, after in zip(earlier.cumulative, self.cumulative, strict=True))
        return Histogram(self.bounds, added, self.sum - earlier.sum)


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One scrape of one engine, summed over its data-parallel ranks."""

    at_s: float
    gauges: Mapping[Gauge, float]
    counters: Mapping[Counter, float]
    histograms: Mapping[Family, Histogram]
    engines: int = 1
    """How many engines were summed: series of different `engine` labels or pods."""

    @property
    def missing(self) -> frozenset[str]:
        """Names of the families that were not there."""
        known: set[str] = {*self.gauges, *self.counters, *self.histograms}
        return frozenset(str(name) for kind in (Gauge, Counter, Family) for name in kind if name not in known)
