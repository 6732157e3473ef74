"""A predictor from the stages of a run, corrected by the open-loop stages that it should have predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.boundary import Boundary, tail_curve
from kneekeeper.domain.control import usable
from kneekeeper.domain.knee import ThroughputFit
from kneekeeper.domain.prediction import Predictor, Traffic
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.steptime import StepTime

MOST_SCALE = 1.5
"""A single stage's P99 is off by this much near saturation; to follow it further would be believing noise."""

P99_NOISE = 0.2
"""Standard deviation of the logarithm of a P99 of 300 requests with log-normal prompts: the third longest."""

MOST_CAUTION = 1.5
"""Of the boundary's estimate over its lower limit: a wider interval says that little is known, not that the
boundary is lower still."""


def calibrated(
    stages: Sequence[StageSummary],
    fit: ThroughputFit,
    boundary: Boundary,
    step_time: StepTime | None,
    traffic: Traffic,
) -> Predictor | None:
    """The predictor for stages of which the void ones are marked; None where no ramp stage has a TPOT.

    Where open-loop stages or failed certifications had higher P99s than predicted for their setting and rate,
    all predictions are raised by as much; never lowered, since a single quiet stage proves little.
    """
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    tail = tail_curve(stages)
    if not ramp or tail is None or step_time is None:
        return None
    first = ramp[0]
    own_steps_s = step_time.step_s(0, float(np.median(traffic.prompts)))
    bare = Predictor(
        traffic=traffic,
        throughput=_throughput(ramp, fit),
        tail=tail,
        step_time=step_time,
        overhead_s=max(0.0, (first.p50_ttft or 0.0) - own_steps_s),
        caution=_caution(boundary),
    )
    open_loop = _ratios(bare, usable(stages, StageKind.OPEN))
    certified = _ratios(bare, usable(stages, StageKind.CERTIFY))
    return bare.with_scales(
        _scale([r.ttft for r in open_loop], [r.ttft for r in certified]),
        _scale([r.tpot for r in open_loop], [r.tpot for r in certified]),
    )


@dataclass(frozen=True)
class _Ratios:
    """Measured over predicted P99s of one stage."""

    ttft: float
    tpot: float


def _ratios(predictor: Predictor, stages: Sequence[StageSummary]) -> list[_Ratios]:
    predicted = [
        (stage, predictor.predict(stage.setting, stage.offered_requests_per_second))
        for stage in stages
        if stage.offered_requests_per_second and not stage.saturated
    ]
    return [_Ratios(_over(stage.p99_ttft, p.p99_ttft_s), _over(stage.p99_tpot, p.p99_tpot_s)) for stage, p in predicted]


def _scale(open_loop: Sequence[float], certified: Sequence[float]) -> float:
    """What the short stages show beyond chance, or what a long one showed; from 1 to the most that is believed."""
    if open_loop:
        beyond_chance = np.mean(np.log(open_loop)) - P99_NOISE / np.sqrt(len(open_loop))
        certified = [*certified, float(np.exp(beyond_chance))]
    return min(MOST_SCALE, max([1.0, *certified]))


def _over(measured_s: float | None, predicted_s: float) -> float:
    return 1.0 if not measured_s or not np.isfinite(predicted_s) else measured_s / predicted_s


def _caution(boundary: Boundary) -> float:
    if boundary.tpot is None or boundary.met_everywhere or boundary.tpot.lower <= 0:
        return 1.0
    return min(MOST_CAUTION, boundary.tpot.estimate / boundary.tpot.lower)


def _throughput(ramp: Sequence[StageSummary], fit: ThroughputFit) -> Floats:
    """X(n) for n = 1 … the highest level: the fit, else what was measured, interpolated and never falling."""
    users = np.arange(1, (ramp[-1].users or 1) + 1, dtype=np.float64)
    fitted = [fit.requests_per_s(float(n)) for n in users]
    known = [x for x in fitted if x is not None]
    if len(known) == len(fitted):
        return np.array(known, dtype=np.float64)
    levels = [float(stage.users or 1) for stage in ramp]
    measured = np.maximum.accumulate([stage.requests_per_second for stage in ramp])
    return np.asarray(np.interp(users, levels, measured), dtype=np.float64)
