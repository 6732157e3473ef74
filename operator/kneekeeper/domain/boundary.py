"""The largest concurrency whose P99 TPOT meets its target, from a closed-loop ramp.

P99 TPOT at closed-loop concurrency N is close to that of a server with max_num_seqs = N under overload, so
one ramp under a high ceiling tells what every lower limit would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy import stats as distributions

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.stats import Interval, bootstrap, percentile_interval

CONFIDENCE = 0.90
BOOTSTRAP_REPEATS = 500
_SEED = 20_242
_Z99 = float(distributions.norm.ppf(0.99))
_LEAST_SPREAD = 0.02
"""Of the logarithm of TPOT: a stage whose requests are all alike still varies from run to run."""


@dataclass(frozen=True)
class Boundary:
    """`tpot` is None where no target is set, or where no level meets it."""

    tpot: Interval | None
    met_everywhere: bool
    met_nowhere: bool


@dataclass(frozen=True)
class TailCurve:
    """P99 TPOT over concurrency, monotone: seconds at the ramp's levels."""

    users: Floats
    p99_tpot_s: Floats

    def at(self, users: float) -> float:
        """Seconds, interpolated on logarithms; constant beyond the levels that were measured."""
        return float(np.exp(np.interp(np.log(users), np.log(self.users), np.log(self.p99_tpot_s))))

    def crossing(self, target_s: float) -> float:
        """The largest concurrency at which the curve is not above the target; 0 when it nowhere is."""
        if self.p99_tpot_s[0] > target_s:
            return 0.0
        above = np.flatnonzero(self.p99_tpot_s > target_s)
        if not above.size:
            return float(self.users[-1])
        right = int(above[0])
        low, high = np.log(self.p99_tpot_s[right - 1]), np.log(self.p99_tpot_s[right])
        share = (np.log(target_s) - low) / (high - low)
        left_users, right_users = np.log(self.users[right - 1]), np.log(self.users[right])
        return float(np.exp(left_users + share * (right_users - left_users)))


def tail_curve(stages: Sequence[StageSummary]) -> TailCurve | None:
    """The isotonic fit of P99 TPOT over the usable ramp stages, weighted by requests; None without any."""
    ramp = _ramp(stages)
    if not ramp:
        return None
    return _monotone(ramp, np.array([stage.p99_tpot for stage in ramp], dtype=np.float64))


def slo_boundary(stages: Sequence[StageSummary], slo: Slo) -> Boundary:
    """Where the monotone fit of P99 TPOT crosses the target, with a 90% interval; use its lower limit.

    The interval comes from redrawing each stage's P99: the order statistic that it is, of a log-normal
    through the stage's median and P99. Latencies of one stage are not independent, so it errs to the narrow
    side; certification settles the rest.
    """
    curve = tail_curve(stages)
    if slo.tpot_s is None or curve is None:
        return Boundary(None, met_everywhere=slo.tpot_s is None, met_nowhere=False)
    estimate = curve.crossing(slo.tpot_s)
    if estimate == 0:
        return Boundary(None, met_everywhere=False, met_nowhere=True)
    ramp, target_s = _ramp(stages), slo.tpot_s

    def draw(rng: np.random.Generator) -> float:
        return max(_monotone(ramp, _redraw(ramp, rng)).crossing(target_s), float(curve.users[0]))

    draws = bootstrap(draw, repeats=BOOTSTRAP_REPEATS, seed=_SEED)
    met_everywhere = bool(curve.p99_tpot_s[-1] <= target_s)
    return Boundary(percentile_interval(estimate, draws, CONFIDENCE), met_everywhere, met_nowhere=False)


def _ramp(stages: Sequence[StageSummary]) -> list[StageSummary]:
    ramp = [stage for stage in usable(stages, StageKind.RAMP) if stage.p99_tpot and stage.users]
    return sorted(ramp, key=lambda stage: stage.users or 0)


def _monotone(ramp: Sequence[StageSummary], p99_tpot_s: Floats) -> TailCurve:
    weights = np.array([stage.requests for stage in ramp], dtype=np.float64)
    fitted = optimize.isotonic_regression(np.log(p99_tpot_s), weights=weights).x
    return TailCurve(np.array([stage.users for stage in ramp], dtype=np.float64), np.exp(fitted))


def _redraw(ramp: Sequence[StageSummary], rng: np.random.Generator) -> Floats:
    medians = np.array([stage.p50_tpot or stage.p99_tpot for stage in ramp], dtype=np.float64)
    tails = np.array([stage.p99_tpot for stage in ramp], dtype=np.float64)
    requests = np.array([stage.requests for stage in ramp], dtype=np.float64)
    spread = np.maximum(np.log(tails / medians) / _Z99, _LEAST_SPREAD)
    rank = np.ceil(0.99 * requests)
    share = rng.beta(rank, requests - rank + 1)
    return np.asarray(medians * np.exp(spread * distributions.norm.ppf(share)), dtype=np.float64)
