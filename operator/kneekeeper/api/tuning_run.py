"""`TuningRun`: one experiment. Its spec is frozen, its status is the evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from kneekeeper.api.model import ApiModel, Condition, Setting, Timestamp
from kneekeeper.api.profile_status import BoundBy, KneeEstimate
from kneekeeper.api.quantities import Duration, Quantity
from kneekeeper.api.serving_profile import ProbeTarget, ServingProfileSpec


class Trigger(StrEnum):
    NEW = "New"
    PROFILE = "Profile"
    IMAGE = "Image"
    MODEL = "Model"
    ARGUMENTS = "Arguments"
    HARDWARE = "Hardware"
    REQUESTED = "Requested"
    RETRY = "Retry"


class TuningRunSpec(ApiModel):
    """Which profile is measured. Made by the operator, or by hand with `profileName` alone."""

    profile_name: str = Field(min_length=1, max_length=253)
    trigger: Trigger = Trigger.REQUESTED


class SettingBounds(ApiModel):
    """The rectangle in which a setting is searched."""

    lowest: Setting
    highest: Setting


class RunPlan(ApiModel):
    """What the run was started for, resolved and frozen by Preflight."""

    profile_generation: int
    profile_spec: ServingProfileSpec
    fingerprint: str = Field(max_length=64)
    gpu_product: str = Field(default="", max_length=253)
    container: str = Field(max_length=63)
    model: str = Field(max_length=1024, description="The name that requests carry.")
    port: int = Field(ge=1, le=65535)
    root_path: str = Field(default="", max_length=253)
    max_model_len: int | None = None
    gpus_per_replica: int = 0
    present: Setting
    bounds: SettingBounds
    probe_target: ProbeTarget
    token: str = Field(
        max_length=16, description="Goes into the names of the children and into every seed; not a secret."
    )

    def measures_the_same_as(self, spec: ServingProfileSpec) -> bool:
        """Whether a run under `spec` would be this run: what only concerns applying may differ."""
        return _measured_part(self.profile_spec) == _measured_part(spec)


def _measured_part(spec: ServingProfileSpec) -> tuple[object, ...]:
    return (
        spec.target_ref,
        spec.slo,
        spec.workload,
        spec.objective,
        spec.parameters,
        spec.probe,
        spec.endpoint,
    )


class RunStep(StrEnum):
    PREFLIGHT = "Preflight"
    BORROW = "Borrow"
    CEILING = "Ceiling"
    RAMP = "Ramp"
    CHOOSE = "Choose"
    CERTIFY = "Certify"
    BASELINE = "Baseline"
    CLEAN_UP = "CleanUp"
    DONE = "Done"


class StageKind(StrEnum):
    WARM_UP = "WarmUp"
    CONTROL = "Control"
    RAMP = "Ramp"
    PREFILL = "Prefill"
    OPEN = "Open"
    CERTIFY = "Certify"
    BASELINE = "Baseline"


class Verdict(StrEnum):
    PASS = "Pass"
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    INVALID = "Invalid"
    VOID = "Void"


class StageSummary(ApiModel):
    """One decided stage. `p99…` are estimates; `…Upper` the 95% bound, absent below 299 requests."""

    name: str = Field(max_length=63)
    kind: StageKind
    setting: Setting
    users: int | None = Field(default=None, description="Closed loop.")
    offered_requests_per_second: Quantity | None = Field(default=None, description="Open loop.")
    prompt_tokens_mean: Quantity
    output_tokens_mean: Quantity
    requests: int = Field(description="After warm-up, failed ones included.")
    failed: int = 0
    duration: Duration
    requests_per_second: Quantity
    output_tokens_per_second: Quantity
    mean_concurrency: Quantity
    p50_ttft: Duration | None = None
    p99_ttft: Duration | None = None
    p99_ttft_upper: Duration | None = None
    p50_tpot: Duration | None = None
    p99_tpot: Duration | None = None
    p99_tpot_upper: Duration | None = None
    misses: int | None = Field(default=None, description="Requests that missed the SLO or failed.")
    saturated: bool = False
    verdict: Verdict | None = None
    message: str = Field(default="", max_length=512)


class CurrentStage(ApiModel):
    """The stage in flight. A dead agent loses this one only; it is then repeated under the next attempt."""

    name: str = Field(max_length=63)
    kind: StageKind
    attempt: int = 1
    started_at: Timestamp


class CloneState(ApiModel):
    """The pod under test. Its name is derived from the run and `start`."""

    start: int = Field(ge=1, description="Counts engine starts of this run.")
    setting: Setting
    since: Timestamp
    ready_at: Timestamp | None = None
    kv_cache_tokens: int | None = None


class CloneFailure(ApiModel):
    """A setting that did not start."""

    setting: Setting
    kind: str = Field(max_length=64)
    message: str = Field(max_length=1024)


class Borrowed(ApiModel):
    """A replica taken from the workload; stored before it is taken."""

    replicas_before: int = Field(ge=2)
    taken_at: Timestamp
    returned_at: Timestamp | None = None


class Fit(ApiModel):
    """X(N) = min(N / (alpha + beta N), cap), requests per second at N concurrent requests.

    `stepBase`, `stepPerSequence`, `stepPerPrefillToken`: T = a + bB + dP, from the same stages.
    """

    verdict: str = Field(max_length=16, description="Knee, NoKnee or Inconclusive.")
    alpha: Duration | None = None
    beta: Duration | None = None
    cap_requests_per_second: Quantity | None = None
    knee: KneeEstimate | None = None
    tpot_boundary: KneeEstimate | None = Field(
        default=None, description="Largest concurrency whose P99 TPOT meets the target."
    )
    step_base: Duration | None = None
    step_per_sequence: Duration | None = None
    step_per_prefill_token: Duration | None = None
    kv_cache_tokens: int | None = None
    ramp_ended_by: str = Field(default="", max_length=32)
    message: str = Field(default="", max_length=512)


class Choice(ApiModel):
    """What Choose proposes for certification."""

    attempt: int = Field(ge=1)
    setting: Setting
    sustainable_requests_per_second: Quantity
    bound_by: BoundBy
    message: str = Field(default="", max_length=512)


class Certification(ApiModel):
    """An open-loop stage at 1.2 times the promised rate, on an engine started with the choice."""

    attempt: int
    setting: Setting
    offered_requests_per_second: Quantity
    promised_requests_per_second: Quantity
    verdict: Verdict
    requests: int
    misses: int
    message: str = Field(default="", max_length=512)


class Cost(ApiModel):
    """What the run used."""

    engine_starts: int = 0
    gpu_seconds: int = 0
    measure_seconds: int = 0


class RunOutcome(StrEnum):
    CERTIFIED = "Certified"
    NO_IMPROVEMENT = "NoImprovement"
    IMPOSSIBLE_SLO = "ImpossibleSLO"
    INCONCLUSIVE = "Inconclusive"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class TuningRunStatus(ApiModel):
    """Everything a restarted operator needs to go on, and the evidence for people."""

    observed_generation: int = 0
    step: RunStep = RunStep.PREFLIGHT
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    plan: RunPlan | None = None
    borrowed: Borrowed | None = None
    engine_since: Timestamp | None = Field(default=None, description="When the first clone was started.")
    clone: CloneState | None = None
    clone_failures: list[CloneFailure] = Field(default=[], max_length=16)
    current_stage: CurrentStage | None = None
    last_stage_ended_at: Timestamp | None = None
    stages: list[StageSummary] = Field(default=[], max_length=96)
    fit: Fit | None = None
    choices: list[Choice] = Field(default=[], max_length=4)
    certifications: list[Certification] = Field(default=[], max_length=6)
    present_breaks_slo: bool | None = None
    present_promised_requests_per_second: Quantity | None = None
    outcome: RunOutcome | None = None
    cause: str = Field(default="", max_length=64, description="CamelCase reason of the outcome.")
    waiting_for: str = Field(default="", max_length=64, description="CamelCase reason, empty when going on.")
    message: str = Field(default="", max_length=1024)
    cost: Cost = Cost()
    conditions: list[Condition] = Field(default=[], max_length=8)


class TuningRun(ApiModel):
    """One run as read from the API server; metadata stays as it came."""

    metadata: dict[str, Any]
    spec: TuningRunSpec
    status: TuningRunStatus = TuningRunStatus()
