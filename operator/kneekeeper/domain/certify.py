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

Misses come in clusters, because a queue that is long now is long for the next requests too. Both counts are
therefore divided by the variance inflation of the misses so far, which is the usual correction of a
likelihood for dependent data and no longer exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.samples import StageData
from kneekeeper.domain.stats import share_upper_bound, variance_inflation

SAFETY = 1.2
"""Offered rate of a certification over the promised rate.

Measured in simulations of four batching servers (16 to 256 sequences, 60 runs each) whose P99 TTFT just meets
the target at the rate L, started empty, with the floors below: an offered 1.2 L passed in 0 to 5% of the
runs, 1.1 L in 5 to 50%, L itself in more than half. A PASS thus says little of the offered rate; it is honest
for the offered rate over 1.2.
"""

ALLOWED_SHARE = 0.01
"""Targets are P99s."""

MIN_PASS_REQUESTS = 650
MIN_PASS_REQUESTS_PER_SEQUENCE = 6
"""No PASS on fewer: where the backlog grows it needs time to show, first to fill the batch, then to queue.
In those simulations, warm-up hardly cut, 1.2 L passed at 377 requests (where no miss suffices) in 12 to 100%
of the runs, at 600 in 5, 5, 12 and 73% (16, 64, 128, 256 sequences), at six requests a sequence in 0 to 2%."""

MIN_FAIL_REQUESTS = 20
"""No FAIL on fewer: one hiccup at the start is not a rate that cannot be carried."""

_REPLAY_SLACK = 0.95
"""The stage stops when the agent's own test passes; its last warm-up cut may leave a few requests fewer."""

_REPLAY_STEP = 10
_FORECAST_GROWTH = 1.1
_LONGEST_FORECAST = 200_000
_PASS_PRIOR = (0.5, 1.0)  # mass near zero misses: of a = 0.1 … 1 the best over true shares 0 … 0.5%
_FAIL_PRIOR = (0.5, 20.0)  # mass at 1 … 10%, where a wrong rate lands; fastest of those tried at 1.5 … 5%


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


class SequentialTest:
    """Feed it misses in the order of intended send times; its first verdict stands.

    `allowed_share` is the share of misses that the SLO allows, `alpha` the chance of a wrong PASS, and of a
    wrong FAIL, for independent misses.
    """

    def __init__(
        self,
        allowed_share: float = ALLOWED_SHARE,
        alpha: float = 0.05,
        min_pass_requests: int = MIN_PASS_REQUESTS,
    ) -> None:
        self._allowed_share = allowed_share
        self._threshold = -np.log(alpha)
        self._min_pass_requests = min_pass_requests
        self._misses: list[bool] = []
        self._verdict: Verdict | None = None

    def update(self, misses: Sequence[bool] | Iterable[bool]) -> None:
        """Take the next requests: True for each that missed the SLO or failed."""
        self._misses.extend(bool(missed) for missed in misses)
        if self._verdict is None:
            inflation = variance_inflation(self._misses)
            self._verdict = self._decide(sum(self._misses), len(self._misses), inflation)

    def _decide(self, misses: float, requests: float, inflation: float) -> Verdict | None:
        k, n, share = misses / inflation, requests / inflation, self._allowed_share
        if (
            requests >= self._min_pass_requests
            and _log_mixture(k, n, share, _PASS_PRIOR, special.betainc) >= self._threshold
        ):
            return Verdict.PASS
        if (
            requests >= MIN_FAIL_REQUESTS
            and _log_mixture(k, n, share, _FAIL_PRIOR, special.betaincc) >= self._threshold
        ):
            return Verdict.FAIL
        return None

    @property
    def verdict(self) -> Verdict | None:
        """PASS or FAIL once decided, else None."""
        return self._verdict

    @property
    def requests(self) -> int:
        return len(self._misses)

    def requests_to_decide(self) -> int:
        """How many more requests a decision takes if misses go on at their share so far; 0 once decided.

        At most 200,000, which also means that the share is too close to the allowed one to tell.
        """
        if self._verdict is not None:
            return 0
        seen, inflation = len(self._misses), variance_inflation(self._misses)
        share = sum(self._misses) / seen if seen else 0.0
        total = float(max(seen, 1))
        while total < seen + _LONGEST_FORECAST:
            total = max(total + 1, total * _FORECAST_GROWTH)
            if self._decide(share * total, total, inflation) is not None:
                break
        return min(round(total) - seen, _LONGEST_FORECAST)


@dataclass(frozen=True)
class CertifyResult:
    """What a stage says of an SLO. `upper_share` is the 95% upper bound of the share of misses, with its counts
    divided by their variance inflation."""

    verdict: Verdict
    requests: int
    misses: int
    upper_share: float
    message: str
    requests_to_decide: int


def pass_floor(max_num_seqs: int) -> int:
    """Requests after warm-up below which no certification of this many sequences passes."""
    return max(MIN_PASS_REQUESTS, MIN_PASS_REQUESTS_PER_SEQUENCE * max_num_seqs)


def verdict_of(data: StageData, slo: Slo, min_pass_requests: int = MIN_PASS_REQUESTS) -> CertifyResult:
    """Replay the sequential test over the stage's requests after warm-up; INCONCLUSIVE when undecided."""
    missed = data.after_warmup().misses(slo)
    test = SequentialTest(min_pass_requests=round(_REPLAY_SLACK * min_pass_requests))
    for start in range(0, missed.size, _REPLAY_STEP):
        test.update(missed[start : start + _REPLAY_STEP].tolist())
        if test.verdict is not None:
            break
    requests, misses = int(missed.size), int(missed.sum())
    inflation = variance_inflation(missed)
    upper_share = share_upper_bound(misses / inflation, requests / inflation)
    counted = f"{misses} of {requests} requests missed the SLO"
    to_decide = test.requests_to_decide()
    match test.verdict:
        case Verdict.PASS:
            message = f"{counted}; fewer than {ALLOWED_SHARE:.0%} do."
        case Verdict.FAIL:
            message = f"{counted}; more than {ALLOWED_SHARE:.0%} do."
        case _:
            message = f"{counted}; about {to_decide} more are needed to tell. Allow longer stages."
    return CertifyResult(test.verdict or Verdict.INCONCLUSIVE, requests, misses, upper_share, message, to_decide)
