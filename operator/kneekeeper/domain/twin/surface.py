"""The highest rate at which each setting holds its targets: the twin run over settings and rates.

Every setting and rate meets the same requests (common random numbers), so that their differences are not those of
draws. Each of several runs has a law from the fit's uncertainty and requests of its own. A rate holds when at most 1%
of the requests of all runs together miss their targets: the chance that a request misses, over all that is not known.
Run by run, a burst that one draw happens to have would count as if it were what the engine always meets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from kneekeeper.api.stage import Slo
from kneekeeper.domain.certifiable import certifiable_share
from kneekeeper.domain.certify import CERTIFY_REQUESTS, OFFERED_SHARE, SAFETY
from kneekeeper.domain.critical_load import longest_queue, queue_beyond_service, waiting_found
from kneekeeper.domain.samples import Bools, Floats
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.simulate import Load, TwinLimits, TwinResult, simulate
from kneekeeper.domain.twin.traffic import TwinRequests, TwinTraffic

ALLOWED_SHARE = 0.01
"""Targets are P99s."""

CONFIDENCE = 0.9
"""Share of the runs inside of what is told as predicted."""

DOUBTED_SHARE = 0.2
"""Of the runs: so many may have a queue with which a certification would not exclude critical load."""

RESOLUTION = 0.01
"""Rates are searched to this share."""

BUSIEST = 0.97
"""Share of a setting's throughput beyond which a queue takes longer to settle than any stage lasts: without a target
for waiting, no rate holds beyond it."""

LOWEST_LOAD = 0.02
"""Share of the throughput at which a setting must hold to be worth anything."""

_STEPS_BELOW_TOP = 5
"""Of RESOLUTION, in which a setting may hold what it does not at lower rates: bursts that fill a batch anew bring more
prompts at a time than a batch which is hardly ever empty takes up."""

_WARM_UP = 0.1
"""Share of the requests that find an engine which is not yet as full as it will be."""
_SEED = 20_245


class Missed(StrEnum):
    """A kind of target that a run misses."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    E2E = "E2E"
    REJECTED = "Rejected"
    UNSTABLE = "Unstable"


@dataclass(frozen=True)
class Predicted:
    """Upper 90% limits of the P99s, over all requests, in seconds."""

    p99_ttft_s: float
    p99_tpot_s: float
    p99_e2e_s: float


@dataclass(frozen=True)
class FullBatch:
    """An engine that always has as many requests as it is given."""

    requests_per_s: float
    preemptions_per_request: float


@dataclass(frozen=True)
class Tails:
    """By which factors latencies above the median are farther from it than the twin has them; at least 1."""

    ttft: float = 1.0
    tpot: float = 1.0
    """Of E2E as well: answers consist of tokens, so E2E is mostly TPOT."""


@dataclass(frozen=True, eq=False)
class _Late:
    """Which requests of a kind miss any target, and how many each of them."""

    together: Bools
    counts: dict[Missed, int]

    @property
    def requests(self) -> int:
        return self.together.size


@dataclass(frozen=True, eq=False)
class Surface:
    """Runs of one workload: `laws` and `requests` in pairs, and the targets of each kind of request."""

    traffic: TwinTraffic
    targets: tuple[Slo, ...]
    laws: tuple[Law, ...]
    requests: tuple[TwinRequests, ...]
    tails: Tails = Tails()
    planned: int | None = None
    """Requests of the open loop with which the choice is certified; None where it is not, or with another load."""

    @classmethod
    def drawn(cls, traffic: TwinTraffic, targets: Sequence[Slo], laws: Sequence[Law], count: int) -> Surface:
        """One run of `count` requests for each law. `targets` are those of the classes, in their order."""
        requests = tuple(traffic.draw(count, _SEED + number) for number in range(len(laws)))
        return cls(traffic, tuple(targets), tuple(laws), requests)

    def with_targets(self, targets: Sequence[Slo]) -> Surface:
        """The same runs, held to other targets."""
        return replace(self, targets=tuple(targets))

    def with_tails(self, tails: Tails) -> Surface:
        """The same runs with longer tails."""
        return replace(self, tails=tails)

    def certified_by(self, planned: int | None) -> Surface:
        """The same runs, of which a certification of so many requests has to exclude that the load is critical."""
        return replace(self, planned=planned)

    def first(self) -> Surface:
        """Its first run alone."""
        return replace(self, laws=self.laws[:1], requests=self.requests[:1])

    def capacity(self, limits: TwinLimits) -> float:
        """Requests/s of the first run with a full batch: a closed loop of as many users as may run."""
        return self.full_batch(limits, limits.running).requests_per_s

    def full_batch(self, limits: TwinLimits, users: int) -> FullBatch:
        """What the first run does in a closed loop of `users`, at most a quarter of its requests."""
        load = self._loads[0]
        users = max(1, min(users, len(load) // 4))
        # First answers are cut at random: users that begin together would stay in step.
        output_tokens = load.output_tokens.copy()
        rng = np.random.default_rng(_SEED)
        output_tokens[:users] = np.ceil(output_tokens[:users] * (1 - rng.random(users))).astype(np.int64)
        closed = replace(load, arrival_s=np.zeros(len(load)), output_tokens=output_tokens, users=users)
        result = simulate(closed, limits, self.laws[0])
        ended_s = np.sort(result.last_s)
        first, last = users, len(load) - users
        rate = float((last - first) / (ended_s[last] - ended_s[first]))
        return FullBatch(rate, float(result.preemptions[first:last].mean()))

    def holds(self, limits: TwinLimits, rate: float) -> bool:
        """Whether the runs together hold all targets at `rate` requests/s and at what would be promised for it, and
        could be certified to. Misses need not grow with the rate, so each is looked at."""
        offered, certifiable = OFFERED_SHARE * rate, certifiable_share(self.planned or CERTIFY_REQUESTS)
        return (
            self._within(limits, rate, ALLOWED_SHARE)
            and self._within(limits, offered, certifiable, self.planned)
            and self._within(limits, offered / SAFETY, ALLOWED_SHARE)
        )

    def missed(self, limits: TwinLimits, rate: float) -> set[Missed]:
        """What the first run misses at `rate`."""
        result, requests = simulate(self._loads[0].at_rate(rate), limits, self.laws[0]), self.requests[0]
        missed: set[Missed] = set()
        for late in self._late(result, requests):
            allowed = ALLOWED_SHARE * late.requests
            if late.together.sum() > allowed:
                # One event; named by what is missed alone, else by what is missed most.
                alone = {name for name, count in late.counts.items() if count > allowed}
                missed |= alone or {max(late.counts, key=lambda name: late.counts[name])}
        return missed

    def predicted(self, limits: TwinLimits, rate: float) -> Predicted:
        """What a setting would show at `rate`."""
        rows = []
        factors = (self.tails.ttft, self.tails.tpot, self.tails.tpot)
        for load, law in zip(self._loads, self.laws, strict=True):
            result = simulate(load.at_rate(rate), limits, law)
            warm = round(_WARM_UP * len(load))
            columns = zip((result.ttft_s, result.tpot_s, result.e2e_s), factors, strict=True)
            rows.append([_p99(values[warm:], factor) for values, factor in columns])
        ttft_s, tpot_s, e2e_s = np.quantile(rows, CONFIDENCE, axis=0).tolist()
        return Predicted(ttft_s, tpot_s, e2e_s)

    def highest_rate(
        self, limits: TwinLimits, *, least: float = 0.0, near: float | None = None, capacity: float | None = None
    ) -> float:
        """The highest rate that holds, to RESOLUTION; 0 where none above `least` does.

        `near` is where it may lie, which saves steps; `capacity` is computed where it is not given.
        """
        top = highest = BUSIEST * (capacity or self.capacity(limits))
        low = max(least, LOWEST_LOAD * top)
        if low >= top or not self.holds(limits, low):
            return 0.0
        if near is not None and low < near < top:
            if self.holds(limits, near):
                low = near
            else:
                top = near
        if self.holds(limits, highest):
            return highest
        while top > (1 + RESOLUTION) * low:
            # Even steps far apart, steps of equal shares when close.
            middle = (low + top) / 2 if top > 2 * low else float(np.sqrt(low * top))
            low, top = (middle, top) if self.holds(limits, middle) else (low, middle)
        near_top = (highest / (1 + RESOLUTION) ** step for step in range(1, _STEPS_BELOW_TOP + 1))
        return next((rate for rate in near_top if rate > low and self.holds(limits, rate)), low)

    @cached_property
    def _loads(self) -> tuple[Load, ...]:
        return tuple(
            Load(
                requests.arrival_s,
                requests.prompt_tokens,
                requests.output_tokens,
                self.traffic.prefix_hits(requests.prompt_tokens),
            )
            for requests in self.requests
        )

    def _within(self, limits: TwinLimits, rate: float, share: float, planned: int | None = None) -> bool:
        """Whether at most this share of each kind of requests misses its targets, over all runs; and, in a stage of
        `planned` requests, whether most of the runs exclude that the load is critical."""
        left, doubts = share * self._sizes, DOUBTED_SHARE * len(self.laws)
        for load, law, requests in zip(self._loads, self.laws, self.requests, strict=True):
            result = simulate(load.at_rate(rate), limits, law)
            left = left - [late.together.sum() for late in self._late(result, requests)]
            doubts -= planned is not None and self._queue(result) >= longest_queue(self._gaps, planned)
            if (left < 0).any() or doubts < 0:
                return False
        return True

    def _queue(self, result: TwinResult) -> float:
        warm = round(_WARM_UP * result.arrival_s.size)
        answered_s = np.where(np.isnan(result.first_s), result.arrival_s, result.first_s)
        return queue_beyond_service(waiting_found(result.arrival_s, answered_s)[warm:], self._gaps)

    @property
    def _gaps(self) -> float:
        """The squared coefficient of variation of the gaps."""
        return 1 / self.traffic.burstiness if self.traffic.burstiness is not None else 0.0

    @cached_property
    def _sizes(self) -> Floats:
        """Requests of each kind that count, over all runs."""
        kinds = np.concatenate([requests.kind[round(_WARM_UP * requests.kind.size) :] for requests in self.requests])
        if len(self.targets) == 1:
            return np.array([kinds.size], dtype=np.float64)
        return np.bincount(kinds, minlength=len(self.targets)).astype(np.float64)

    def _late(self, result: TwinResult, requests: TwinRequests) -> list[_Late]:
        """For each kind of requests, which of them miss their targets."""
        warm = round(_WARM_UP * result.arrival_s.size)
        kinds = requests.kind[warm:]
        found = []
        for kind, slo in enumerate(self.targets):
            own = kinds == kind if len(self.targets) > 1 else slice(None)
            late = _Late(np.zeros(kinds[own].size, dtype=np.bool_), {})
            for name, values, target, factor in (
                (Missed.TTFT, result.ttft_s, slo.ttft_s, self.tails.ttft),
                (Missed.TPOT, result.tpot_s, slo.tpot_s, self.tails.tpot),
                (Missed.E2E, result.e2e_s, slo.e2e_s, self.tails.tpot),
                (Missed.REJECTED, result.rejected.astype(np.float64), 0.5, 1.0),
            ):
                if target is not None:
                    over = values[warm:][own] > _shrunk(target, values[warm:][own], factor)
                    late.together[over] = True
                    late.counts[name] = int(over.sum())
            found.append(late)
        return found


def _shrunk(target_s: float, values: Floats, factor: float) -> float:
    """What a latency has to be above to be above the target once its tail is `factor` times as long."""
    if factor <= 1:
        return target_s
    median = _median(values)
    return median + (target_s - median) / factor if target_s > median else target_s


def _p99(values: Floats, factor: float) -> float:
    known = values[~np.isnan(values)]
    if not known.size:
        return 0.0
    median = _median(known)
    return median + factor * (float(np.quantile(known, 1 - ALLOWED_SHARE)) - median)


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else 0.0
