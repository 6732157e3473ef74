"""The verdict on a certification stage: does the share of requests that miss the SLO lie below 1%?

The test may be looked at after every request. For misses as independent events of probability p it is an
e-process (a nonnegative process of mean at most 1 under the hypothesis), so by Ville's inequality it ever
exceeds 1/alpha with probability at most alpha, however often one peeks (Ville 1939; Robbins, Ann. Math.
Statist. 41, 1970; Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", Statist. Sci.
38, 2023). The process is the likelihood ratio of k misses in n requests against the allowed share p0, mixed
over the shares q on the other side of p0 with a truncated Beta prior:

    E = 1/W * integral of q^(k+a-1) (1-q)^(n-k+b-1) dq / (p0^k (1-p0)^(n-k)),   W = integral of the prior

both integrals over (0, p0) to PASS and over (p0, 1) to FAIL: incomplete Beta functions. For q on the other
side of p0 the ratio's mean is linear in the true p and 1 at p = p0, so it is at most 1 under the whole
hypothesis, not only at its edge.

A stage that reaches its planned end undecided is looked at once more, by the exact binomial bounds: that look
is planned, so it needs no protection against peeking, and decides where the e-process would want twice as many
requests. The chances of a wrong verdict at the very edge, by peeking and by that look, add up.

Misses come in clusters, because a queue that is long now is long for the next requests too. Both counts are
therefore divided by the variance inflation of the misses so far, which is the usual correction of a
likelihood for dependent data and no longer exact. It cannot see a queue that grows too slowly to have led to a
miss yet: `pass_floor` says how long a stage has to be for that, and `critical_load` looks at the queue itself.

A certification claims less than it offers: that at most 1% miss at the offered rate over 1.2. If that is not so,
misses that have nothing to do with the load are 1% at the offered rate, too, but those of a queue are far more. A
wait has the tail exp(-θ (1 - ρ) t) (Kingman, J. R. Stat. Soc. B 24, 1962), so 1% at ρ / 1.2 becomes

    0.01 ^ ((1 - ρ) / (1 - ρ / 1.2)) ≥ 2%    at an offered utilisation ρ ≥ 0.51.

Of a cluster of φ misses, φ the variance inflation, one may have nothing to do with the load, the others follow from
the queue. Where nothing failed the last look therefore holds the corrected counts against (1 + 2 (φ - 1)) / φ percent
(`Claim.PROMISED`): against 1% where misses are independent, up to 2% where they come in large clusters. Because φ
is itself an estimate, the share that was seen must stay below 0.8%. Failures are not a queue's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from scipy import special

from kneekeeper.api.offered_load import Arrivals, Closed
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.arrivals import gap_variation
from kneekeeper.domain.availability import availability_of
from kneekeeper.domain.samples import Bools, StageData
from kneekeeper.domain.stats import share_lower_bound, share_upper_bound, variance_inflation

SAFETY = 1.2
"""Offered rate of a certification over the promised rate. Evidence: `make bench-verdicts`,
docs/results/verdicts.md."""

OFFERED_SHARE = 0.92
"""Of the highest predicted rate λ*, what a certification offers. λ* is an estimate whose upper half is as likely wrong
as right, and at λ* itself, where one in a hundred misses, no test decides. A little below it hardly any request misses,
and a PASS comes soon."""

ALLOWED_SHARE = 0.01
"""Targets are P99s."""

QUEUED_SHARE = 2 * ALLOWED_SHARE
"""Of misses that a queue leads to, at the offered rate, where the allowed share misses at the promised one."""

MOST_SEEN_SHARE = 0.8 * ALLOWED_SHARE
"""No PASS of a promised load on a larger share of misses, whatever their clusters."""

PEEKING_ALPHA = 0.025
CLOSING_ALPHA = 0.05
"""Chance of a wrong PASS, and of a wrong FAIL, of independent misses at the very edge, while the stage runs and by
the last look. The first is smaller, since it is also where misses that come in clusters deceive: an early look has
seen few of them."""

MIN_PASS_REQUESTS = 650
MIN_PASS_REQUESTS_PER_SEQUENCE = 6
"""No PASS on fewer: first the batch has to fill, then the queue."""

RELAXATION_REQUESTS = 425
SERVICE_VARIATION = 2.0
"""No PASS within the time in which a queue forgets that it was empty, (ca² + cs²) / (1 - ρ)² arrivals with squared
coefficients of variation of gaps and service (reflected Brownian motion; Whitt, "Planning queueing simulations",
Management Science 35, 1989). The first is 1 / (1 - ρ)² for utilisations up to ρ = 0.95, the second is taken for cs²:
lengths have long tails. A lower utilisation that is known does not make it shorter: where a target is missed far below
saturation the misses come in rare clusters, and a floor of eleven times the relaxation at ρ = 0.72 let one undeserved
stage in six pass (bursty arrivals, the engines of bench-verdicts)."""

BACKLOG_TARGETS = 10
"""Beyond saturation the wait grows by a share of the time that has passed. An overload of 10% takes ten times the
target to show in latencies: no PASS before so many targets' worth of arrivals."""

CERTIFY_REQUESTS = 3000
ROOM_TO_PASS = 1.5
"""A certification plans for so many requests, and for so many times those below which nothing passes: warm-up is cut,
and a miss needs more of them."""

MIN_FAIL_REQUESTS = 20
"""No FAIL on fewer: one hiccup at the start is not a rate that cannot be carried."""

_REPLAY_SLACK = 0.95
"""The stage stops when the agent's own test passes; its last warm-up cut may leave a few requests fewer."""

_LOOK_SHARE = 0.02
"""The test decides at counts that grow by this share, so that a long stage does not cost more with each request."""

_THRESHOLD = -math.log(PEEKING_ALPHA)
_FORECAST_GROWTH = 1.02
LONGEST_FORECAST = 200_000
_PASS_PRIOR = (0.5, 1.0)  # mass near zero misses: of a = 0.1 … 1 the best over true shares 0 … 0.5%
_FAIL_PRIOR = (0.5, 20.0)  # mass at 1 … 10%, where a wrong rate lands; fastest of those tried at 1.5 … 5%


class Claim(Enum):
    """Of which load a PASS says that it holds the SLO."""

    OFFERED = auto()
    """Of the one that was offered."""

    PROMISED = auto()
    """Of the offered one over `SAFETY`."""


def _log_mixture(
    misses: float,
    requests: float,
    allowed_share: float,
    prior: tuple[float, float],
    integral: Callable[[float, float, float], Any],
) -> float:
    """log E; `integral` is the regularised incomplete Beta function of the side that is mixed over."""
    a, b = prior
    posterior_a, posterior_b = a + misses, b + requests - misses
    inside = integral(posterior_a, posterior_b, allowed_share)
    if inside <= 0:
        return -np.inf
    return float(
        special.betaln(posterior_a, posterior_b)
        + np.log(inside)
        - special.betaln(a, b)
        - np.log(integral(a, b, allowed_share))
        - misses * np.log(allowed_share)
        - (requests - misses) * np.log1p(-allowed_share)
    )


@dataclass(frozen=True)
class ShareBounds:
    """Exact one-sided 95% bounds of the share of misses (Clopper-Pearson), each on its own.

    Counts are divided by the variance inflation `inflation`: `requests / inflation` is the effective sample size.
    """

    lower: float
    upper: float
    inflation: float


def share_bounds(misses: Bools) -> ShareBounds:
    """The bounds of the share of True; [0, 1] without requests."""
    inflation = variance_inflation(misses)
    events, trials = float(misses.sum()) / inflation, misses.size / inflation
    confidence = 1 - CLOSING_ALPHA
    return ShareBounds(
        share_lower_bound(events, trials, confidence), share_upper_bound(events, trials, confidence), inflation
    )


class SequentialTest:
    """Feed it misses in the order of intended send times; its first verdict stands.

    It decides at fixed counts of requests, so its verdict does not depend on how they are fed. `claim` matters to
    the last look alone.
    """

    def __init__(self, min_pass_requests: int = MIN_PASS_REQUESTS, claim: Claim = Claim.OFFERED) -> None:
        self._min_pass_requests = min_pass_requests
        self._claim = claim
        self._misses = bytearray()
        self._next_look = min(MIN_FAIL_REQUESTS, min_pass_requests)
        self._verdict: Verdict | None = None

    def update(self, misses: Iterable[bool]) -> None:
        """Take the next requests: True for each that missed the SLO or failed."""
        self._misses.extend(bool(missed) for missed in misses)
        while self._verdict is None and self._next_look <= len(self._misses):
            seen = self._seen()[: self._next_look]
            self._verdict = self._decide(float(seen.sum()), seen.size, variance_inflation(seen))
            step = max(1, round(_LOOK_SHARE * self._next_look))
            floor = self._min_pass_requests
            self._next_look = floor if self._next_look < floor < self._next_look + step else self._next_look + step

    def _seen(self) -> Bools:
        return np.frombuffer(bytes(self._misses), dtype=np.bool_)

    def _decide(self, misses: float, requests: float, inflation: float) -> Verdict | None:
        k, n = misses / inflation, requests / inflation
        few = misses <= ALLOWED_SHARE * requests
        if (
            few
            and requests >= self._min_pass_requests
            and _log_mixture(k, n, ALLOWED_SHARE, _PASS_PRIOR, special.betainc) >= _THRESHOLD
        ):
            return Verdict.PASS
        if (
            not few
            and requests >= MIN_FAIL_REQUESTS
            and _log_mixture(k, n, ALLOWED_SHARE, _FAIL_PRIOR, special.betaincc) >= _THRESHOLD
        ):
            return Verdict.FAIL
        return None

    def _close(self, misses: float, requests: float, inflation: float) -> Verdict | None:
        k, n = misses / inflation, requests / inflation
        confidence = 1 - CLOSING_ALPHA
        if requests >= self._min_pass_requests:
            upper = share_upper_bound(k, n, confidence)
            if self._claim is Claim.OFFERED and upper < ALLOWED_SHARE:
                return Verdict.PASS
            if self._claim is Claim.PROMISED and misses < MOST_SEEN_SHARE * requests:
                first, following = 1 / inflation, 1 - 1 / inflation
                if upper < first * ALLOWED_SHARE + following * QUEUED_SHARE:
                    return Verdict.PASS
        if requests >= MIN_FAIL_REQUESTS and share_lower_bound(k, n, confidence) > ALLOWED_SHARE:
            return Verdict.FAIL
        return None

    def close(self) -> Verdict | None:
        """The verdict at the planned end of a stage: the test's own, else that of the exact bounds (see the
        module's docstring). Asked at a moment that the misses chose, it is not honest."""
        if self._verdict is None:
            seen = self._seen()
            self._verdict = self._close(float(seen.sum()), seen.size, variance_inflation(seen))
        return self._verdict

    @property
    def verdict(self) -> Verdict | None:
        """PASS or FAIL once decided, else None."""
        return self._verdict

    @property
    def requests(self) -> int:
        return len(self._misses)

    def requests_to_decide(self) -> int:
        """How many more requests a stage of that length would take to be decided at its end, if misses go on at
        their share so far, in clusters as large; 0 once decided.

        At most `LONGEST_FORECAST`, which also means that the share is too close to the allowed one to tell.
        """
        if self._verdict is not None:
            return 0
        seen = len(self._misses)
        inflation = variance_inflation(self._seen())
        share = sum(self._misses) / seen if seen else 0.0
        total = float(max(seen, 1))
        while total < seen + LONGEST_FORECAST:
            total = math.ceil(total * _FORECAST_GROWTH)
            if self._close(share * total, total, inflation) is not None:
                break
        return min(round(total) - seen, LONGEST_FORECAST)


@dataclass(frozen=True)
class CertifyResult:
    """What a stage says of an SLO: the verdict, with the exact bounds of the share of misses beside it.

    `message` says what was found; what to do about an INCONCLUSIVE is said where the stage was planned.
    """

    verdict: Verdict
    requests: int
    misses: int
    bounds: ShareBounds
    message: str
    requests_to_decide: int


def pass_floor(arrivals: Arrivals, slo: Slo, max_num_seqs: int = 0) -> int:
    """Requests after warm-up below which no stage passes: in fewer, a load that is too high may not have shown.

    The largest of what the batch takes to fill, what the queue takes to forget that it was empty, and what a
    growing backlog takes to reach the targets. `max_num_seqs` 0 where it is not known. An open loop alone queues
    without limit: a replay is one whose gaps vary as those of Poisson, and whose rate is known where it was set.
    """
    floors = [MIN_PASS_REQUESTS, MIN_PASS_REQUESTS_PER_SEQUENCE * max_num_seqs]
    if not isinstance(arrivals, Closed):
        floors.append(settling_requests(arrivals))
        waits_s = [target for target in (slo.ttft_s, slo.e2e_s) if target is not None]
        if waits_s and arrivals.rate is not None:
            floors.append(math.ceil(BACKLOG_TARGETS * min(waits_s) * arrivals.rate))
    return max(floors)


def settling_requests(arrivals: Arrivals) -> int:
    """What the queue of an open loop takes to forget that it was empty."""
    return round(RELAXATION_REQUESTS * (gap_variation(arrivals) + SERVICE_VARIATION))


def planned_requests(floor: int) -> int:
    """How many requests a certification plans that passes on no fewer than `floor`."""
    return max(CERTIFY_REQUESTS, math.ceil(ROOM_TO_PASS * floor))


def verdict_of(
    data: StageData,
    slo: Slo,
    min_pass_requests: int = MIN_PASS_REQUESTS,
    *,
    unsteady: str = "",
    claim: Claim = Claim.OFFERED,
) -> CertifyResult:
    """The verdict on an ended stage: the sequential test replayed over its requests after warm-up, closed by the
    exact bounds; INCONCLUSIVE when undecided.

    Where an availability is promised, its own exact bounds must hold as well. `unsteady` is a sentence that says why
    the stage was not steady at its end, or may be critically loaded: what has not settled may get worse, so it does not
    pass.
    """
    warm = data.after_warmup()
    missed = warm.misses(slo)
    if not warm.ok.all():
        claim = Claim.OFFERED  # more load does not tell failures apart
    test = SequentialTest(round(_REPLAY_SLACK * min_pass_requests), claim)
    test.update(missed.tolist())
    verdict = test.close() or Verdict.INCONCLUSIVE
    requests, misses, bounds = int(missed.size), int(missed.sum()), share_bounds(missed)
    to_decide = test.requests_to_decide()
    counted = f"{misses} of {requests} requests missed the SLO"
    counted += f" (share {bounds.lower:.2%} to {bounds.upper:.2%}, each with {1 - CLOSING_ALPHA:.0%} confidence)"
    if slo.availability is not None:
        held = availability_of(warm.ok, slo.availability)
        counted = f"{held.message} {counted}"
        if held.verdict is Verdict.FAIL or (held.verdict is Verdict.INCONCLUSIVE and verdict is Verdict.PASS):
            return CertifyResult(held.verdict, requests, misses, bounds, held.message, to_decide)
    if verdict is Verdict.PASS and unsteady:
        verdict, to_decide = Verdict.INCONCLUSIVE, max(requests, min_pass_requests)
        message = f"{counted}. {unsteady} About {to_decide} more are needed to tell."
    elif verdict is Verdict.PASS and bounds.upper >= ALLOWED_SHARE:
        message = f"{counted}; at the promised rate, the offered one over {SAFETY}, fewer than {ALLOWED_SHARE:.0%} do."
    elif verdict is Verdict.PASS:
        message = f"{counted}; fewer than {ALLOWED_SHARE:.0%} do."
    elif verdict is Verdict.FAIL:
        message = f"{counted}; more than {ALLOWED_SHARE:.0%} do."
    elif to_decide >= LONGEST_FORECAST:
        message = f"{counted}; that is too close to {ALLOWED_SHARE:.0%} to tell."
    else:
        message = f"{counted}; about {to_decide} more are needed to tell."
    return CertifyResult(verdict, requests, misses, bounds, message, to_decide)
