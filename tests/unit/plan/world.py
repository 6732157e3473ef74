"""A small world for the state machines: a workload, its pods, a clone, an agent and an injected clock.

It carries out the plans' actions as a cluster would and answers with what a cluster would show. `crash_after`
drops everything behind the given effect of a tick, as a killed operator would.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import ContainerWords
from kneekeeper.api.serving_profile import ServingProfile, ServingProfileSpec
from kneekeeper.api.stage import Samples, StageSpec, StageState
from kneekeeper.api.tuning_run import RunStep, TuningRun, TuningRunSpec
from kneekeeper.domain import actions as act
from kneekeeper.domain.observation import (
    ContainerView,
    EngineMetrics,
    GpuRoom,
    Owner,
    PodPhase,
    PodView,
    ProfileObservation,
    RunObservation,
    StageView,
    ViolationShare,
    WorkloadView,
)
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.domain.target import Target, resolve
from tests.unit.plan.engine_law import answer

START = datetime(2026, 1, 1, tzinfo=UTC)
STARTUP_S = 20.0
ROLLOUT_S = 15.0


class Effect(IntEnum):
    """The order in which a tick takes effect."""

    EVIDENCE = 1
    STATUS = 2
    ACTIONS = 3


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


@dataclass
class World:
    """Everything outside the operator."""

    spec: dict[str, Any] = field(default_factory=lambda: dict(PROFILE_SPEC))
    args: list[str] = field(
        default_factory=lambda: ["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=2048"]
    )
    image: str = "vllm/vllm-openai:v0.32.0"
    replicas: int = 2
    gpus: int = 1
    spare_gpus: int = 1
    owner: Owner | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    violations: ViolationShare | None = None
    failing_starts: dict[Setting, str] = field(default_factory=dict)  # clones with this setting log this and end
    crashing_rollouts: bool = False
    workload_exists: bool = True
    profile_deleting: bool = False
    production_waiting: int = 0
    now: datetime = START
    container: str = "vllm"
    gpu_product: str = "L4"
    generation: int = 1
    unready: int = 0  # serving pods that are not ready
    paused: bool = False  # new words reach no pod
    leaving: bool = False  # a pod that was scaled away does not go
    reverting: bool = False  # another controller puts back what kneekeeper writes
    autoscaling: bool = False  # another controller puts back the replicas
    agent_broken: bool = False
    clones_placed: bool = True
    clone_ready: bool = True
    hanging: str = ""  # stages with this in their name do not end
    failing: str = ""  # stages with this in their name end as Failed
    readable: bool = True  # the workload may be read
    profile_exists: bool = True

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
        return World.__dataclass_fields__["args"].default_factory()  # type: ignore[misc]

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
            containers=(ContainerView(self.container, self.image, self.words, {}, (8000,), self.gpus),),
            node_selector={},
            pod_template={},
            last_writer=self.writer,
        )

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

    def _pod(self, name: str, words: ContainerWords, *, ready: bool, crashing: bool = False, log: str = "") -> PodView:
        failed = bool(log)
        return PodView(
            name=name,
            uid=f"uid-{name}",
            node="node-1",
            ip="10.244.0.9",
            phase=PodPhase.FAILED if failed else PodPhase.RUNNING,
            ready=ready and not failed,
            deleting=False,
            restarts=3 if crashing else 0,
            waiting_reason="CrashLoopBackOff" if crashing else "",
            exit_code=1 if failed else None,
            unschedulable_message="",
            created_at=self.now,
            words=words,
            image_id="",
            log_tail=log or ("torch.OutOfMemoryError: CUDA out of memory." if crashing else ""),
            gpu_product=self.gpu_product,
        )

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
        )

    def observe_run(self, run: TuningRun) -> RunObservation:
        clone_state = run.status.clone
        clone = self._clone_view(clone_state.start) if clone_state else None
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
            agent_exists=self.agent_since is not None,
            stage=self._stage_view(),
            clone_metrics=EngineMetrics(0, 0, 100_000, 0.0, 0.0) if clone and clone.ready else None,
            gpu_product=self.gpu_product,
            gpu_room=GpuRoom(self.gpu_product, self._free_gpus()),
            production_waiting=self.production_waiting,
        )

    def _free_gpus(self) -> int:
        return self.replicas_at_start - self.replicas + self.spare_gpus - len(self.clones) * self.gpus

    replicas_at_start: int = 2

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
            return replace(view, phase=PodPhase.PENDING, node="", unschedulable_message=message)
        if clone.dead or (up and clone.log):
            ended = replace(view, phase=PodPhase.FAILED, ready=False, exit_code=1)
            return replace(ended, waiting_reason=clone.reason, log_tail=clone.log or "Killed")
        return view

    def _stage_view(self) -> StageView | None:
        if self.agent_since is None or not self.clones:
            return None
        if self.stage is None:
            return StageView(None, None)
        ended = self.now >= self.stage_ends and not self._hangs
        status, samples = answer(self.stage, self._setting_under_test())
        if not ended:
            return StageView(status.model_copy(update={"state": StageState.RUNNING}), None)
        if self.failing and self.failing in self.stage.id:
            status = status.model_copy(update={"state": StageState.FAILED, "message": "the target does not answer"})
        return StageView(status, samples)

    @property
    def _hangs(self) -> bool:
        return self.stage is not None and self.hanging != "" and self.hanging in self.stage.id

    def _setting_under_test(self) -> Setting:
        return self.clones[max(self.clones)].setting

    # What is done.

    def perform(self, action: act.RunAction | act.ProfileAction | act.StoreSamples, run: str = "") -> None:
        match action:
            case act.EnsureAgent():
                if self.agent_since is None:
                    self.agent_since, self.stage = self.now, None
                    self.created.append(f"{run}/agent")
            case act.DeleteAgent():
                self.agent_since, self.stage = None, None
            case act.EnsureClone(start=start, words=words):
                if start not in self.clones:
                    setting = _setting_of(words, self.image)
                    self.clones[start] = Clone(setting, self.now, self.failing_starts.get(setting, ""))
                    self.created.append(f"{run}/clone-{start}")
            case act.DeleteClone(start=start):
                self.clones.pop(start, None)
            case act.StartStage(spec=spec):
                if self.stage is None or self.stage.id != spec.id:
                    self.stage = spec
                    status, _ = answer(spec, self._setting_under_test())
                    self.stage_ends = self.now + timedelta(seconds=status.elapsed_s)
                    self.created.append(f"{run}/stage/{spec.id}")
            case act.StoreSamples(stage=stage, samples=samples):
                self.evidence.setdefault(f"{run}/{stage}", samples)
            case act.ScaleWorkload(expected=expected, wanted=wanted):
                if self.replicas == expected:
                    self.replicas = expected if self.autoscaling else wanted
                    self.writes.append(("replicas", wanted))
            case act.WriteWords(before=before, after=after):
                if self.words == before:
                    self.set_args(list(after.args or []), writer="kneekeeper")
                    self.writes.append(("words", after))
                    if self.reverting:
                        self.set_args(list(before.args or []), writer="gitops")
            case act.CreateRun(name=name, trigger=trigger):
                if name not in self.runs:
                    self.runs[name] = TuningRun(
                        metadata={"name": name, "namespace": "prod", "uid": f"uid-{name}", "generation": 1},
                        spec=TuningRunSpec(profile_name="chat", trigger=trigger),
                    )
                    self.created.append(name)
            case act.DeleteRun(name=name):
                if name in self.runs:
                    self.delete_run(name)
            case act.EmitEvent():
                self.events.append(action)

    def tick_profile(self, crash_after: Effect | None = None) -> float:
        decision = profile_plan.decide(self.observe_profile())
        self.profile = self.profile.with_changes(status=decision.status)
        if crash_after is None:
            for action in decision.actions:
                self.perform(action)
        return decision.next_tick_s

    def tick_run(self, name: str, crash_after: Effect | None = None) -> float:
        run = self.runs[name]
        decision = run_plan.decide(self.observe_run(run))
        for evidence in decision.evidence:
            self.perform(evidence, name)
        if crash_after == Effect.EVIDENCE:
            return 0.0
        self.runs[name] = run.with_changes(status=decision.status)
        if crash_after is None:
            for action in decision.actions:
                self.perform(action, name)
        if decision.release and "deletionTimestamp" in run.metadata:
            del self.runs[name]
        return decision.next_tick_s

    def tick(self, crash_after: Effect | None = None) -> float:
        """One tick of everything; returns when the next one is asked for."""
        waits = [self.tick_profile(crash_after)]
        waits += [self.tick_run(name, crash_after) for name in list(self.runs)]
        return min(waits)

    def run_for(self, seconds: float) -> None:
        """Tick as asked until this much time has passed."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=max(0.5, min(self.tick(), (end - self.now).total_seconds())))

    def settle(self, limit_s: float = 7200.0) -> None:
        """Tick until no run and no rollout is under way. Fails when that takes longer than `limit_s`."""
        end = self.now + timedelta(seconds=limit_s)
        while self.now < end:
            wait = self.tick()
            busy = self.profile.status.rollout or any(r.status.step != RunStep.DONE for r in self.runs.values())
            if not busy:
                self.tick()
                if self.profile.status.rollout is None and not self.profile.status.active_run:
                    return
            self._pass(wait)
        told = [run.status.message for run in self.runs.values()]
        raise AssertionError(f"not settled: {self.profile.status.stage}, {told}")

    def _pass(self, wait_s: float) -> None:
        """As long as the plan asks for, or until something happens of which the world knows when it will."""
        known = [clone.created + timedelta(seconds=STARTUP_S) for clone in self.clones.values()]
        known += [self.stage_ends] if self.stage is not None else []
        known += [self.now + timedelta(seconds=30)] if self._hangs else []
        ahead = [moment for moment in known if moment > self.now]
        until = max((min(ahead) - self.now).total_seconds(), wait_s) if ahead else wait_s
        self.now += timedelta(seconds=min(max(0.5, until), 30.0))

    def run_until(self, seen: Callable[[World], bool], limit_s: float = 7200.0) -> None:
        """Tick as asked until something is seen. Fails when that takes longer than `limit_s`."""
        end = self.now + timedelta(seconds=limit_s)
        while not seen(self):
            assert self.now < end, f"not seen: {self.profile.status.stage}, {[r.status for r in self.runs.values()]}"
            self._pass(self.tick())

    def run_until_step(self, step: RunStep) -> None:
        """Tick until the newest run is at this step, with a clone if it has one in that step."""
        self.run_until(lambda world: bool(world.runs) and world.last_run.status.step == step)

    def forked(self) -> World:
        """A world that goes on from here by itself; what is stored is frozen and therefore shared."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list)):
                setattr(other, name, copy.copy(value))
        other.clones = {start: replace(clone) for start, clone in self.clones.items()}
        return other

    @property
    def created_runs(self) -> list[str]:
        return [name for name in self.created if "/" not in name]

    @property
    def last_run(self) -> TuningRun:
        return list(self.runs.values())[-1]


def at_step(step: RunStep, **world: Any) -> World:
    """A world made with these values whose first run is at this step."""
    values = {"spec": PROFILE_SPEC, "spare_gpus": 1} | world
    return _at_step(step, json.dumps(values, sort_keys=True)).forked()


_IN_ORDER = (RunStep.CEILING, RunStep.RAMP, RunStep.CERTIFY, RunStep.BASELINE)


@functools.cache
def _at_step(step: RunStep, values: str) -> World:
    before = _IN_ORDER.index(step) - 1 if step in _IN_ORDER else -1
    world = _at_step(_IN_ORDER[before], values).forked() if before >= 0 else World(**json.loads(values))
    world.run_until_step(step)
    return world


_NOT_MEASURED = ("updatePolicy", "deletionPolicy", "retune", "runHistoryLimit")


def settled(**spec: Any) -> World:
    """A world whose profile, with these parts of the spec, has had its run and its rollout."""
    return _settled(json.dumps(spec, sort_keys=True)).forked()


@functools.cache
def _settled(parts: str) -> World:
    spec = json.loads(parts)
    measured = {name: part for name, part in spec.items() if name not in _NOT_MEASURED}
    world = at_step(RunStep.BASELINE, spec=PROFILE_SPEC | measured)
    world.profile = world.profile.with_changes(spec=ServingProfileSpec.model_validate(PROFILE_SPEC | spec))
    world.settle()
    return world


def _setting_of(words: ContainerWords, image: str) -> Setting:
    workload = World(args=list(words.args or []), image=image).workload()
    assert workload is not None
    target = resolve(workload, ServingProfileSpec.model_validate(PROFILE_SPEC).target_ref, "L4")
    assert isinstance(target, Target)
    return target.present
