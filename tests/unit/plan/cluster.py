"""A small cluster for the state machines: a workload, its pods, a clone, an agent and an injected clock.

It carries out the plans' actions as a cluster would and answers with what a cluster would show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ProbeTarget, ServingProfile, ServingProfileSpec
from kneekeeper.api.sources import SourcesReport
from kneekeeper.api.stage import TARGET_UNREACHABLE, USERS_SERVED, WINDOW_CLOSED, Samples, StageSpec, StageState
from kneekeeper.api.tuning_run import TuningRun, TuningRunSpec
from kneekeeper.domain import actions as act
from kneekeeper.domain.burn_rate import WINDOWS_S
from kneekeeper.domain.observation import (
    ContainerView,
    Demand,
    EngineMetrics,
    GpuRoom,
    Obstacle,
    Owner,
    PodPhase,
    PodView,
    ProductionLoad,
    ProfileObservation,
    RunObservation,
    StageView,
    Unreachable,
    ViolationShare,
    WorkloadView,
)
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.target import present_setting
from kneekeeper.livetune.limits import Envelope, Limits, Standing
from kneekeeper.livetune.messages import PROTOCOL
from kneekeeper.livetune.messages import Report as LiveReport
from tests.unit.plan.engine_law import answer
from tests.unit.plan.pods import digest_behind, pod_view

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


NO_SAMPLES = Samples(
    warmup_s=0.0,
    intended_s=[],
    sent_s=[],
    first_s=[],
    last_s=[],
    prompt_tokens=[],
    output_tokens=[],
    first_chunk_tokens=[],
    chunks=[],
    outcome=[],
)


def _limits(setting: Setting) -> Limits:
    return Limits(setting.max_num_seqs, setting.max_num_batched_tokens)


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
class Cluster:
    """Everything outside the operator."""

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
    records: tuple[EngineRecord, ...] | Unreachable | None = None  # what Prometheus has kept of production
    users: int = 0  # requests of users that the measured serving pod works on now
    interrupting: str = ""  # into stages with this in their name users come
    pods_replaced: int = 0  # how often others took the place of the serving pods
    engine_restarts: int = 0  # of the measured serving pod's container
    pod_phase: PodPhase = PodPhase.RUNNING  # of the serving pod that would be measured
    digests: dict[str, str] = field(default_factory=dict)  # by image reference, where a tag tells another story

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

    # What the user or others do.

    def delete_run(self, name: str) -> None:
        metadata = {**self.runs[name].metadata, "deletionTimestamp": "now"}
        self.runs[name] = self.runs[name].with_changes(metadata=metadata)

    def edit_profile(self, **spec: Any) -> None:
        resource = self.profile.spec.to_resource() | spec
        self._meta("generation", int(self.profile.metadata["generation"]) + 1)
        self.profile = self.profile.with_changes(spec=ServingProfileSpec.model_validate(resource))

    def annotate(self, key: str, value: str) -> None:
        self._meta("annotations", {**self.profile.metadata.get("annotations", {}), key: value})

    def _meta(self, key: str, value: object) -> None:
        self.profile = self.profile.with_changes(metadata={**self.profile.metadata, key: value})

    def set_args(self, args: list[str], *, writer: str = "kubectl") -> None:
        self.args, self.rolled_at, self.writer = args, self.now, writer
        self.generation += 1
        if not self.paused:
            self.served_args = list(args)

    def set_image(self, image: str) -> None:
        self.image, self.rolled_at = image, self.now
        self.generation += 1

    def set_clock_back(self, by: timedelta) -> None:
        """The operator's clock alone: what the world does by itself takes as long as before."""
        self.now -= by
        self.stage_ends -= by
        self.rolled_at -= by
        self.agent_since = None if self.agent_since is None else self.agent_since - by
        for clone in self.clones.values():
            clone.created -= by

    def take_clone_away(self) -> None:
        """As the kubelet does it when the node runs short."""
        for clone in self.clones.values():
            clone.dead, clone.reason = True, "Evicted"

    def preempt_clone(self) -> None:
        """As the scheduler does it for a pod of production: the pod is deleted."""
        self.clones.clear()

    def replace_pods(self) -> None:
        """As a drained node or a restarted rollout does it."""
        self.pods_replaced += 1

    # What is seen.

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

    def workload(self) -> WorkloadView | None:
        if not self.workload_exists or not self.readable:
            return None
        rolling = self.rolling or self.served_args != self.args
        ready = max(0, self.replicas - (1 if rolling else 0) - self.unready)
        return WorkloadView(
            kind="Deployment",
            name="chat",
            namespace="prod",
            uid="uid-workload",
            resource_version=str(self.generation),
            generation=self.generation,
            observed_generation=self.generation,
            replicas=self.replicas,
            updated_replicas=ready,
            ready_replicas=ready,
            total_replicas=self.replicas + self.leaving,
            progress_deadline_exceeded=False,
            owner=self.owner,
            labels={},
            annotations=self.annotations,
            containers=(self._container,),
            node_selector={},
            pod_template={},
            last_writer=self.writer,
            max_unavailable=self.max_unavailable,
        )

    @property
    def _container(self) -> ContainerView:
        return ContainerView(self.container, self.image, self.words, self.environment, (8000,), self.gpus)

    def pods(self) -> tuple[PodView, ...]:
        crashing = self._new_pods_crash and self.now > self.rolled_at + timedelta(seconds=ROLLOUT_S)
        return tuple(
            self._pod(
                f"chat-{i}",
                ContainerWords(command=["vllm"], args=list(self.served_args)),
                ready=not (crashing and i == 0),
                crashing=crashing and i == 0,
            )
            for i in range(self.replicas)
        )

    def _pod(self, name: str, words: ContainerWords, *, ready: bool, crashing: bool = False) -> PodView:
        view = pod_view(name, words, self.now, self.gpu_product)
        view = replace(view, image=self.image, image_id=f"registry.example.com/vllm@{self.digest}")
        if crashing:
            log = "torch.OutOfMemoryError: CUDA out of memory."
            view = replace(view, restarts=3, waiting_reason="CrashLoopBackOff", log_tail=log)
        return replace(view, ready=ready)

    def observe_profile(self) -> ProfileObservation:
        pods = self.pods() if self.workload_exists else ()
        return ProfileObservation(
            now=self.now,
            profile=self.profile,
            workload=self.workload(),
            workload_problem="" if self.readable else "deployments may not be read",
            deleting=self.profile_deleting,
            runs=tuple(self.runs.values()),
            pods=pods,
            pod_metrics={p.name: EngineMetrics(1, 0, 100_000, 0.0, 0.0) for p in pods},
            violations=self.violations,
            violations_over=self._violations_over(),
            demand=self.demand,
            gpu_room=None if self.room_for_surge is None else GpuRoom(self.gpu_product, self.room_for_surge),
        )

    def _violations_over(self) -> dict[float, ViolationShare] | None:
        share = self.missing_share
        if share is None:
            return None
        return {w: ViolationShare(share, share, 1000, window_s=w) for w in WINDOWS_S}

    def observe_run(self, run: TuningRun) -> RunObservation:
        clone_state = run.status.clone
        clone = self._clone_view(clone_state.start) if clone_state else None
        if self._is_in_place(run):
            clone = self._serving_pod(clone_state.serving_pod if clone_state else "")
        profile = self.profile
        if self.profile_deleting:
            profile = profile.with_changes(metadata={**profile.metadata, "deletionTimestamp": "now"})
        return RunObservation(
            now=self.now,
            run=run,
            profile=profile if self.profile_exists else None,
            workload=self.workload(),
            deleting="deletionTimestamp" in run.metadata,
            clone=clone,
            clone_starts=tuple(self.clones),
            agent=self._agent_view(),
            helpers=tuple(self._helper_view(number) for number in range(1, self.helpers_ready + 1)),
            most_agents=self.most_agents,
            agent_exists=self.agent_since is not None,
            stage=self._stage_view() if self.clones or (clone is not None and self._is_in_place(run)) else None,
            clone_metrics=self._clone_metrics() if clone and clone.ready and self.counters_readable else None,
            live=self._live_view(),
            sources=self._sources_view(),
            records=self.records,
            draft_acceptance=self.production_acceptance,
            gpu_product=self.gpu_product,
            image_digest=run.status.plan.image_digest if run.status.plan else self.digest,
            gpu_room=GpuRoom(self.gpu_product, self._free_gpus()),
            obstacle=self.obstacle if clone is None or self.agent_since is None else None,
            production=self._production(),
        )

    def _is_in_place(self, run: TuningRun) -> bool:
        return run.status.plan is not None and run.status.plan.probe_target is ProbeTarget.IN_PLACE

    def _serving_pod(self, pinned: str) -> PodView | None:
        """As `observe` reads it: the pinned one if it is there, else the first."""
        if not self.replicas:
            return None
        uid = f"uid-chat-{self.pods_replaced}"
        view = replace(self.pods()[0], uid=uid, restarts=self.engine_restarts, phase=self.pod_phase)
        return replace(view, ready=not self.unready) if pinned in ("", uid) else None

    def _production(self) -> ProductionLoad | Unreachable:
        if not self.production_readable:
            return Unreachable("no pod answers")
        return ProductionLoad(self.production_running, self.production_waiting, self.exhausted_budgets)

    def _free_gpus(self) -> int:
        return self.replicas_at_start - self.replicas + self.spare_gpus - len(self.clones) * self.gpus

    replicas_at_start: int = 2

    def _clone_metrics(self) -> EngineMetrics:
        """Its counters grow with every stage."""
        queries = 100_000.0 * len(self.ordered)
        return replace(
            EngineMetrics(self.users, 0, 100_000, 0.0, 0.0, block_tokens=16),
            prefix_cache_queries_total=queries,
            prefix_cache_hits_total=self.hit_share * queries,
            draft_tokens_total=queries,
            accepted_tokens_total=self.clone_acceptance * queries,
        )

    def _live_view(self) -> LiveReport | Unreachable | None:
        if not self.clones:
            return None
        clone = self.clones[max(self.clones)]
        if not clone.delivered:
            return Unreachable("the live-tuning plugin does not answer: ConnectError")
        if self.plugin_fault is not None:
            return self.plugin_fault
        start, wanted = _limits(clone.setting), _limits(clone.live or clone.setting)
        standing = Standing(wanted, wanted, running=0, settled_s=0.0, steps=1, changes=0, fall_backs=0)
        return LiveReport(PROTOCOL, "0.32.0", Envelope(start, start), standing, 60.0)

    def _sources_view(self) -> SourcesReport | None:
        agent = self._agent_view()
        return self.sources if agent is not None and agent.ready else None

    def _agent_view(self) -> PodView | None:
        if self.agent_since is None:
            return None
        ready = self.now >= self.agent_since + timedelta(seconds=3) and not self.agent_broken
        view = self._pod("agent", ContainerWords(), ready=ready)
        return replace(view, waiting_reason="ImagePullBackOff" if self.agent_broken else "")

    def _clone_view(self, start: int) -> PodView | None:
        clone = self.clones.get(start)
        if clone is None:
            return None
        up = self.now >= clone.created + timedelta(seconds=STARTUP_S) and self.clones_placed
        view = self._pod(f"clone-{start}", ContainerWords(), ready=up and self.clone_ready and not clone.log)
        if not self.clones_placed:
            message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
            return replace(view, phase=PodPhase.PENDING, node="", unschedulable_message=message, queued=self.queued)
        if clone.dead or (up and clone.log):
            ended = replace(view, phase=PodPhase.FAILED, ready=False, exit_code=1)
            return replace(ended, waiting_reason=clone.reason, log_tail=clone.log or "Killed")
        return view

    def _helper_view(self, number: int) -> PodView:
        return replace(pod_view(f"agent-{number}", ContainerWords(), self.now, ""), ip=f"10.244.2.{number}")

    def _stage_view(self) -> StageView | Unreachable | None:
        if self.agent_since is None:
            return None
        if not self.agent_reachable:
            return Unreachable("the load agent does not answer: ConnectTimeout")
        if self.stage is None:
            return StageView(None, None)
        broken_off = self._broken_off(self.stage)
        if broken_off:
            status, _ = answer(self.stage, self._setting_under_test())
            changes = {
                "state": StageState.INVALID,
                "reason": broken_off,
                "message": "users sent 1 request",
                "elapsed_s": 1,
            }
            return StageView(status.model_copy(update=changes), NO_SAMPLES)
        ended = not self._stage_runs()
        status, samples = answer(self.stage, self._setting_under_test())
        if not ended:
            elapsed_s = status.elapsed_s - (self.stage_ends - self.now).total_seconds()
            running = {"state": StageState.RUNNING, "elapsed_s": max(0.0, elapsed_s)}
            return StageView(status.model_copy(update=running), None)
        if self.slow and self.slow in self.stage.id:
            stretched = [
                first + 3 * (last - first) for first, last in zip(samples.first_s, samples.last_s, strict=True)
            ]
            samples = samples.model_copy(update={"last_s": stretched})
        if self.failing and self.failing in self.stage.id:
            status = status.model_copy(update={"state": StageState.FAILED, "message": "the target does not answer"})
        if not self.clone_reachable:
            told = "cannot connect to 10.244.0.9 port 8000: no answer within 5 s."
            changes = {"state": StageState.FAILED, "reason": TARGET_UNREACHABLE, "message": told}
            return StageView(status.model_copy(update=changes), NO_SAMPLES)
        return StageView(status, samples)

    def _broken_off(self, stage: StageSpec) -> str:
        """As the agent's guard does it, once."""
        if stage.guard is not None and stage.id not in self.broken_off:
            if (self.interrupting and self.interrupting in stage.id) or (self._stage_runs() and self.users):
                self.broken_off[stage.id] = USERS_SERVED
            elif self._stage_runs() and self.now.timestamp() >= stage.guard.until_s:
                self.broken_off[stage.id] = WINDOW_CLOSED
        return self.broken_off.get(stage.id, "")

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

    # What is done.

    def perform(self, action: act.RunAction | act.ProfileAction | act.StoreSamples, run: str = "") -> None:
        match action:
            case act.EnsureAgent():
                if self.agent_since is None and self.obstacle is None:
                    self.agent_since, self.stage = self.now, None
                    self.created.append(f"{run}/agent")
            case act.DeleteAgent():
                self.agent_since, self.stage = None, None
            case act.EnsureClone(start=start, words=words, live_tuning=live_tuning):
                if start not in self.clones and self.obstacle is None:
                    setting = present_setting(replace(self._container, words=words))
                    assert setting is not None
                    self.clones[start] = Clone(setting, self.now, self.failing_starts.get(setting, ""))
                    self.clones[start].delivered = live_tuning is LiveTuning.ALLOWED
                    self.created.append(f"{run}/clone-{start}")
            case act.DeleteClone(start=start):
                self.clones.pop(start, None)
            case act.SetLimits(setting=setting):
                self.clones[max(self.clones)].live = setting
            case act.StartStage(spec=spec, helpers=helpers):
                if self.stage is not None and self.stage.id != spec.id and self._stage_runs():
                    self.stage = None  # of a clone that is gone: it makes way, and is ordered anew
                elif self.stage is None or self.stage.id != spec.id:
                    self.stage = spec
                    self.ordered.append(spec)
                    self.ordered_with.append(helpers)
                    status, _ = answer(spec, self._setting_under_test())
                    self.stage_ends = self.now + timedelta(seconds=status.elapsed_s)
                    self.created.append(f"{run}/stage/{spec.id}")
            case act.StoreSamples(stage=stage, samples=samples):
                self.evidence.setdefault(f"{run}/{stage}", samples)
            case act.ScaleWorkload(expected=expected, wanted=wanted):
                if self.replicas == expected and not self.scaling_fails:
                    self.replicas = expected if self.autoscaling else wanted
                    self.generation += 2 if self.autoscaling else 1
                    self.writes.append(("replicas", wanted))
            case act.WriteWords(before=before, after=after):
                if self.words == before:
                    self.set_args(list(after.args or []), writer="kneekeeper")
                    self.writes.append(("words", after))
                    if self.reverting:
                        self.set_args(list(before.args or []), writer="gitops")
            case act.CreateRun(name=name, trigger=trigger, schedule=schedule):
                if name not in self.runs:
                    self.runs[name] = TuningRun(
                        metadata={"name": name, "namespace": "prod", "uid": f"uid-{name}", "generation": 1},
                        spec=TuningRunSpec(profile_name="chat", trigger=trigger, schedule=schedule),
                    )
                    self.created.append(name)
            case act.DeleteRun(name=name):
                if name in self.runs:
                    self.delete_run(name)
            case act.EmitEvent():
                self.events.append(action)
