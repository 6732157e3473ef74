"""The knee of throughput over concurrency, from a closed-loop ramp.

With a step time that is linear in the batch, a closed loop of N requests has the throughput

    X(N) = N / (alpha + beta N),     clipped at a cap where KV cache, sequences or client end the growth.

It has no sharp knee: the asymptotes' crossing, the USL's 1/sigma and the largest power X/R are all N = alpha/beta,
where X is 50% of its limit. A knee is therefore a stated elasticity e = dlnX/dlnN = alpha / (alpha + beta N):
1% more concurrency gains e% more throughput. Elasticity 0.2 is N = 4 alpha/beta, 80% of the limit.
(Lazowska et al., Quantitative System Performance, 1984, ch. 5; Gunther's Universal Scalability Law with
kappa = 0.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.stats import Interval, bootstrap, percentile_interval

KNEE_ELASTICITY = 0.2
MIN_LEVELS = 4
"""Two parameters and the spread around them; below, an interval would be made of air."""
WIDEST_INTERVAL = 1.5
"""Upper over lower limit of the 90% interval. At 5% noise a ramp that passes the knee gives 1.25."""
CONFIDENCE = 0.90
BOOTSTRAP_REPEATS = 500
_SEED = 20_241
_LEAST_RELATIVE_ERROR = 0.01
_FAR_BEYOND = 100.0  # times the highest level: stands for no knee at all in a resample


class KneeVerdict(StrEnum):
    """What a ramp says of the knee."""

    KNEE = "Knee"
    NO_KNEE = "NoKnee"
    INCONCLUSIVE = "Inconclusive"


@dataclass(frozen=True)
class ThroughputFit:
    """X(N) = min(N / (alpha_s + beta_s N), cap) in requests/s; None where fewer than two levels were seen."""

    verdict: KneeVerdict
    alpha_s: float | None
    beta_s: float | None
    cap: float | None
    knee: Interval | None
    message: str

    def requests_per_s(self, users: float) -> float | None:
        """X(users), or None without a fit."""
        if self.alpha_s is None or self.beta_s is None:
            return None
        grown = users / (self.alpha_s + self.beta_s * users)
        return grown if self.cap is None else min(grown, self.cap)


@dataclass(frozen=True)
class _Curve:
    alpha_s: float
    beta_s: float
    cap: float = float("inf")

    def at(self, users: Floats) -> Floats:
        return np.minimum(users / (self.alpha_s + self.beta_s * users), self.cap)

    @property
    def clip_users(self) -> float:
        remaining = 1 - self.cap * self.beta_s
        return self.cap * self.alpha_s / remaining if np.isfinite(self.cap) and remaining > 0 else np.inf

    def knee(self, elasticity: float) -> float:
        if self.beta_s <= 0:
            return max(1.0, self.clip_users)
        by_elasticity = (1 - elasticity) / elasticity * self.alpha_s / self.beta_s
        return max(1.0, min(by_elasticity, self.clip_users))


@dataclass(frozen=True)
class KneeCap:
    """The most sequences of a choice where the knee is a hard cap, and a sentence for people that says why."""

    sequences: int
    message: str


def knee_cap(fit: ThroughputFit, stages: Sequence[StageSummary], elasticity: float) -> KneeCap | None:
    """The cap that `fit`, made with the same elasticity, sets; None without a usable ramp stage.

    Without a knee the ramp ended below it, or nothing is known: then the highest level that was measured is the cap.
    """
    ramp = usable(stages, StageKind.RAMP)
    if not ramp:
        return None
    if fit.knee is not None:
        sequences = max(1, int(fit.knee.estimate))
        return KneeCap(sequences, f"The knee at elasticity {elasticity:g} caps max_num_seqs at {sequences}.")
    most = max(stage.users or 1 for stage in ramp)
    why = "was not reached" if fit.verdict is KneeVerdict.NO_KNEE else "is not known"
    return KneeCap(most, f"The knee at elasticity {elasticity:g} {why}: the highest level, {most}, caps max_num_seqs.")


def fit_throughput(stages: Sequence[StageSummary], elasticity: float = KNEE_ELASTICITY) -> ThroughputFit:
    """Fit the usable ramp stages and find the knee of this elasticity with its 90% interval.

    Knee: the ramp passed it and the interval is narrow. NoKnee: it lies beyond the highest level, if
    anywhere. Inconclusive: too few levels, or too wide an interval.
    """
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    users = np.array([stage.users or 0 for stage in ramp], dtype=np.float64)
    if len(set(users.tolist())) < 2:
        message = f"{len(ramp)} usable ramp stages; {MIN_LEVELS} levels are needed."
        return ThroughputFit(KneeVerdict.INCONCLUSIVE, None, None, None, None, message)
    throughput = _requests_per_s(ramp)
    curve, clipped = _best_curve(users, throughput)
    fit = ThroughputFit(KneeVerdict.INCONCLUSIVE, curve.alpha_s, curve.beta_s, curve.cap if clipped else None, None, "")
    if len(users) < MIN_LEVELS:
        return replace(fit, message=f"{len(users)} usable ramp stages; {MIN_LEVELS} levels are needed.")
    if curve.knee(elasticity) > users[-1]:
        message = f"Throughput still grew by more than {elasticity:.0%} of the users added at {users[-1]:.0f} users."
        return replace(fit, verdict=KneeVerdict.NO_KNEE, message=message)
    knee = _knee_interval(users, throughput, curve, clipped, elasticity)
    if knee.ratio > WIDEST_INTERVAL:
        message = f"The knee lies between {knee.lower:.0f} and {knee.upper:.0f} users, too wide to name one."
        return replace(fit, knee=knee, message=message)
    at_the_clip = clipped and curve.knee(elasticity) == curve.clip_users
    what = "throughput stops growing" if at_the_clip else f"elasticity is {elasticity:g}"
    message = f"Knee at {knee.estimate:.0f} users ({knee.lower:.0f} to {knee.upper:.0f}): {what}."
    return replace(fit, verdict=KneeVerdict.KNEE, knee=knee, message=message)


def _requests_per_s(ramp: Sequence[StageSummary]) -> Floats:
    """Output tokens/s over the mean output of all stages.

    Lengths are drawn: a stage of 30 requests has a mean output that is off by 10% and more, and its
    requests/s with it, while its tokens/s is hardly touched.
    """
    requests = sum(stage.requests for stage in ramp)
    mean_output = sum(stage.output_tokens_mean * stage.requests for stage in ramp) / requests
    return np.array([stage.output_tokens_per_second for stage in ramp], dtype=np.float64) / max(mean_output, 1)


def _fit_plain(users: Floats, throughput: Floats) -> _Curve:
    """Least squares of N/X on (1, N) with relative errors, both parameters at least 0."""
    time = users / throughput
    design = np.column_stack([1 / time, users / time])
    (alpha, beta), *_ = np.linalg.lstsq(design, np.ones(users.size), rcond=None)
    if beta < 0:
        return _Curve(float(1 / np.mean(1 / time)), 0.0)
    if alpha < 0:
        return _Curve(1e-9, float(1 / np.mean(users / time)))
    return _Curve(float(alpha), float(beta))


def _fit_clipped(users: Floats, throughput: Floats) -> _Curve:
    """The best curve whose last two or more levels lie on a plateau."""
    curves = []
    for first_flat in range(2, users.size - 1):
        rising = _fit_plain(users[:first_flat], throughput[:first_flat])
        cap = float(np.exp(np.mean(np.log(throughput[first_flat:]))))
        curves.append(_Curve(rising.alpha_s, rising.beta_s, cap))
    return min(curves, key=lambda curve: _misfit(curve, users, throughput))


def _misfit(curve: _Curve, users: Floats, throughput: Floats) -> float:
    return float(np.sum(np.log(throughput / curve.at(users)) ** 2))


def _best_curve(users: Floats, throughput: Floats) -> tuple[_Curve, bool]:
    """Plain or clipped, whichever has the smaller AICc (Hurvich & Tsai 1989); True for clipped."""
    plain = _fit_plain(users, throughput)
    if users.size < MIN_LEVELS + 1:
        return plain, False
    clipped = _fit_clipped(users, throughput)
    better = _aicc(clipped, 3, users, throughput) < _aicc(plain, 2, users, throughput)
    return (clipped, True) if better else (plain, False)


def _aicc(curve: _Curve, parameters: int, users: Floats, throughput: Floats) -> float:
    n, k = users.size, parameters + 1  # the spread is one more
    if n - k - 1 <= 0:
        return float("inf")
    variance = max(_misfit(curve, users, throughput) / n, _LEAST_RELATIVE_ERROR**2)
    return float(n * np.log(variance) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def _knee_interval(users: Floats, throughput: Floats, curve: _Curve, clipped: bool, elasticity: float) -> Interval:
    resampled = _resampling(users, throughput, curve, clipped)

    def draw(rng: np.random.Generator) -> float:
        return min(resampled(rng).knee(elasticity), _FAR_BEYOND * float(users[-1]))

    draws = bootstrap(draw, repeats=BOOTSTRAP_REPEATS, seed=_SEED)
    return percentile_interval(curve.knee(elasticity), draws, CONFIDENCE)


def _resampling(
    users: Floats, throughput: Floats, curve: _Curve, clipped: bool
) -> Callable[[np.random.Generator], _Curve]:
    """Residual bootstrap: relative residuals, widened for the fitted parameters, on the fitted curve."""
    fitted = curve.at(users)
    parameters = 3 if clipped else 2
    residuals = np.log(throughput / fitted) * np.sqrt(users.size / max(users.size - parameters, 1))
    spread = max(float(np.sqrt(np.mean(residuals**2))), _LEAST_RELATIVE_ERROR)
    fit = _fit_clipped if clipped else _fit_plain

    def draw(rng: np.random.Generator) -> _Curve:
        noise = rng.choice(residuals, users.size) + rng.normal(0, spread / np.sqrt(users.size), users.size)
        return fit(users, fitted * np.exp(noise))

    return draw


def throughput_band(stages: Sequence[StageSummary], users: Sequence[float]) -> tuple[Interval, ...]:
    """The fitted X at each of `users` with its pointwise 90% interval, from the resamples that the knee's rests on.

    Empty where fewer than MIN_LEVELS levels were seen.
    """
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    levels = np.array([stage.users or 0 for stage in ramp], dtype=np.float64)
    if levels.size < MIN_LEVELS or len(set(levels.tolist())) < 2:
        return ()
    throughput, at = _requests_per_s(ramp), np.array(users, dtype=np.float64)
    curve, clipped = _best_curve(levels, throughput)
    resampled = _resampling(levels, throughput, curve, clipped)
    rng = np.random.default_rng(_SEED)
    draws = np.array([resampled(rng).at(at) for _ in range(BOOTSTRAP_REPEATS)])
    estimates = curve.at(at)
    return tuple(
        percentile_interval(float(estimate), draws[:, column], CONFIDENCE) for column, estimate in enumerate(estimates)
    )
