"""What a small cluster for the state machines is like: its workload, pods, clones and agent, and what ails it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ServingProfile, ServingProfileSpec
from kneekeeper.api.sources import SourcesReport
from kneekeeper.api.stage import Samples, StageSpec
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import ContainerView, Demand, Obstacle, Owner, PodPhase, Unreachable, ViolationShare
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.target import present_setting
from kneekeeper.livetune.messages import Report as LiveReport
from tests.unit.plan.pods import digest_behind

START = datetime(2026, 1, 1, tzinfo=UTC)
STARTUP_S = 20.0
ROLLOUT_S = 15.0


PROFILE_SPEC: dict[str, Any] = {
    "targetRef": {"kind": "Deployment", "name": "chat"},
    "slo": {"p99TTFT": "2s", "p99TPOT": "25ms"},
    "workload": {
        "promptTokens": {"distribution": "LogNormal", "mean": 200, "p99": 600},
        "outputTokens": {"distribution": "LogNormal", "mean": 60, "p99": 150},
    },
    "parameters": {"maxNumSeqs": {"min": 1, "max": 32}, "maxNumBatchedTokens": {"min": 256, "max": 2048}},
    "updatePolicy": {"mode": "Apply", "verifyFor": "1m"},
}


@dataclass
class Clone:
    setting: Setting
    created: datetime
    log: str = ""  # why it fails, if it does
    dead: bool = False
    reason: str = ""  # of its end, where it did not end by itself
    live: Setting | None = None  # set live; None: what it was started with
    delivered: bool = False  # the live-tuning plugin


ORIGINAL_ARGS = ["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=2048"]


@dataclass
class Circumstances:
    """All that a test may set, and what has come of it until now."""

    spec: dict[str, Any] = field(default_factory=lambda: dict(PROFILE_SPEC))
    args: list[str] = field(default_factory=lambda: list(ORIGINAL_ARGS))
    image: str = "vllm/vllm-openai:v0.32.0"
    replicas: int = 2
    gpus: int = 1
    spare_gpus: int = 1
    owner: Owner | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    violations: ViolationShare | None = None
    demand: Demand | None = None
    max_unavailable: int | None = 1
    room_for_surge: int | None = None  # GPUs that a node has free for one more serving pod
    missing_share: float | None = None  # of the requests, over every window that is asked for
    failing_starts: dict[Setting, str] = field(default_factory=dict)  # clones with this setting log this and end
    crashing_rollouts: bool = False
    workload_exists: bool = True
    profile_deleting: bool = False
    production_waiting: int = 0
    production_running: int = 1
    production_readable: bool = True
    exhausted_budgets: tuple[str, ...] = ()
    obstacle: Obstacle | None = None  # to the making of a clone or an agent
    now: datetime = START
    container: str = "vllm"
    gpu_product: str = "L4"
    generation: int = 1
    unready: int = 0  # serving pods that are not ready
    paused: bool = False  # new words reach no pod
    leaving: bool = False  # a pod that was scaled away does not go
    reverting: bool = False  # another controller puts back what kneekeeper writes
    autoscaling: bool = False  # another controller puts back the replicas
    scaling_fails: bool = False  # the API server does not take the replicas
    agent_broken: bool = False
    clones_placed: bool = True
    queued: bool = False  # where clones are not placed: by Kueue
    clone_ready: bool = True
    hanging: str = ""  # stages with this in their name do not end
    failing: str = ""  # stages with this in their name end as Failed
    slow: str = ""  # in stages with this in their name tokens take three times as long
    clone_reachable: bool = True  # by the agent
    agent_reachable: bool = True  # by the operator
    readable: bool = True  # the workload may be read
    sources: SourcesReport | None = None  # what the agent's files hold
    helpers_ready: int = 15  # of the load agents beside the first
    most_agents: int = 16
    plugin_fault: LiveReport | Unreachable | None = None  # what a delivered plugin says that does not work
    environment: Mapping[str, str] = field(default_factory=dict)  # of the workload's container
    hit_share: float = 0.0  # of the clone's prefix cache
    counters_readable: bool = True
    clone_acceptance: float = 0.6  # of draft tokens
    production_acceptance: float | None = None
    profile_exists: bool = True
    profile_problem: str = ""
    records: tuple[EngineRecord, ...] | Unreachable | None = None  # what Prometheus has kept of production
    users: int = 0  # requests of users that the measured serving pod works on now
    interrupting: str = ""  # into stages with this in their name users come
    pods_replaced: int = 0  # how often others took the place of the serving pods
    engine_restarts: int = 0  # of the measured serving pod's container
    pod_phase: PodPhase = PodPhase.RUNNING  # of the serving pod that would be measured
    digests: dict[str, str] = field(default_factory=dict)  # by image reference, where a tag tells another story
    replicas_at_start: int = 2

    def __post_init__(self) -> None:
        self.profile = ServingProfile(
            metadata={"name": "chat", "namespace": "prod", "uid": "uid-profile", "generation": 1},
            spec=ServingProfileSpec.model_validate(self.spec),
        )
        self.runs: dict[str, TuningRun] = {}
        self.clones: dict[int, Clone] = {}
        self.agent_since: datetime | None = None
        self.stage: StageSpec | None = None
        self.stage_ends = START
        self.evidence: dict[str, Samples] = {}
        self.broken_off: dict[str, str] = {}  # guarded stages, with the reason
        self.ordered: list[StageSpec] = []  # every stage that was started
        self.ordered_with: list[tuple[str, ...]] = []  # the helpers of each
        self.rolled_at = START - timedelta(hours=1)
        self.served_args = list(self.args)
        self.writes: list[tuple[str, object]] = []  # every write to the workload
        self.events: list[act.EmitEvent] = []
        self.created: list[str] = []  # every child that was made, once a making
        self.writer = "kubectl"

    @property
    def words(self) -> ContainerWords:
        return ContainerWords(command=["vllm"], args=list(self.args))

    @property
    def rolling(self) -> bool:
        return self.now < self.rolled_at + timedelta(seconds=ROLLOUT_S) or self._new_pods_crash

    @property
    def _new_pods_crash(self) -> bool:
        return self.crashing_rollouts and self.writer == "kneekeeper" and self.args != self.original_args

    @property
    def original_args(self) -> list[str]:
        return list(ORIGINAL_ARGS)

    @property
    def digest(self) -> str:
        return self.digests.get(self.image) or digest_behind(self.image)

    @property
    def _container(self) -> ContainerView:
        return ContainerView(self.container, self.image, self.words, self.environment, (8000,), self.gpus)

    def _stage_runs(self) -> bool:
        return self.now < self.stage_ends or self._hangs

    @property
    def _hangs(self) -> bool:
        return self.stage is not None and self.hanging != "" and self.hanging in self.stage.id

    def _setting_under_test(self) -> Setting:
        if not self.clones:  # in place
            setting = present_setting(self._container)
            assert setting is not None
            return setting
        clone = self.clones[max(self.clones)]
        return clone.live or clone.setting
