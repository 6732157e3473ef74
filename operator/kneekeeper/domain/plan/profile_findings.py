"""What is wrong with a profile's workload: each pod diagnosed against the last run, settled into status."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.serving_profile import Objective as DeclaredObjective
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import StageKind, TuningRun
from kneekeeper.api.workload import ArrivalProcess
from kneekeeper.domain.control import usable
from kneekeeper.domain.diagnose import (
    DiagnosisObservation,
    EngineReading,
    EngineSettings,
    MeasuredEngine,
    Objective,
    OutsideView,
    Window,
    WindowError,
    diagnose,
    window_of,
)
from kneekeeper.domain.diagnose.facts import WindowFacts
from kneekeeper.domain.diagnose.settle import settle
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.requests import slo_of
from kneekeeper.domain.steptime import StepTime
from kneekeeper.domain.target import Target

SHORTEST_WINDOW_S = 120.0
"""Below, a window says more of chance than of the engine."""

FEWEST_READINGS_TO_SPLIT = 16
"""From so many on, the older half is the earlier window that throughput is compared with."""


def with_findings(obs: ProfileObservation, status: ServingProfileStatus, target: Target | None) -> ServingProfileStatus:
    """The status with its findings settled; unchanged where nothing could be read, or while a rollout moves pods."""
    if target is None or obs.engine_readings is None or status.rollout is not None:
        return status
    halves = {pod: _halves(readings) for pod, readings in obs.engine_readings.items()}
    windows = {pod: window for pod, (_, readings) in halves.items() if (window := _window(readings))}
    earlier = {pod: window for pod, (readings, _) in halves.items() if (window := _window(readings))}
    measured = measured_engine(obs.runs, target.fingerprint)
    diagnoses = {
        pod: diagnose(_observed(obs, target, measured, _Windows(pod, windows, earlier.get(pod)))) for pod in windows
    }
    return changed(status, findings=settle(status.findings, diagnoses, obs.now))


def measured_engine(runs: tuple[TuningRun, ...], fingerprint: str) -> MeasuredEngine | None:
    """What the newest run of this engine found; None where none of them has a fitted step time."""
    for run in reversed(runs):
        fit, plan = run.status.fit, run.status.plan
        stages = usable(run.status.stages, StageKind.RAMP, StageKind.OPEN, StageKind.CERTIFY)
        if fit is None or plan is None or plan.fingerprint != fingerprint or not stages or fit.step_base is None:
            continue
        last = stages[-1]
        return MeasuredEngine(
            step=StepTime(fit.step_base, fit.step_per_sequence or 0.0, fit.step_per_prefill_token or 0.0),
            prompt_tokens=last.prompt_tokens_mean,
            output_tokens=last.output_tokens_mean,
            prefix_hit_share=(last.prefix_cache_hit_percent or 0.0) / 100,
            arrival_dispersion=_dispersion(plan.profile_spec),
        )
    return None


def _dispersion(spec: ServingProfileSpec) -> float | None:
    """Of the declared arrivals over an interval that is long against a gap; None for a closed loop.

    Gamma gaps of shape k have the asymptotic index of dispersion 1/k (Cox & Lewis 1966, 4.3). What a trace's is
    is not known here, so nothing is called a burst against it.
    """
    arrivals = spec.workload.arrivals if spec.workload is not None else None
    if arrivals is None or arrivals.process is ArrivalProcess.POISSON:
        return 1.0
    if arrivals.process is ArrivalProcess.CLOSED:
        return None
    if arrivals.process is ArrivalProcess.GAMMA:
        return 100 / (arrivals.burstiness_percent or 100)
    return 1.0 if arrivals.process is ArrivalProcess.CONSTANT else math.inf


@dataclass(frozen=True)
class _Windows:
    """Of one pod, beside those of its peers."""

    pod: str
    now: dict[str, Window]
    before: Window | None


def _halves(readings: tuple[EngineReading, ...]) -> tuple[tuple[EngineReading, ...], tuple[EngineReading, ...]]:
    """The older half and the newer one, which share a reading; all are the newer half where there are few."""
    if len(readings) < FEWEST_READINGS_TO_SPLIT:
        return (), readings
    middle = len(readings) // 2
    return readings[: middle + 1], readings[middle:]


def _window(readings: tuple[EngineReading, ...]) -> Window | None:
    try:
        window = window_of(readings)
    except WindowError:
        return None
    return window if window.duration_s >= SHORTEST_WINDOW_S else None


def _observed(
    obs: ProfileObservation, target: Target, measured: MeasuredEngine | None, windows: _Windows
) -> DiagnosisObservation:
    spec, present, pod = obs.profile.spec, target.present, windows.pod
    peers = [WindowFacts(window).concurrency for name, window in windows.now.items() if name != pod]
    throughput = spec.objective is DeclaredObjective.THROUGHPUT
    return DiagnosisObservation(
        now=windows.now[pod],
        before=windows.before,
        settings=EngineSettings(present.max_num_seqs, present.max_num_batched_tokens, target.arguments.chunked_prefill),
        measured=measured,
        slo=slo_of(spec),
        objective=Objective.THROUGHPUT if throughput else Objective.INTERACTIVE,
        gpu=(obs.gpu_windows or {}).get(pod),
        outside=OutsideView(peer_concurrency=tuple(series.mean for series in peers if series is not None)),
    )
