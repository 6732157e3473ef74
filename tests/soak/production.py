"""What the replicas of one workload do for their users, what their metrics tell of it, and whether a promise held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from kneekeeper.api.model import Setting
from kneekeeper.domain.diagnose.reading import Histogram
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.traffic_history import TrafficHistory, TrafficHour
from tests.soak.calendar import HOUR_S
from tests.soak.law import Served, served
from tests.soak.users import SIGMA, Lengths, Users

LOOK_S = 300.0
"""Users come at one rate for so long, and so often a promise is held against what they got."""

_REMEMBERED_HOURS = 7 * 24
_TTFT_BOUNDS = (0.001, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
_TPOT_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
_TOKEN_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True)
class Promise:
    """As a profile's status gives it: its condition Ready is true, and a certified setting is in force."""

    setting: Setting
    per_s: float
    """Requests a second of one replica."""
    ttft_s: float
    tpot_s: float
    measured: Lengths
    """What the run was measured with."""


@dataclass
class Tally:
    """Requests, by whether something was promised to them."""

    all: float = 0.0
    promised: float = 0.0
    """At no more than the promised rate, of lengths as they were measured."""
    broken: float = 0.0
    """Of those, in looks in which a P99 was beyond its target."""
    moved: float = 0.0
    """At no more than the promised rate, of lengths that have moved since."""
    moved_broken: float = 0.0
    beyond: float = 0.0
    """Promised something, and at more than the promised rate."""


@dataclass
class _Counters:
    """Of one replica since the beginning; a pod's are the difference to those at its start."""

    ttft: Floats = field(default_factory=lambda: np.zeros(len(_TTFT_BOUNDS) + 1))
    tpot: Floats = field(default_factory=lambda: np.zeros(len(_TPOT_BOUNDS) + 1))
    sums: Floats = field(default_factory=lambda: np.zeros(4))
    """Seconds to the first token, seconds a token, prompt tokens, output tokens."""

    def copy(self) -> _Counters:
        return _Counters(self.ttft.copy(), self.tpot.copy(), self.sums.copy())


@dataclass
class Production:
    """`advance` brings it to a moment; what holds until then is set before."""

    users: Users
    lengths: Lengths
    setting: Setting
    slow: float
    replicas: int
    promise: Promise | None = None
    tally: Tally = field(default_factory=Tally)
    pods: dict[str, _Counters] = field(default_factory=dict)
    """By address: the counters when it started."""
    _now_s: float = 0.0
    _counters: _Counters = field(default_factory=_Counters)
    _hours: dict[int, tuple[float, Lengths]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for hour in range(-24, 0):
            self._hours[hour] = (self.users.rate((hour + 24) * HOUR_S) * HOUR_S, self.lengths)

    def advance(self, now_s: float) -> None:
        """Users come until now."""
        while self._now_s < now_s:
            until_s = min(now_s, (self._now_s // LOOK_S + 1) * LOOK_S)
            self._serve(until_s - self._now_s)
            self._now_s = until_s

    def pod_starts(self, address: str) -> None:
        self.pods[address] = self._counters.copy()

    @property
    def per_replica_s(self) -> float:
        """Requests a second that come to one replica now."""
        return self.users.rate(self._now_s) / max(1, self.replicas)

    def _served_now(self) -> Served:
        return served(self.setting, self.slow, self.per_replica_s, self.lengths)

    def _serve(self, seconds: float) -> None:
        got = self._served_now()
        requests = seconds * got.per_s
        self._count(got, requests)
        self._judge(got, requests * self.replicas)
        hour = int(self._now_s // HOUR_S)
        known, _ = self._hours.get(hour, (0.0, self.lengths))
        self._hours[hour] = (known + requests * self.replicas, self.lengths)
        for old in [each for each in self._hours if each < hour - _REMEMBERED_HOURS]:
            del self._hours[old]

    def _count(self, got: Served, requests: float) -> None:
        counters = self._counters
        counters.ttft += requests * _shares(got.ttft_s, _TTFT_BOUNDS)
        counters.tpot += requests * _shares(got.tpot_s, _TPOT_BOUNDS)
        means = (got.ttft_s.mean(), got.tpot_s.mean(), self.lengths.prompt, self.lengths.output)
        counters.sums += requests * np.array(means)

    def _judge(self, got: Served, requests: float) -> None:
        tally, promise = self.tally, self.promise
        tally.all += requests
        if promise is None or promise.setting != self.setting:
            return
        if self.per_replica_s > promise.per_s:
            tally.beyond += requests
            return
        is_broken = got.overloaded or got.p99_ttft_s > promise.ttft_s or got.p99_tpot_s > promise.tpot_s
        if self.lengths.is_like(promise.measured):
            tally.promised += requests
            tally.broken += requests * is_broken
        else:
            tally.moved += requests
            tally.moved_broken += requests * is_broken

    def metrics(self, address: str) -> str:
        """vLLM's, of the pod at this address."""
        counters, start = self._counters, self.pods[address]
        got = self._served_now()
        ttft, tpot = np.round(counters.ttft - start.ttft), np.round(counters.tpot - start.tpot)
        ttft_s, tpot_s, prompts, outputs = counters.sums - start.sums
        waiting = round(got.concurrency) if got.overloaded else 0
        lines = [
            f"vllm:num_requests_running {got.concurrency:.0f}",
            f"vllm:num_requests_waiting {waiting}",
            "vllm:num_preemptions_total 0",
            "vllm:kv_cache_usage_perc 0.2",
            f"vllm:prompt_tokens_total {prompts:.0f}",
            f"vllm:generation_tokens_total {outputs:.0f}",
            f'vllm:request_success_total{{finished_reason="stop"}} {ttft[-1]:.0f}',
            *_histogram("time_to_first_token_seconds", _TTFT_BOUNDS, ttft, float(ttft_s)),
            *_histogram("request_time_per_output_token_seconds", _TPOT_BOUNDS, tpot, float(tpot_s)),
        ]
        return "\n".join([*lines, ""])

    def history(self, epoch_s: float) -> TrafficHistory:
        """Of a week at most, as a Prometheus server would remember it; `epoch_s` is the Unix time of second 0."""
        now = int(self._now_s // HOUR_S)
        whole = sorted((hour, *told) for hour, told in self._hours.items() if now - _REMEMBERED_HOURS <= hour < now)
        return TrafficHistory(
            tuple(
                TrafficHour(
                    at_s=epoch_s + (hour + 1) * HOUR_S,
                    prompt_tokens=_lengths(lengths.prompt, requests),
                    output_tokens=_lengths(lengths.output, requests),
                )
                for hour, requests, lengths in whole
            )
        )


def _shares(ascending: Floats, bounds: Sequence[float]) -> Floats:
    """At or below each bound, and all."""
    within = np.searchsorted(ascending, np.array(bounds), side="right") / ascending.size
    return np.append(within, 1.0)


def _histogram(name: str, bounds: Sequence[float], counts: Floats, total: float) -> list[str]:
    labels = [*(str(bound) for bound in bounds), "+Inf"]
    lines = [f'vllm:{name}_bucket{{le="{le}"}} {count:.0f}' for le, count in zip(labels, counts, strict=True)]
    return [*lines, f"vllm:{name}_sum {total:.3f}", f"vllm:{name}_count {counts[-1]:.0f}"]


@lru_cache(maxsize=8192)
def _lengths(mean: int, requests: float) -> Histogram:
    """Log-normal lengths with this mean."""
    counts = tuple(np.round(_shares_of_lengths(mean) * requests).tolist())
    return Histogram((*map(float, _TOKEN_BOUNDS), float("inf")), counts, mean * counts[-1])


@lru_cache(maxsize=64)
def _shares_of_lengths(mean: int) -> Floats:
    middle = np.log(mean) - SIGMA**2 / 2
    shares: Floats = np.append(norm.cdf((np.log(np.array(_TOKEN_BOUNDS)) - middle) / SIGMA), 1.0)
    return shares
