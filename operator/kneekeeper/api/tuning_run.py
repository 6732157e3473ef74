"""`TuningRun`: one experiment. Its spec is frozen, its status is the evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field

from kneekeeper.api.model import (
    NAME_RULE,
    ApiModel,
    Count,
    ObjectName,
    Setting,
    Timestamp,
    name_fits_a_label,
)
from kneekeeper.api.profile_status import BoundBy, Conditions, KneeEstimate
from kneekeeper.api.quantities import Duration, Quantity
from kneekeeper.api.rules import rule
from kneekeeper.api.run_plan import RunPlan, SourceFacts
from kneekeeper.api.run_pods import Borrowed, CloneFailure, CloneState


class Trigger(StrEnum):
    NEW = "New"
    PROFILE = "Profile"
    IMAGE = "Image"
    MODEL = "Model"
    ARGUMENTS = "Arguments"
    HARDWARE = "Hardware"
    REQUESTED = "Requested"
    RETRY = "Retry"
    SLO_BREACH = "SLOBreach"
    TRAFFIC = "Traffic"


class TuningRunSpec(ApiModel):
    """Which profile is measured. Made by the operator, or by hand with `profileName` alone."""

    immutable: ClassVar[str] = "a TuningRun cannot change: make another one"

    profile_name: ObjectName = Field(description="The ServingProfile, in the same namespace.")
    trigger: Trigger = Field(default=Trigger.REQUESTED, description="What started it.")
    schedule: int | None = Field(
        default=None,
        ge=0,
        le=23,
        description="The entry of the profile's spec.schedules that is measured, from 0; left out, its own workload.",
    )


class RunStep(StrEnum):
    PREFLIGHT = "Preflight"
    SOURCES = "Sources"
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
    STEPS = "Steps"
    OPEN = "Open"
    CERTIFY = "Certify"
    BASELINE = "Baseline"


class Verdict(StrEnum):
    PASS = "Pass"
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    INVALID = "Invalid"
    VOID = "Void"


class ClassSummary(ApiModel):
    """One kind of request in a stage under a mix, held to its own targets."""

    name: str = Field(max_length=63, description="The class.")
    requests: Count = Field(description="After warm-up, failed ones included.")
    misses: Count = Field(description="Those that missed a target or failed.")
    p99_ttft: Duration | None = Field(default=None, description="P99 time to first token.")
    p99_tpot: Duration | None = Field(default=None, description="P99 time per output token.")
    p99_e2e: Duration | None = Field(default=None, description="P99 time of a whole request.")
    verdict: Verdict | None = Field(default=None, description="Absent where the SLO was not judged.")


class StageSummary(ApiModel):
    """One decided stage. `p99…` are estimates; `…Upper` the 95% bound, absent below 299 requests."""

    name: str = Field(max_length=63, description="Unique in the run.")
    kind: StageKind = Field(description="What it is for.")
    setting: Setting = Field(description="What the engine was started with.")
    users: Count | None = Field(default=None, description="Closed loop.")
    offered_requests_per_second: Quantity | None = Field(default=None, description="Open loop.")
    prompt_tokens_mean: Quantity = Field(description="Mean prompt length.")
    output_tokens_mean: Quantity = Field(description="Mean answer length.")
    requests: Count = Field(description="After warm-up, failed ones included.")
    failed: Count = Field(default=0, description="Requests that ended in an error or a timeout.")
    duration: Duration = Field(description="Time measured, without warm-up.")
    requests_per_second: Quantity = Field(description="Requests that were answered.")
    output_tokens_per_second: Quantity = Field(description="Tokens that were produced.")
    output_tokens_per_second_lower: Quantity | None = Field(
        default=None, description="95% lower bound of outputTokensPerSecond, of stages that prove a throughput."
    )
    output_tokens_per_second_upper: Quantity | None = Field(default=None, description="95% upper bound of the same.")
    mean_concurrency: Quantity = Field(description="Requests in flight, averaged over time.")
    p50_ttft: Duration | None = Field(default=None, description="Median time to first token.")
    p99_ttft: Duration | None = Field(default=None, description="P99 time to first token.")
    p99_ttft_upper: Duration | None = Field(default=None, description="95% upper bound of p99TTFT.")
    p50_tpot: Duration | None = Field(default=None, description="Median time per output token.")
    p99_tpot: Duration | None = Field(default=None, description="P99 time per output token.")
    p99_tpot_upper: Duration | None = Field(default=None, description="95% upper bound of p99TPOT.")
    p50_e2e: Duration | None = Field(default=None, description="Median time of a whole request.")
    p99_e2e: Duration | None = Field(default=None, description="P99 time of a whole request.")
    p99_e2e_upper: Duration | None = Field(default=None, description="95% upper bound of p99E2E.")
    misses: Count | None = Field(default=None, description="Requests that missed the SLO or failed.")
    classes: list[ClassSummary] = Field(default=[], max_length=8, description="A mix, class by class.")
    prefix_cache_hit_percent: Quantity | None = Field(
        default=None, description="Share of prompt tokens that the engine's prefix cache served."
    )
    draft_acceptance_percent: Quantity | None = Field(
        default=None, description="Share of draft tokens that were accepted."
    )
    saturated: bool = Field(default=False, description="Whether the queue grew until the stage was ended.")
    verdict: Verdict | None = Field(default=None, description="Absent where the SLO was not judged.")
    ended_by: str = Field(default="", max_length=64, description="CamelCase reason of its end.")
    message: str = Field(default="", max_length=512, description="For people.")


class EngineCounters(ApiModel):
    """Counters of an engine that only grow; absent where it does not have them."""

    prefix_cache_queries: Count | None = Field(default=None, description="Prompt tokens looked up.")
    prefix_cache_hits: Count | None = Field(default=None, description="Prompt tokens found.")
    draft_tokens: Count | None = Field(default=None, description="Tokens that were proposed.")
    accepted_tokens: Count | None = Field(default=None, description="Proposed tokens that were accepted.")
    generation_tokens: Count | None = Field(default=None, description="Tokens that were produced.")


class CurrentStage(ApiModel):
    """The stage in flight. A dead agent loses this one only; it is repeated."""

    name: str = Field(max_length=63, description="Unique in the run.")
    kind: StageKind = Field(description="What it is for.")
    started_at: Timestamp = Field(description="When the agent was told to start it.")
    block_tokens: Count | None = Field(default=None, description="Size of the engine's KV blocks, if it tells.")
    before: EngineCounters | None = Field(default=None, description="The engine's counters when it was told.")


class Fit(ApiModel):
    """X(N) = min(N / (alpha + beta N), cap), requests per second at N concurrent requests.

    `stepBase`, `stepPerSequence`, `stepPerPrefillToken`: T = a + bB + dP, from the same stages.
    """

    verdict: str = Field(max_length=16, description="Knee, NoKnee or Inconclusive.")
    alpha: Duration | None = Field(default=None, description="Time of a request alone.")
    beta: Duration | None = Field(default=None, description="Time that each concurrent request adds.")
    cap_requests_per_second: Quantity | None = Field(default=None, description="Where throughput is clipped.")
    knee: KneeEstimate | None = Field(default=None, description="Where more concurrency gains little.")
    tpot_boundary: KneeEstimate | None = Field(
        default=None, description="Largest concurrency whose P99 TPOT meets the target."
    )
    step_base: Duration | None = Field(default=None, description="a: time of an engine step.")
    step_per_sequence: Duration | None = Field(default=None, description="b: what each sequence adds.")
    step_per_prefill_token: Duration | None = Field(default=None, description="d: what each prompt token adds.")
    kv_cache_tokens: Count | None = Field(default=None, description="Tokens that fit into the KV cache.")
    ramp_ended_by: str = Field(default="", max_length=32, description="Why the ramp went no higher.")
    message: str = Field(default="", max_length=512, description="For people.")


class Choice(ApiModel):
    """What Choose proposes for certification."""

    attempt: Count = Field(ge=1, description="Counts choices of this run.")
    setting: Setting = Field(description="The two limits.")
    sustainable_requests_per_second: Quantity = Field(description="Highest rate that is predicted to hold.")
    bound_by: BoundBy = Field(description="What keeps it from going higher.")
    kv_cache_tokens: Count | None = Field(
        default=None, description="Tokens that fit into the KV cache of the engine that was started with it."
    )
    message: str = Field(default="", max_length=512, description="For people.")


class Certification(ApiModel):
    """A stage at 1.2 times the promised rate, on an engine started with the choice, or as production is; of objective
    Throughput a closed loop that keeps it full, and the promise is the lower bound of what was measured."""

    attempt: Count = Field(description="The choice that was certified.")
    setting: Setting = Field(description="What the engine ran with.")
    started_with: Setting | None = Field(
        default=None,
        description="What the engine was started with, where the setting was set live; absent where it was started "
        "with the setting.",
    )
    offered_requests_per_second: Quantity = Field(description="The rate that was offered.")
    promised_requests_per_second: Quantity = Field(
        description="The offered rate / 1.2; of objective Throughput the requests of the promised tokens."
    )
    promised_output_tokens_per_second: Quantity | None = Field(
        default=None, description="Objective Throughput: the 95% lower bound of what was measured."
    )
    offered_users: Count | None = Field(default=None, description="Clients of a closed loop.")
    promised_users: Count | None = Field(default=None, description="The offered users / 1.2.")
    verdict: Verdict = Field(
        description="Whether the SLO held; of objective Throughput whether the throughput is known and hardly a "
        "request failed."
    )
    requests: Count = Field(description="Requests that were judged.")
    misses: Count = Field(description="Those that missed the SLO or failed.")
    message: str = Field(default="", max_length=512, description="For people.")


class Cost(ApiModel):
    """What the run used."""

    engine_starts: Count = Field(default=0, description="Engine starts.")
    gpu_seconds: Count = Field(default=0, description="GPUs times the seconds that they were held.")
    measure_seconds: Count = Field(default=0, description="Seconds under load.")


class RunOutcome(StrEnum):
    CERTIFIED = "Certified"
    PREDICTED = "Predicted"
    NO_IMPROVEMENT = "NoImprovement"
    IMPOSSIBLE_SLO = "ImpossibleSLO"
    INCONCLUSIVE = "Inconclusive"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class TuningRunStatus(ApiModel):
    """Everything a restarted operator needs to go on, and the evidence for people."""

    observed_generation: Count = Field(default=0, description="The generation of the spec that it tells of.")
    step: RunStep = Field(default=RunStep.PREFLIGHT, description="What happens now.")
    started_at: Timestamp | None = Field(default=None, description="When Preflight began.")
    finished_at: Timestamp | None = Field(default=None, description="When all was cleaned up.")
    plan: RunPlan | None = Field(default=None, description="What is measured; frozen by Preflight.")
    sources: SourceFacts | None = Field(default=None, description="What the trace and the prompts hold.")
    borrowed: Borrowed | None = Field(default=None, description="A replica taken from the workload.")
    engine_since: Timestamp | None = Field(default=None, description="When the first clone was started.")
    clone: CloneState | None = Field(default=None, description="The pod under test.")
    clone_failures: list[CloneFailure] = Field(default=[], max_length=16, description="Settings that did not start.")
    current_stage: CurrentStage | None = Field(default=None, description="The stage in flight.")
    last_stage_ended_at: Timestamp | None = Field(default=None, description="Recovery is counted from here.")
    stages: list[StageSummary] = Field(default=[], max_length=96, description="Decided stages, in order.")
    fit: Fit | None = Field(default=None, description="The model fitted to the stages.")
    choices: list[Choice] = Field(default=[], max_length=4, description="What was proposed, newest last.")
    certifications: list[Certification] = Field(
        default=[], max_length=6, description="What was tried at 1.2 times its promise, newest last."
    )
    present_breaks_slo: bool | None = Field(
        default=None, description="Whether the present setting breaks the SLO under the same load."
    )
    present_promised_requests_per_second: Quantity | None = Field(
        default=None, description="What the present setting can promise at least; absent where it was not proven."
    )
    improvement_percent: Count | None = Field(
        default=None,
        description="Lower bound of the choice's promise over the present setting's, less one; absent where none is "
        "shown.",
    )
    outcome: RunOutcome | None = Field(default=None, description="Absent while the run goes on.")
    cause: str = Field(default="", max_length=64, description="CamelCase reason of the outcome.")
    waiting_for: str = Field(default="", max_length=64, description="CamelCase reason, empty when going on.")
    message: str = Field(default="", max_length=1024, description="For people.")
    cost: Cost = Field(default=Cost(), description="What the run used.")
    conditions: Conditions = Field(
        default=[], max_length=8, description="Succeeded is True, False or Unknown while the run goes on."
    )


class TuningRun(ApiModel):
    """One experiment on one workload: where its knee is, which setting holds the SLO, and the proof."""

    metadata: dict[str, Any]
    spec: TuningRunSpec = Field(description="What is measured; frozen.")
    status: TuningRunStatus = Field(
        default=TuningRunStatus(),
        description="How far it is, and the evidence; written by the operator alone.",
    )

    @rule(*NAME_RULE)
    def _name_fits_a_label(self) -> bool:
        return name_fits_a_label(self.metadata)
