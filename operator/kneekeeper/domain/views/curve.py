"""A run's curves: what was measured at each level, the fitted throughput, the knee, and where replicas work now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import StageKind, TuningRun, Verdict
from kneekeeper.domain.control import usable
from kneekeeper.domain.knee import throughput_band
from kneekeeper.domain.views.fleet import Knee, Limits, Targets
from kneekeeper.domain.views.production import ReplicaView, replica_view
from kneekeeper.domain.views.run import StageView, run_view
from kneekeeper.domain.views.units import four_digits

CURVE_POINTS = 48
BEYOND = 1.1
"""Times the highest level: how far the curve of the fit is drawn."""


@dataclass(frozen=True)
class BandPoint:
    """Throughput of a closed loop with its 90% band, requests/s."""

    concurrency: float
    requests_per_second: float
    lower: float
    upper: float


@dataclass(frozen=True)
class CurveView:
    """Of one run. `levels` are the usable stages of the ramp, by concurrency; `replicas` are as they are now, and
    empty where their profile is not at hand."""

    namespace: str
    run: str
    profile: str
    slo: Targets | None
    knee: Knee | None
    tpot_boundary: Knee | None
    verdict: str
    message: str
    limits: Limits | None
    """What the run proposed last, else what the workload had."""
    promised_requests_per_second: float | None
    levels: tuple[StageView, ...]
    band: tuple[BandPoint, ...]
    replicas: tuple[ReplicaView, ...]


def curve_view(run: TuningRun, profile: ServingProfile | None) -> CurveView:
    """`profile` is the run's own."""
    view = run_view(run)
    levels = [
        stage
        for stage in view.stages
        if stage.kind == StageKind.RAMP and stage.requests and stage.verdict not in (Verdict.INVALID, Verdict.VOID)
    ]
    proven = view.certifications[-1] if view.certifications else None
    fit = view.fit
    return CurveView(
        namespace=view.namespace,
        run=view.name,
        profile=view.profile,
        slo=view.slo,
        knee=fit.knee if fit else None,
        tpot_boundary=fit.tpot_boundary if fit else None,
        verdict=fit.verdict if fit else "",
        message=fit.message if fit else view.message,
        limits=view.choices[-1].limits if view.choices else view.present,
        promised_requests_per_second=proven.promised_requests_per_second
        if proven is not None and proven.verdict == Verdict.PASS
        else None,
        levels=tuple(sorted(levels, key=lambda stage: stage.concurrency)),
        band=band(run),
        replicas=tuple(replica_view(each) for each in profile.status.replicas) if profile is not None else (),
    )


def band(run: TuningRun) -> tuple[BandPoint, ...]:
    """The fitted throughput over concurrency, a little beyond the highest level; empty without a fit."""
    ramp = usable(run.status.stages, StageKind.RAMP)
    highest = max((stage.users or 0 for stage in ramp), default=0)
    if highest < 1:
        return ()
    users = [float(each) for each in np.geomspace(1.0, BEYOND * highest, CURVE_POINTS)]
    return tuple(
        BandPoint(four_digits(each), *(four_digits(value) for value in (point.estimate, point.lower, point.upper)))
        for each, point in zip(users, throughput_band(run.status.stages, users), strict=False)
    )
