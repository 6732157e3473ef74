"""Everything that the rules look at: frozen, of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose.window import Window
from kneekeeper.domain.steptime import StepTime


@dataclass(frozen=True)
class EngineSettings:
    """What the engine was started with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool = True


@dataclass(frozen=True)
class MeasuredEngine:
    """What the last run found of this engine, and the workload that it was measured under."""

    step: StepTime
    prompt_tokens: float
    """Mean of a prompt."""
    output_tokens: float
    """Mean of an answer."""
    prefix_hit_share: float = 0.0
    arrival_dispersion: float | None = 1.0
    """Variance over mean of arrivals in an interval: 1 for Poisson, 1/shape for Gamma gaps; None: a closed loop."""


@dataclass(frozen=True)
class GpuWindow:
    """DCGM's gauges over the window, as shares from 0 to 1; None where the exporter does not give one."""

    utilization: float | None
    """DCGM_FI_DEV_GPU_UTIL: share of time in which any kernel ran."""
    sm_active: float | None = None
    """DCGM_FI_PROF_SM_ACTIVE."""


@dataclass(frozen=True)
class OutsideView:
    """What others than the engine saw in the window."""

    client_ttft_mean_s: float | None = None
    probe_failures: int = 0
    """Of the kubelet's probes, as its events count them."""
    peer_concurrency: tuple[float, ...] = ()
    """Mean running and waiting requests of each other replica behind the same router."""


class Objective(StrEnum):
    INTERACTIVE = "Interactive"
    THROUGHPUT = "Throughput"


@dataclass(frozen=True)
class DiagnosisObservation:
    """One engine in one window; what is None was not known."""

    now: Window
    settings: EngineSettings
    before: Window | None = None
    """An earlier window of the same engine and settings, under another load."""
    measured: MeasuredEngine | None = None
    slo: Slo | None = None
    objective: Objective = Objective.INTERACTIVE
    gpu: GpuWindow | None = None
    outside: OutsideView = OutsideView()
    client_timeout_s: float = 60.0
    """After which clients give up; for the time that is left when the queue grows."""
