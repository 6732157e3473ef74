"""`ServingProfile`: what a user declares about one vLLM workload."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from kneekeeper.api.model import NAME_RULE, ApiModel, LocalReference, ObjectName, name_fits_a_label
from kneekeeper.api.probe import (
    Budget,
    CloneOptions,
    Cron,
    Ladder,
    Probe,
    ProbeTarget,
    TimeZone,
    Window,
)
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.quantities import Duration
from kneekeeper.api.rules import POSITIVE, Unique, rule
from kneekeeper.api.workload import (
    ArrivalProcess,
    ArrivalSpec,
    LengthDistribution,
    SloTargets,
    SourceRef,
    TokenLengths,
    Workload,
    WorkloadClass,
)

__all__ = [
    "ArrivalProcess",
    "ArrivalSpec",
    "Bounds",
    "Budget",
    "CloneOptions",
    "DeletionPolicy",
    "EndpointSpec",
    "Ladder",
    "LengthDistribution",
    "LiveChanges",
    "MetricsSpec",
    "Objective",
    "Parameters",
    "Probe",
    "ProbeTarget",
    "PrometheusRef",
    "Retune",
    "RetuneTrigger",
    "RollbackMode",
    "Schedule",
    "Scheme",
    "ServingProfile",
    "ServingProfileSpec",
    "SloTargets",
    "SourceRef",
    "TargetRef",
    "TokenLengths",
    "UpdateMethod",
    "UpdateMode",
    "UpdatePolicy",
    "Window",
    "Workload",
    "WorkloadClass",
]


class TargetRef(ApiModel):
    """The workload to tune, in the profile's own namespace."""

    immutable: ClassVar[str] = "targetRef cannot change: make another profile for another workload"

    api_version: str = Field(default="apps/v1", max_length=253, description="The workload's apiVersion.")
    kind: str = Field(min_length=1, max_length=63, description="For example Deployment.")
    name: ObjectName = Field(description="The workload's name.")
    container: str | None = Field(
        default=None, max_length=63, description="The vLLM container; left out when exactly one runs vLLM."
    )


class Objective(StrEnum):
    INTERACTIVE = "Interactive"
    THROUGHPUT = "Throughput"


class Bounds(ApiModel):
    """The range in which a limit may be set; left out, derived from the present setting."""

    min: int | None = Field(default=None, ge=1, le=1_048_576, description="Never set lower.")
    max: int | None = Field(default=None, ge=1, le=1_048_576, description="Never set higher.")

    @rule("!has(self.min) || !has(self.max) || self.min <= self.max", "min must not be above max")
    def _are_ordered(self) -> bool:
        return self.min is None or self.max is None or self.min <= self.max


class Parameters(ApiModel):
    """What may be tuned, and how far."""

    max_num_seqs: Bounds = Field(default=Bounds(), description="Bounds of --max-num-seqs.")
    max_num_batched_tokens: Bounds = Field(default=Bounds(), description="Bounds of --max-num-batched-tokens.")
    knee_elasticity_percent: int | None = Field(
        default=None,
        ge=1,
        le=90,
        description="Makes the knee a hard cap of maxNumSeqs: the concurrency where 1% more of it gains only this many "
        "hundredths of a percent of throughput. Where the ramp did not reach it, its highest level is the cap.",
    )


class Scheme(StrEnum):
    HTTP = "http"
    HTTPS = "https"


class EndpointSpec(ApiModel):
    """How the engine is reached, where it cannot be read from its arguments."""

    port: int | None = Field(default=None, ge=1, le=65535, description="The engine's port.")
    scheme: Scheme | None = Field(default=None, description="http or https.")
    server_name: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[A-Za-z0-9.:-]+$",
        description="What the engine's certificate is for, with https; left out, the pod's address.",
    )
    root_path: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^(/[!-~]*)?$",
        description="Prefix of all paths, as in --root-path.",
    )
    model: str | None = Field(default=None, max_length=253, description="The model name that requests carry.")
    api_key_secret_ref: LocalReference | None = Field(default=None, description="The Secret with the engine's API key.")
    ca_bundle_ref: LocalReference | None = Field(
        default=None, description="The ConfigMap with the certificates to trust; left out, the system's are."
    )


class PrometheusRef(ApiModel):
    """A Prometheus server that scrapes the target."""

    url: str = Field(pattern=r"^https?://", max_length=512, description="Its base address.")


class MetricsSpec(ApiModel):
    """Where metrics are read; left out, the operator's default, else the pods themselves."""

    prometheus_ref: PrometheusRef | None = Field(default=None, description="A Prometheus server.")
    match_labels: dict[str, Annotated[str, Field(max_length=253)]] = Field(
        default={},
        max_length=16,
        description="Labels that every queried series must have as well, "
        "such as job or cluster, where a Prometheus server is asked.",
    )


class Schedule(ApiModel):
    """Another workload or other bounds at certain hours."""

    cron: Cron = Field(description="When it begins, as cron: minute hour day month weekday.")
    time_zone: TimeZone = Field(default="UTC", description="An IANA time zone.")
    duration: Annotated[Duration, POSITIVE] = Field(description="How long it lasts.")
    workload: Workload | None = Field(default=None, description="The traffic in that time.")
    parameters: Parameters | None = Field(default=None, description="The bounds in that time.")


class RetuneTrigger(StrEnum):
    IMAGE = "Image"
    MODEL = "Model"
    ARGUMENTS = "Arguments"
    HARDWARE = "Hardware"
    TRAFFIC = "Traffic"
    SLO_BREACH = "SLOBreach"


class Retune(ApiModel):
    """What starts the next run."""

    on: Annotated[list[RetuneTrigger], Unique()] = Field(
        default=[RetuneTrigger.IMAGE, RetuneTrigger.MODEL, RetuneTrigger.ARGUMENTS, RetuneTrigger.HARDWARE],
        max_length=6,
        description='Which changes make a setting stale. Write "on" in quotes, since YAML takes a bare on for true. '
        "The two tuned limits are never one of them.",
    )
    unquoted_on: Annotated[list[RetuneTrigger], Unique()] | None = Field(
        default=None,
        alias="true",
        max_length=6,
        description="Always refused: what YAML makes of an `on` without quotes, which would be dropped otherwise.",
    )
    min_interval: Annotated[Duration, POSITIVE] = Field(
        default=21600.0, description="Time from the start of one run to the start of the next."
    )

    # CEL escapes names that are its own words, as `true` is.
    @rule("!has(self.__true__)", 'YAML takes a bare on for true: write "on" in quotes')
    def _on_is_quoted(self) -> bool:
        return self.unquoted_on is None


class UpdateMode(StrEnum):
    OFF = "Off"
    RECOMMEND = "Recommend"
    APPLY = "Apply"


class UpdateMethod(StrEnum):
    AUTO = "Auto"
    ARGS = "Args"
    ENV = "Env"
    CONFIG_MAP = "ConfigMap"
    OWNER = "Owner"


class RollbackMode(StrEnum):
    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class LiveChanges(StrEnum):
    DISABLED = "Disabled"
    ALLOWED = "Allowed"


class UpdatePolicy(ApiModel):
    """What happens with a proven setting."""

    mode: UpdateMode = Field(
        default=UpdateMode.RECOMMEND,
        description='"Off" (in quotes, since YAML takes a bare Off for false): measure only. Recommend: publish the '
        "patch. Apply: write it, roll out, verify.",
    )
    method: UpdateMethod = Field(
        default=UpdateMethod.AUTO,
        description="Where the limits are written. Auto takes the place that the user's tooling owns least.",
    )
    min_improvement_percent: int = Field(
        default=5, ge=0, le=1000, description="A smaller gain of the promised rate is not worth a rollout."
    )
    verify_for: Annotated[Duration, POSITIVE] = Field(
        default=600.0, description="How long SLO violations are watched after a rollout."
    )
    rollback: RollbackMode = Field(
        default=RollbackMode.AUTOMATIC,
        description="Automatic: a worse setting is taken back. Manual: only reported.",
    )
    live_changes: LiveChanges = Field(
        default=LiveChanges.DISABLED,
        description="Whether production's limits may be switched in its running engines, without a restart, where "
        "kneekeeper may write the pod template; a vLLM plugin is added to it.",
    )


class DeletionPolicy(StrEnum):
    KEEP = "Keep"
    RESTORE = "Restore"


class ServingProfileSpec(ApiModel):
    """Which workload is kept below its knee, by which promise, and what may be done for it."""

    target_ref: TargetRef = Field(description="The workload to tune; it cannot change.")
    slo: SloTargets = Field(default=SloTargets(), description="What users were promised.")
    workload: Workload | None = Field(
        default=None, description="What the traffic looks like; left out, learned from metrics."
    )
    objective: Objective = Field(
        default=Objective.INTERACTIVE,
        description="Interactive: the highest rate inside the SLO. Throughput: the most output tokens per second of a "
        "full engine, for offline batches; it has no latency targets.",
    )
    parameters: Parameters = Field(default=Parameters(), description="What may be tuned, and how far.")
    probe: Probe = Field(default=Probe(), description="How the engine may be measured.")
    endpoint: EndpointSpec = Field(default=EndpointSpec(), description="How the engine is reached.")
    metrics: MetricsSpec = Field(default=MetricsSpec(), description="Where metrics are read.")
    schedules: list[Schedule] = Field(
        default=[], max_length=24, description="Other workloads or bounds at certain hours."
    )
    retune: Retune = Field(default=Retune(), description="What starts the next run.")
    update_policy: UpdatePolicy = Field(default=UpdatePolicy(), description="What happens with a proven setting.")
    deletion_policy: DeletionPolicy = Field(
        default=DeletionPolicy.KEEP,
        description="When the profile is deleted: Keep what was applied, or Restore what stood there before.",
    )
    run_history_limit: int = Field(default=10, ge=1, le=100, description="How many finished runs are kept.")
    suspend: bool = Field(default=False, description="Start nothing new; what runs is ended.")

    @rule(
        "self.objective == 'Throughput' || (has(self.slo) && (has(self.slo.p99TTFT) || has(self.slo.p99TPOT)"
        " || has(self.slo.p99E2E)))",
        "set at least one of slo.p99TTFT, slo.p99TPOT and slo.p99E2E, or objective: Throughput",
    )
    def _promises_something(self) -> bool:
        return self.objective is Objective.THROUGHPUT or self.slo.sets_a_latency_target()


class ServingProfile(ApiModel):
    """Keeps one vLLM workload just below its knee: measures, recommends and applies its batching limits."""

    metadata: dict[str, Any]
    spec: ServingProfileSpec = Field(description="What is wanted.")
    status: ServingProfileStatus = Field(
        default=ServingProfileStatus(), description="What is; written by the operator alone."
    )

    @rule(*NAME_RULE)
    def _name_fits_a_label(self) -> bool:
        return name_fits_a_label(self.metadata)
