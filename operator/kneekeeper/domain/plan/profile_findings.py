"""What is wrong with a profile's workload: each pod diagnosed against the last run, settled into status."""

from __future__ import annotations

import math

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.serving_profile import Objective as DeclaredObjective
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import StageKind, TuningRun
from kneekeeper.api.workload import ArrivalProcess
from kneekeeper.domain.control import usable
from kneekeeper.domain.diagnose import (
    Diagnosis,
    DiagnosisObservation,
    EngineReading,
    EngineSettings,
    GpuWindow,
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


def with_findings(obs: ProfileObservation, status: ServingProfileStatus, target: Target | None) -> ServingProfileStatus:
    """The status with its findings settled; unchanged where nothing could be read, or while a rollout moves pods."""
    if target is None or obs.engine_readings is None or status.rollout is not None:
        return status
    windows = {pod: window for pod, readings in obs.engine_readings.items() if (window := _window(readings))}
    measured = measured_engine(obs.runs, target.fingerprint)
    diagnoses = {
        pod: _diagnosis(obs, target, measured, windows, pod, (obs.gpu_windows or {}).get(pod)) for pod in windows
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


def _window(readings: tuple[EngineReading, ...]) -> Window | None:
    try:
        window = window_of(readings)
    except WindowError:
        return None
    return window if window.duration_s >= SHORTEST_WINDOW_S else None


def _diagnosis(
    obs: ProfileObservation,
    target: Target,
    measured: MeasuredEngine | None,
    windows: dict[str, Window],
    pod: str,
    gpu: GpuWindow | None,
) -> Diagnosis:
    spec, present = obs.profile.spec, target.present
    peers = [WindowFacts(window).concurrency for name, window in windows.items() if name != pod]
    return diagnose(
        DiagnosisObservation(
            now=windows[pod],
            settings=_settings(present, target),
            measured=measured,
            slo=slo_of(spec),
            objective=Objective.THROUGHPUT if spec.objective is DeclaredObjective.THROUGHPUT else Objective.INTERACTIVE,
            gpu=gpu,
            outside=OutsideView(peer_concurrency=tuple(series.mean for series in peers if series is not None)),
        )
    )


def _settings(present: Setting, target: Target) -> EngineSettings:
    return EngineSettings(present.max_num_seqs, present.max_num_batched_tokens, target.arguments.chunked_prefill)
