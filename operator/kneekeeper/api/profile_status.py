"""Status of a `ServingProfile`: what is known of the workload, what is recommended, what was applied."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kneekeeper.api.findings import FindingStatus
from kneekeeper.api.model import ApiModel, Condition, Count, ObjectName, Setting, Timestamp
from kneekeeper.api.observed import KneeSource, ObservedWorkload, RankStatus, ScaleStatus, TrafficDrift
from kneekeeper.api.quantities import Duration, Quantity
from kneekeeper.api.rollout import Applied, Rejected, Rollout
from kneekeeper.api.rules import Unique

Conditions = Annotated[list[Condition], Unique(("type",))]


class BoundBy(StrEnum):
    """What keeps the choice from going higher."""

    KNEE = "Knee"
    TPOT = "TPOT"
    TTFT = "TTFT"
    E2E = "E2E"
    KV_CACHE = "KVCache"
    BOUND = "Bound"


class EngineFacts(ApiModel):
    """The workload as Preflight read it."""

    container: str = Field(max_length=63, description="The vLLM container.")
    image: str = Field(max_length=1024, description="Its image, as its pods run it.")
    image_digest: str = Field(
        default="", max_length=128, description="The digest that the pods run; empty while it is not known."
    )
    model: str = Field(max_length=1024, description="The model that it serves.")
    gpu_product: str = Field(default="", max_length=253, description="GPU product of its nodes.")
    replicas: Count = Field(description="Pods that the workload wants.")
    max_num_seqs: Count | None = Field(
        default=None, description="As set in the arguments; absent where vLLM's default holds."
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="As set in the arguments; absent where vLLM's default holds."
    )
    fingerprint: str = Field(
        max_length=64, description="Hash of all that a setting depends on, without the two limits."
    )


class KneeEstimate(ApiModel):
    """The knee with its 90% interval, in concurrent requests of one replica."""

    concurrency: Quantity = Field(description="The estimate.")
    lower: Quantity = Field(description="Lower end of the 90% interval.")
    upper: Quantity = Field(description="Upper end of the 90% interval.")


class RecommendationConfidence(StrEnum):
    """What a recommendation rests on."""

    CERTIFIED = "Certified"
    PREDICTED = "Predicted"


class Recommendation(ApiModel):
    """A setting that was certified under open-loop load, or predicted from production's metrics."""

    setting: Setting = Field(description="The two limits to set.")
    started_with: Setting | None = Field(
        default=None,
        description="What engines are started with, where the setting was certified live; it may then be set live.",
    )
    hash: str = Field(max_length=64, description="Approve with the annotation kneekeeper.io/approve=<hash>.")
    run: ObjectName = Field(description="The TuningRun with the evidence.")
    fingerprint: str = Field(max_length=64, description="The engine that it holds for.")
    confidence: RecommendationConfidence = Field(
        default=RecommendationConfidence.CERTIFIED,
        description="Certified: proven under load on an engine started with it. Predicted: by the twin from "
        "production's metrics alone; the operator never writes it.",
    )
    sustainable_requests_per_second: Quantity = Field(
        description="Highest rate of one replica that the model predicts to hold."
    )
    promised_requests_per_second: Quantity = Field(
        description="Rate of one replica that was proven, with 20% to spare; of a Predicted one what a certification "
        "would have tried to prove."
    )
    promised_output_tokens_per_second: Quantity | None = Field(
        default=None,
        description="Objective Throughput: output tokens/s of one full replica, the 95% lower bound of what was "
        "measured; promisedRequestsPerSecond are the requests that they make.",
    )
    bound_by: BoundBy = Field(description="What keeps the setting from going higher.")
    p99_ttft: Duration | None = Field(default=None, description="Measured in certification.")
    p99_tpot: Duration | None = Field(default=None, description="Measured in certification.")
    p99_e2e: Duration | None = Field(default=None, description="Measured in certification.")
    improvement: str = Field(
        max_length=256, description="Against the present setting, or that the present breaks the SLO."
    )
    improvement_percent: int | None = Field(
        default=None,
        ge=-100,
        le=1_000_000,
        description="Lower bound of what it promises more than the present setting; absent where none is shown.",
    )
    present_breaks_slo: bool = Field(default=False, description="Whether the present setting breaks the SLO.")
    raises_capacity: bool = Field(
        default=False, description="Whether it carries more requests than the setting that it was measured against."
    )
    patch: str = Field(max_length=16_384, description="The change as a command to run.")
    kustomize: str = Field(
        default="", max_length=16_384, description="The change as an entry of `patches` in a kustomization."
    )
    helm_values: str = Field(
        default="",
        max_length=16_384,
        description="The change as values, for a release of a known chart.",
    )

    @property
    def is_certified(self) -> bool:
        """Whether its promise was proven under load."""
        return self.confidence is RecommendationConfidence.CERTIFIED


class ReplicaStatus(ApiModel):
    """One serving pod against its knee."""

    pod: ObjectName = Field(description="The pod's name.")
    node: str = Field(default="", max_length=253, description="Where it runs.")
    gpu_product: str = Field(default="", max_length=253, description="The GPU product of that node.")
    knee_concurrency: Quantity | None = Field(default=None, description="Concurrent requests at its knee.")
    knee_lower: Quantity | None = Field(default=None, description="Lower end of the 90% interval of its own knee.")
    knee_upper: Quantity | None = Field(default=None, description="Upper end of the 90% interval of its own knee.")
    knee_source: KneeSource | None = Field(
        default=None, description="Production: from its own metrics. Run: of the last run, until its own is observed."
    )
    knee_at_least: Quantity | None = Field(
        default=None, description="Its own knee lies above, as far as its traffic tells; absent where it is observed."
    )
    not_observed: str = Field(
        default="", max_length=64, description="Why its own knee is not known, in one CamelCase word; else empty."
    )
    outlier: str = Field(
        default="", max_length=64, description="How it differs from its peers, in one CamelCase word; else empty."
    )
    message: str = Field(default="", max_length=512, description="For people: of its knee, and why it stands out.")
    speed_percent: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Its speed over that of its peers at the same load; absent where there are too few to compare.",
    )
    ranks: Annotated[list[RankStatus], Unique(("rank",))] = Field(
        default=[], max_length=64, description="Its data-parallel ranks, where it has several."
    )
    capacity_requests_per_second: Quantity | None = Field(
        default=None,
        description="The promised rate at its own speed; without a promise the throughput at its own knee.",
    )
    requests_per_second: Quantity | None = Field(default=None, description="Its load in the last five minutes seen.")
    running: Count | None = Field(default=None, description="Requests in the batch now.")
    waiting: Count | None = Field(default=None, description="Requests in the queue now.")
    headroom_percent: int | None = Field(
        default=None,
        ge=-1_000_000,
        le=100,
        description="How far below its knee it works, in concurrent requests; negative above.",
    )


class HourSetting(ApiModel):
    """What was certified for the hours of an entry of spec.schedules."""

    entry: Count | None = Field(default=None, description="The entry, from 0; absent for the profile's own workload.")
    run: ObjectName = Field(description="The TuningRun with the evidence.")
    setting: Setting = Field(description="The two limits.")
    promised_requests_per_second: Quantity = Field(
        description="Rate of one replica that was proven, with 20% to spare."
    )


class ScheduleStatus(ApiModel):
    """Which entry of spec.schedules is in force."""

    entry: Count | None = Field(
        default=None, description="The entry, from 0; absent while the profile's own workload holds."
    )
    since: Timestamp = Field(description="When it was first seen in force.")
    until: Timestamp = Field(description="When an entry begins or ends next.")
    settings: list[HourSetting] = Field(
        default=[], max_length=25, description="What was certified for each entry, as far as it was measured."
    )


class RunReference(ApiModel):
    """A run of this profile, newest last."""

    name: ObjectName = Field(description="The TuningRun's name; its object may be gone.")
    trigger: str = Field(max_length=32, description="What started it.")
    key: str = Field(max_length=64, description="Hash of the engine and of what was asked of it.")
    fingerprint: str = Field(default="", max_length=64, description="The engine that it measures.")
    outcome: str = Field(default="", max_length=32, description="Empty while it runs.")
    cause: str = Field(default="", max_length=64, description="The reason of the outcome.")
    started_at: Timestamp | None = Field(default=None, description="When it was decided.")
    finished_at: Timestamp | None = Field(default=None, description="Absent while it runs.")


class LiveTrouble(ApiModel):
    """What keeps limits from being switched live."""

    reason: str = Field(max_length=64, description="CamelCase reason, as in condition LiveChanges.")
    message: str = Field(max_length=1024, description="For people.")
    since: Timestamp = Field(description="When it was first seen.")
    fingerprint: str = Field(max_length=64, description="The engine that it holds for.")
    given_up: bool = Field(
        default=False,
        description="Whether switches go by rollout until a run that a person asks for certifies a setting live.",
    )


class ServingProfileStatus(ApiModel):
    """All of it can be rebuilt but `applied`, `rollout` and `rejected`."""

    observed_generation: Count = Field(default=0, description="The generation of the spec that it tells of.")
    stage: str = Field(default="", max_length=64, description="For people: what happens now. Nothing reads it.")
    conditions: Conditions = Field(
        default=[],
        max_length=16,
        description="Accepted, TargetFound, MetricsAvailable, Probing, Recommended, Applied, Drifted, "
        "Degraded, Contested, LiveChanges; Ready sums them up.",
    )
    engine: EngineFacts | None = Field(default=None, description="The workload as it was last read.")
    recommendation: Recommendation | None = Field(default=None, description="The setting to use.")
    schedule: ScheduleStatus | None = Field(default=None, description="The hours that are now; absent without any.")
    knee: KneeEstimate | None = Field(default=None, description="The knee of the last run that found one.")
    rollout: Rollout | None = Field(default=None, description="A change of the workload that is under way.")
    watched: Rollout | None = Field(
        default=None, description="A change in force of which it is not decided yet whether it made things worse."
    )
    applied: Applied | None = Field(default=None, description="The last change that was made and kept.")
    live_trouble: LiveTrouble | None = Field(
        default=None,
        description="Why limits that were switched live were not in force; absent where nothing was wrong.",
    )
    rejected: list[Rejected] = Field(
        default=[], max_length=10, description="Settings that were rolled back, newest last."
    )
    active_run: ObjectName | None = Field(default=None, description="The TuningRun that is under way.")
    handled_retune: str | None = Field(
        default=None, max_length=253, description="The last value of kneekeeper.io/retune that was acted on."
    )
    runs: list[RunReference] = Field(default=[], max_length=100, description="Past runs, newest last.")
    replicas: list[ReplicaStatus] = Field(default=[], max_length=512, description="Each serving pod against its knee.")
    history_read_at: Timestamp | None = Field(
        default=None, description="When the history of production's metrics was last read."
    )
    scale: ScaleStatus | None = Field(default=None, description="All replicas against the observed peak.")
    observed_workload: ObservedWorkload | None = Field(
        default=None, description="The traffic as production's metrics tell it."
    )
    traffic_drift: TrafficDrift | None = Field(
        default=None,
        description="How the learned traffic differs from what was certified; absent where it does not, and where "
        "spec.retune.on has no Traffic.",
    )
    findings: Annotated[list[FindingStatus], Unique(("reason",))] = Field(
        default=[], max_length=16, description="What is wrong with the workload, what harms users most first."
    )
