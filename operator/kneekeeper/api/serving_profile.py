"""`ServingProfile`: what a user declares about one vLLM workload."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from kneekeeper.api.model import ApiModel, LocalReference
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.quantities import Duration


class TargetRef(ApiModel):
    """The workload to tune, in the profile's own namespace."""

    api_version: str = Field(default="apps/v1", max_length=253)
    kind: str = Field(min_length=1, max_length=63)
    name: str = Field(min_length=1, max_length=253)
    container: str | None = Field(
        default=None, max_length=63, description="The vLLM container; left out when exactly one runs vLLM."
    )


class SloTargets(ApiModel):
    """What users were promised. At least one latency target is set, unless the objective is Throughput."""

    p99_ttft: Duration | None = Field(
        default=None, description="P99 time to first token, from the intended send time."
    )
    p99_tpot: Duration | None = Field(
        default=None,
        description="P99 time per output token: (last token - first token) / (output tokens - 1).",
    )
    p99_e2e: Duration | None = Field(default=None, description="P99 time of a whole request.")
    availability_percent: int | None = Field(default=None, ge=50, le=100)


class LengthDistribution(StrEnum):
    FIXED = "Fixed"
    UNIFORM = "Uniform"
    LOG_NORMAL = "LogNormal"


class TokenLengths(ApiModel):
    """How many tokens a prompt or an answer has."""

    distribution: LengthDistribution = LengthDistribution.LOG_NORMAL
    value: int | None = Field(default=None, ge=1, le=1_000_000, description="Fixed: the length.")
    min: int | None = Field(default=None, ge=1, le=1_000_000, description="Uniform: the shortest.")
    max: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Uniform: the longest. LogNormal: where draws are cut."
    )
    mean: int | None = Field(default=None, ge=1, le=1_000_000, description="LogNormal: the mean.")
    p99: int | None = Field(default=None, ge=1, le=1_000_000, description="LogNormal: the 99th percentile.")


class ArrivalProcess(StrEnum):
    POISSON = "Poisson"
    GAMMA = "Gamma"
    CONSTANT = "Constant"
    CLOSED = "Closed"
    TRACE = "Trace"


class ArrivalSpec(ApiModel):
    """How requests arrive."""

    process: ArrivalProcess = ArrivalProcess.POISSON
    burstiness_percent: int | None = Field(
        default=None, ge=1, le=10_000, description="Gamma: shape times 100; 100 is Poisson, below is bursty."
    )
    users: int | None = Field(default=None, ge=1, le=100_000, description="Closed: how many clients.")


class SourceRef(ApiModel):
    """Where prompts or a trace come from."""

    config_map_ref: LocalReference | None = None
    persistent_volume_claim: LocalReference | None = None


class WorkloadClass(ApiModel):
    """One kind of request in a mix."""

    name: str = Field(min_length=1, max_length=63)
    weight_percent: int = Field(ge=1, le=100)
    prompt_tokens: TokenLengths
    output_tokens: TokenLengths
    slo: SloTargets | None = None


class Workload(ApiModel):
    """What the traffic looks like; left out, it is learned from the target's own metrics."""

    prompt_tokens: TokenLengths | None = None
    output_tokens: TokenLengths | None = None
    arrivals: ArrivalSpec = ArrivalSpec()
    prefix_cache_hit_percent: int = Field(default=0, ge=0, le=100)
    classes: list[WorkloadClass] = Field(default=[], max_length=8)
    prompts: SourceRef | None = None
    trace_ref: SourceRef | None = None


class Objective(StrEnum):
    INTERACTIVE = "Interactive"
    THROUGHPUT = "Throughput"


class Bounds(ApiModel):
    """The range in which a limit may be set; left out, derived from the present setting."""

    min: int | None = Field(default=None, ge=1, le=1_048_576)
    max: int | None = Field(default=None, ge=1, le=1_048_576)


class Parameters(ApiModel):
    """What may be tuned, and how far."""

    max_num_seqs: Bounds = Bounds()
    max_num_batched_tokens: Bounds = Bounds()
    knee_elasticity_percent: int | None = Field(
        default=None, ge=1, le=90, description="Makes the knee at this elasticity a hard cap."
    )


class ProbeTarget(StrEnum):
    CLONE = "Clone"
    BORROW_REPLICA = "BorrowReplica"
    IN_PLACE = "InPlace"
    PASSIVE = "Passive"


class Ladder(ApiModel):
    """How the ramp climbs."""

    max_concurrency: int = Field(default=512, ge=2, le=4096)
    max_stage_duration: Duration = Field(default=120.0, description="An undecided stage ends here.")
    recovery: Duration = Field(default=2.0, description="Idle time between stages.")
    control_tolerance_percent: int = Field(
        default=15, ge=1, le=100, description="How far repeated control stages may differ."
    )


class Budget(ApiModel):
    """What a run may cost; when it runs out, the best proven setting stands."""

    max_measure_duration: Duration = 1800.0
    start_timeout: Duration = 1800.0
    max_restarts: int = Field(default=3, ge=1, le=20)
    max_gpu_seconds: int = Field(default=7200, ge=60)


class Window(ApiModel):
    """When probes may run."""

    schedule: str = Field(max_length=100, description="Cron.")
    time_zone: str = Field(default="UTC", max_length=64)
    duration: Duration


class CloneOptions(ApiModel):
    """What the clone of the serving pod keeps."""

    keep: list[str] = Field(
        default=[], max_length=32, description="Labels and annotations that the clone carries over."
    )


class Probe(ApiModel):
    """How the engine may be measured; what `allow` does not list is never done."""

    allow: list[ProbeTarget] = Field(default=[ProbeTarget.CLONE], min_length=1, max_length=4)
    ladder: Ladder = Ladder()
    budget: Budget = Budget()
    window: Window | None = None
    clone: CloneOptions = CloneOptions()
    allow_scale_up: bool = Field(default=False, description="Whether a clone may cause a node to be added.")


class Scheme(StrEnum):
    HTTP = "http"
    HTTPS = "https"


class EndpointSpec(ApiModel):
    """How the engine is reached, where it cannot be read from its arguments."""

    port: int | None = Field(default=None, ge=1, le=65535)
    scheme: Scheme | None = None
    root_path: str | None = Field(default=None, max_length=253)
    model: str | None = Field(default=None, max_length=253)
    api_key_secret_ref: LocalReference | None = None
    ca_bundle_ref: LocalReference | None = None


class PrometheusRef(ApiModel):
    """A Prometheus server that scrapes the target."""

    url: str = Field(pattern=r"^https?://", max_length=512)


class MetricsSpec(ApiModel):
    """Where metrics are read; left out, the operator's default, else the pods themselves."""

    prometheus_ref: PrometheusRef | None = None
    match_labels: dict[str, str] = Field(default={}, max_length=16)


class Schedule(ApiModel):
    """Another workload or other bounds at certain hours."""

    cron: str = Field(max_length=100)
    time_zone: str = Field(default="UTC", max_length=64)
    duration: Duration
    workload: Workload | None = None
    parameters: Parameters | None = None


class RetuneTrigger(StrEnum):
    IMAGE = "Image"
    MODEL = "Model"
    ARGUMENTS = "Arguments"
    HARDWARE = "Hardware"
    TRAFFIC = "Traffic"
    SLO_BREACH = "SLOBreach"


class Retune(ApiModel):
    """What starts the next run."""

    on: list[RetuneTrigger] = Field(
        default=[RetuneTrigger.IMAGE, RetuneTrigger.MODEL, RetuneTrigger.ARGUMENTS, RetuneTrigger.HARDWARE],
        max_length=6,
    )
    min_interval: Duration = 21600.0


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

    mode: UpdateMode = UpdateMode.RECOMMEND
    method: UpdateMethod = UpdateMethod.AUTO
    min_improvement_percent: int = Field(default=5, ge=0, le=1000)
    verify_for: Duration = 600.0
    rollback: RollbackMode = RollbackMode.AUTOMATIC
    live_changes: LiveChanges = LiveChanges.DISABLED


class DeletionPolicy(StrEnum):
    KEEP = "Keep"
    RESTORE = "Restore"


class ServingProfileSpec(ApiModel):
    """Which workload is kept below its knee, by which promise, and what may be done for it."""

    target_ref: TargetRef
    slo: SloTargets = SloTargets()
    workload: Workload | None = None
    objective: Objective = Objective.INTERACTIVE
    parameters: Parameters = Parameters()
    probe: Probe = Probe()
    endpoint: EndpointSpec = EndpointSpec()
    metrics: MetricsSpec = MetricsSpec()
    schedules: list[Schedule] = Field(default=[], max_length=24)
    retune: Retune = Retune()
    update_policy: UpdatePolicy = UpdatePolicy()
    deletion_policy: DeletionPolicy = DeletionPolicy.KEEP
    run_history_limit: int = Field(default=10, ge=1, le=100)
    suspend: bool = False


class ServingProfile(ApiModel):
    """One profile as read from the API server; metadata stays as it came."""

    metadata: dict[str, Any]
    spec: ServingProfileSpec
    status: ServingProfileStatus = ServingProfileStatus()
