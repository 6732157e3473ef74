"""What is seen of the world in one tick: frozen values, gathered by `observe`, read by the plans.

A field that was not needed in this step of a run is None; the plans say by `needs` what they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.sources import SourcesReport
from kneekeeper.api.stage import MOST_AGENTS, Samples, StageStatus
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.diagnose.observation import GpuWindow
from kneekeeper.domain.diagnose.reading import EngineReading
from kneekeeper.domain.live_delivery import Delivery, PluginImage
from kneekeeper.domain.passive import EngineHistory
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.targets.model import Objects
from kneekeeper.domain.traffic_history import TrafficHistory
from kneekeeper.livetune.messages import Report as LiveReport


@dataclass(frozen=True)
class ContainerView:
    """One container of a pod template."""

    name: str
    image: str
    words: ContainerWords
    env: Mapping[str, str]  # as far as it is known; an Environment also tells which names have other values
    ports: tuple[int, ...]
    gpus: int
    files: Mapping[str, str] = field(default_factory=dict)  # texts that `--config` may name, by path


@dataclass(frozen=True)
class Owner:
    """The controller that owns a workload, or the tool that manages it."""

    kind: str
    name: str


@dataclass(frozen=True)
class LiveView:
    """Production's live-tuning plugin in a workload's template."""

    delivery: Delivery
    limits: str | None  # the ConfigMap's text; None where there is none
    stands: bool  # whether the words still start the engine with the delivery's pair


@dataclass(frozen=True)
class WorkloadView:
    """A workload as it stands; one whose limits are switched live as without that, with words of what is in force."""

    kind: str
    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int
    observed_generation: int
    replicas: int
    updated_replicas: int
    ready_replicas: int
    total_replicas: int
    progress_deadline_exceeded: bool
    owner: Owner | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[ContainerView, ...]
    node_selector: Mapping[str, str]
    pod_template: Mapping[str, Any]  # as the API server gave it; only the clone builder looks inside
    last_writer: str = ""  # field manager of the newest write to the containers' words
    max_unavailable: int | None = None  # pods that a rollout may take away before others are ready; None: not known
    resource: str = "deployment"  # as kubectl takes it
    template_path: tuple[str | int, ...] = ("spec", "template")  # where the pods' template stands
    pods_per_replica: int = 1
    held_back: str = ""  # why a rollout does not reach every pod by itself; "" where it does
    source: Objects | None = None  # the object that declares it, first, and those that help to read it; None: unread
    made_by_controller: bool = False  # of the fields of `source`, and so never written itself
    awaits_promotion: bool = False  # a rollout stands still until a person or an analysis lets it go on
    shared_config_maps: tuple[str, ...] = ()  # that pods of others mount too; read where one may be written
    live: LiveView | None = None  # None: the template has no plugin

    @property
    def rolled_out(self) -> bool:
        """Every replica runs the present template and is ready, and no other pod is left."""
        return (
            self.observed_generation >= self.generation
            and self.updated_replicas == self.replicas
            and self.ready_replicas == self.replicas
            and self.total_replicas == self.replicas
        )


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True)
class PodView:
    """One pod; `log_tail` is read only for containers that ended or keep crashing."""

    name: str
    uid: str
    node: str
    ip: str
    phase: PodPhase
    ready: bool
    deleting: bool
    restarts: int
    waiting_reason: str  # of the engine's container: CrashLoopBackOff, ImagePullBackOff, …
    exit_code: int | None
    unschedulable_message: str
    created_at: datetime
    words: ContainerWords
    image_id: str
    log_tail: str
    gpu_product: str = ""
    image: str = ""  # of the engine's container, as the pod's own spec has it
    queued: bool = False  # Kueue has not admitted it
    delivery: Delivery | None = None  # the live-tuning plugin that it was made with

    @property
    def keeps_crashing(self) -> bool:
        """Once may be chance; twice, or what the kubelet calls a loop, is not."""
        return self.restarts >= 2 or self.waiting_reason == "CrashLoopBackOff"


@dataclass(frozen=True)
class EngineMetrics:
    """Gauges and counters of one engine, read from its /metrics, summed over data-parallel ranks."""

    running: int
    waiting: int
    kv_cache_tokens: int | None
    generation_tokens_total: float
    preemptions_total: float
    kv_cache_usage: float | None = None  # share of blocks in use, of the fullest rank
    block_tokens: int | None = None  # of one KV block
    prefix_cache_queries_total: float | None = None  # prompt tokens; None where the engine does not count them
    prefix_cache_hits_total: float | None = None
    draft_tokens_total: float | None = None  # of speculative decoding
    accepted_tokens_total: float | None = None


@dataclass(frozen=True)
class ProductionLoad:
    """Requests in all serving pods together, and what else speaks against taking one of them away."""

    running: int
    waiting: int
    exhausted_budgets: tuple[str, ...] = ()  # PodDisruptionBudgets of the pods that allow none to go


@dataclass(frozen=True)
class GpuRoom:
    """Spare GPUs on schedulable nodes of the serving pods' product."""

    product: str
    largest_free_on_a_node: int


@dataclass(frozen=True)
class StageView:
    """What the agent says of the current stage; `status` None: it does not know it."""

    status: StageStatus | None
    samples: Samples | None  # fetched only once the stage has ended


@dataclass(frozen=True)
class Unreachable:
    """Something that should answer did not; `why` is for people."""

    why: str


class ObstacleReason(StrEnum):
    """A condition's reason, and the cause of the run that it ends."""

    SINGLE_WRITER_VOLUME = "SingleWriterVolume"
    SHARED_DEVICE = "SharedDevice"
    CLONE_IS_SELECTED = "CloneIsSelected"
    SELECTORS_UNKNOWN = "SelectorsUnknown"
    API_KEY_UNUSABLE = "APIKeyUnusable"
    CA_BUNDLE_UNUSABLE = "CABundleUnusable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_REFUSED = "PodRefused"
    QUEUE_NOT_ADMITTED = "QueueNotAdmitted"


OBSTACLES_TO_CLONES = (
    ObstacleReason.SINGLE_WRITER_VOLUME,
    ObstacleReason.SHARED_DEVICE,
    ObstacleReason.CLONE_IS_SELECTED,
    ObstacleReason.SELECTORS_UNKNOWN,
)
"""Not in the way of a load agent alone."""


@dataclass(frozen=True)
class Obstacle:
    """Why the clone or the load agent cannot be made, or may not be; `message` names the next step."""

    reason: ObstacleReason
    message: str


@dataclass(frozen=True)
class RunObservation:
    """Everything `run_plan.decide` looks at."""

    now: datetime
    run: TuningRun
    profile: ServingProfile | None
    workload: WorkloadView | None
    profile_problem: str = ""  # why there is none, where that is not since it is gone
    deleting: bool = False
    clone: PodView | None = None  # of the present start; in place the serving pod that is, or may be, measured
    clone_starts: tuple[int, ...] = ()  # whose pods exist, the present one included
    agent: PodView | None = None
    helpers: tuple[PodView, ...] = ()  # the other load agents of the run
    most_agents: int = MOST_AGENTS  # that there can be here
    stage: StageView | Unreachable | None = None
    clone_metrics: EngineMetrics | Unreachable | None = None
    live: LiveReport | Unreachable | None = None  # of the clone's plugin, where live tuning is allowed and may be due
    sources: SourcesReport | Unreachable | None = None  # what the agent's files hold, asked for in step Sources
    draft_acceptance: float | None = None  # of production's speculative decoding, 0 to 1; read in Preflight
    agent_exists: bool = False  # its Job or Secret, with or without a pod
    gpu_product: str = ""  # of the nodes that the serving pods run on
    image_digest: str = ""  # that the serving pods run, "" where it is not known
    gpu_room: GpuRoom | None = None
    obstacle: Obstacle | None = None  # looked for in Preflight, and when the clone or the agent is missing
    records: tuple[EngineRecord, ...] | Unreachable | None = None  # of production, where a run may be passive
    production: ProductionLoad | Unreachable | None = None  # looked at where a replica may be, or is, borrowed
    other_active_runs: tuple[str, ...] = ()  # of the same workload, older first
    runs_ahead_in_fleet: int = 0  # that have to begin or end before this one may begin


@dataclass(frozen=True)
class ViolationShare:
    """Share of requests beyond a target in a window of production, known to lie in [lower, upper]."""

    lower: float
    upper: float
    requests: int
    window_s: float = 0.0  # that was really seen; 0 where it is not known

    @property
    def requests_per_s(self) -> float | None:
        """All pods together; None where the window is not known."""
        return self.requests / self.window_s if self.window_s > 0 else None


@dataclass(frozen=True)
class SideBySide:
    """Old and new pods that served in the same minutes of a rollout, with their counts."""

    old: ViolationShare
    old_pods: int
    new: ViolationShare
    new_pods: int


@dataclass(frozen=True)
class Demand:
    """What production asked for: the highest rate of all replicas together in the time that is remembered."""

    peak_requests_per_s: float


@dataclass(frozen=True)
class ProductionHistory:
    """What a source of metrics remembers of a target: its engines over a day, its traffic over days."""

    engines: tuple[EngineHistory, ...]
    traffic: TrafficHistory


@dataclass(frozen=True)
class ProfileObservation:
    """Everything `profile_plan.decide` looks at."""

    now: datetime
    profile: ServingProfile
    workload: WorkloadView | None
    workload_problem: str = ""  # why it could not be read, when it is None for another reason than absence
    deleting: bool = False
    runs: tuple[TuningRun, ...] = ()  # of this profile, oldest first
    older_profiles_on_target: tuple[str, ...] = ()
    pods: tuple[PodView, ...] | None = None  # None: not read in this tick
    pod_metrics: Mapping[str, EngineMetrics | Unreachable] | None = None  # by pod name
    violations: ViolationShare | None = None  # over the last minutes, None: not known
    side_by_side: SideBySide | None = None  # while pods with old and new words serve
    demand: Demand | None = None  # None: not known
    gpu_room: GpuRoom | None = None  # read where a rollout may be due, None: not known
    violations_over: Mapping[float, ViolationShare] | None = None  # by window in seconds; read for SLOBreach alone
    engine_readings: Mapping[str, tuple[EngineReading, ...]] | None = None  # by pod, oldest first; None: not read
    gpu_windows: Mapping[str, GpuWindow] | None = None  # by pod; None: no exporter's metrics are read
    history: ProductionHistory | None = None  # None: not read in this tick, or the source keeps none
    history_read: bool = False  # whether the source was asked in this tick
    live: Mapping[str, LiveReport | Unreachable] = field(default_factory=dict)  # of pods with the plugin, by name
    plugin_image: PluginImage | None = None  # what it is delivered with; None: it cannot be
