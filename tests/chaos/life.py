"""One life of a profile: an operator on a virtual clock, through a proxy with faults, until nothing is left to do."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kneekeeper.actuate.apply import Writers
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain.names import ROLE_AGENT, ROLE_CLONE
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.ticks import PROFILE, RUN, Connections
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, SERVING_PROFILES, TUNING_RUNS, Resource
from kneekeeper.observe.clients import Clients
from tests.chaos.cluster import Cluster
from tests.chaos.engines import Engines
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.faults import Call, EachInTurn, Fault, Plan, quiet
from tests.chaos.played_operator import Clock, PlayedOperator
from tests.integration.place import SETTINGS
from tests.integration.serving import Serving, add_node
from tests.unit.kube_objects import template

NAME = "chat"
ORIGINAL_ARGS = ["example/chat-8b", "--max-num-seqs=4", "--max-num-batched-tokens=2048"]
REPLICAS = 2
SPEC: dict[str, Any] = {
    "slo": {"p99TTFT": "2s", "p99TPOT": "25ms"},
    "workload": {
        "promptTokens": {"distribution": "LogNormal", "mean": 200, "p99": 600},
        "outputTokens": {"distribution": "LogNormal", "mean": 60, "p99": 150},
    },
    "parameters": {"maxNumSeqs": {"min": 1, "max": 16}, "maxNumBatchedTokens": {"min": 1024, "max": 2048}},
    "updatePolicy": {"mode": "Apply", "verifyFor": "1m"},
}

_START = datetime.now(UTC)
_BEAT_S = 0.5
_MOST_TURNS = 4000
LONGEST_STAGE_S = 5.0
"""What is looked at again and again while a stage goes on is the same each time."""
LONGEST_LIFE_S = 6 * 3600.0


@dataclass(frozen=True)
class Ending:
    """What stands when nothing is left to do; the same for every life of a story, whatever befell it."""

    outcome: str
    setting: str
    args: tuple[str, ...]
    replicas: int
    stages: tuple[str, ...]
    """The load that was really sent, in order: a stage that was decided is not measured again."""
    made: tuple[str, ...]
    made_twice: tuple[str, ...]
    left_behind: tuple[str, ...]
    ready: str
    """The reason of the profile's condition Ready; empty where the profile is gone."""

    @property
    def standing(self) -> Ending:
        """Without the way to it: who dies in mid-stage is made again, and the stage measured again."""
        return replace(self, stages=(), made=(), made_twice=())

    def is_shorter(self, whole: Ending) -> bool:
        """Whether it was cut off earlier on the same way."""
        return set(self.made) <= set(whole.made) and self.stages == whole.stages[: len(self.stages)]


class NeverEnds(Exception):
    """A life that is not over when it has to be."""


@dataclass(frozen=True)
class Story:
    """What happens to a profile, beside the faults."""

    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    spare_gpus: int = 1
    clones_start: bool = True
    at: Callable[[Resource | None, Sequence[Resource]], bool] | None = None
    """The first time that this holds for the profile and its runs, `then` is done."""
    then: Callable[[Life], Awaitable[None]] | None = None
    cuts_off: bool = False
    """`then` ends the run in the middle: a fault just before it leaves less to be made."""


@dataclass
class Life:
    """Made by `begun`; `lived` brings it to its end."""

    kube: Kube
    proxy: FaultProxy
    through_proxy: Kube
    cluster: Cluster
    engines: Engines
    story: Story
    clock: Clock
    calls_by_minute: Counter[int] = field(default_factory=Counter)
    operator: PlayedOperator = field(init=False)
    _starts: bool = True  # the operator, which was told of nothing yet
    _wrote: bool = True
    _stirred: bool = True  # since the cluster was played and the watches told
    _told: bool = False
    _runs: int = 0

    @classmethod
    async def begun(cls, kube: Kube, proxy: FaultProxy, through_proxy: Kube, story: Story, number: int) -> Life:
        """A namespace with a workload that serves, and its profile."""
        name = f"{story.name}-{number}-{secrets.token_hex(3)}"  # the server may have had other lives
        await add_node(kube, name, f"GPU-{name}", gpus=REPLICAS + story.spare_gpus)
        serving = await Serving.create(kube, name, name, port=8000)
        await serving.deploy(NAME, REPLICAS, containers=_containers())
        clock = Clock()
        engines = Engines(clock, LONGEST_STAGE_S)
        cluster = Cluster(kube, serving, NAME, engines, clock, story.clones_start)
        life = cls(kube, proxy, through_proxy, cluster, engines, story, clock)
        await serving.profile(NAME, **{**SPEC, **story.spec})
        life.operator = PlayedOperator(kube, clock, life._connect, life._has_written)
        life.operator.start()
        return life

    @property
    def namespace(self) -> str:
        return self.cluster.namespace

    async def lived(self, plan: Plan = quiet) -> Ending:
        """The end of the life under this plan of faults. Raises NeverEnds."""
        random.seed(self.story.name)  # ticks are jittered
        self.proxy.plan, self.proxy.told, self.proxy.killed = plan, self._count, self.operator.kill
        self.proxy.dies = self._dies
        self.proxy.forget()
        try:
            for _ in range(_MOST_TURNS):
                await self._turn(plan)
                if await self._is_over():
                    self.proxy.plan = quiet
                    return await self._ending()
        finally:
            self.proxy.plan, self.proxy.told, self.proxy.killed = quiet, lambda _: None, lambda: None
        raise NeverEnds(f"{self.namespace} after {_MOST_TURNS} turns: {await self._told_of()}")

    async def suspend(self) -> None:
        """The user does not want it any more."""
        await self.cluster.serving.patch(NAME, "/spec/suspend", True)

    async def delete(self) -> None:
        """The user takes the profile away."""
        await self.kube.delete(SERVING_PROFILES, self.namespace, NAME)

    @property
    def kills(self) -> int:
        """How often the operator was killed."""
        return self.operator.kills

    def _connect(self) -> Connections:
        self._starts = self._stirred = True
        return Connections(
            clients=Clients(self.through_proxy, self.engines.http(), self.engines.connect_agent, clock_s=self.clock),
            writers=Writers(self.through_proxy, self.engines.connect_agent, SETTINGS),
            clock=lambda: _START + timedelta(seconds=self.clock.now_s),
        )

    async def _dies(self, fault: Fault) -> None:
        await self.cluster.die(ROLE_AGENT if fault is Fault.AGENT_DIES else ROLE_CLONE)
        self._has_written(self.namespace)

    def _has_written(self, namespace: str) -> None:
        self._wrote = self._stirred = True

    def _count(self, call: Call) -> None:
        self.calls_by_minute[int(self.clock.now_s // 60)] += 1
        if call.writes:
            self._has_written(self.namespace)

    async def _turn(self, plan: Plan) -> None:
        """Time passes until something is due; then everybody does their part."""
        while not self._is_due():
            self.clock.now_s += _BEAT_S
            if self.clock.now_s > LONGEST_LIFE_S:
                raise NeverEnds(f"{self.namespace} after {self.clock.now_s:.0f} s: {await self._told_of()}")
        self._starts = False
        if self._stirred or self.operator.due_releases or self.clock.now_s >= self.cluster.next_s:
            self._stirred = False
            await self.cluster.play()
            await self._watch(plan)
        for key in self.operator.beats.agenda.due():
            await self.operator.look([key])

    def _is_due(self) -> bool:
        return self._starts or self.operator.is_due

    async def _watch(self, plan: Plan) -> None:
        """As kopf does it: tells of what there is, and holds the finalizers."""
        profiles = await self.kube.list(SERVING_PROFILES, self.namespace)
        runs = await self.kube.list(TUNING_RUNS, self.namespace)
        if isinstance(plan, EachInTurn):
            plan.phase = ",".join(map(_step, runs))
        for kind, found in ((PROFILE, profiles), (RUN, runs)):
            for each in found:
                await self.operator.told(kind, each)
        deployment = await self.kube.get(DEPLOYMENTS, self.namespace, NAME)
        workload = Key("Deployment", self.namespace, NAME)
        self.operator.beats.workload_told(workload, deployment["metadata"], deployment["status"], is_gone=False)
        if len(runs) < self._runs:
            self._stirred = True
            await self.cluster.collect({each["metadata"]["uid"] for each in (*profiles, *runs)})
        self._runs = len(runs)
        story = self.story
        if story.at is not None and story.then is not None and not self._told:
            self._told = story.at(next(iter(profiles), None), runs)
            if self._told:
                self._stirred = True
                await story.then(self)

    async def _is_over(self) -> bool:
        if not self._wrote:
            return False
        self._wrote = False
        try:
            profile = await self.kube.get(SERVING_PROFILES, self.namespace, NAME)
        except NotFound:
            return not await self.kube.list(TUNING_RUNS, self.namespace)
        if "deletionTimestamp" in profile["metadata"]:
            return False
        status = profile.get("status") or {}
        runs = await self.kube.list(TUNING_RUNS, self.namespace)
        done = bool(runs) and all(_step(run) == RunStep.DONE for run in runs)
        known = [run.get("finishedAt") for run in status.get("runs") or []]
        settled = not status.get("rollout") and not status.get("activeRun")
        # What the story waits for comes no more where the run gave up before, or has nothing to be written.
        comes = self.story.then is not None and not self._told and any(_is_certified(run) for run in runs)
        return done and settled and bool(known) and all(known) and not comes

    async def _ending(self) -> Ending:
        runs = await self.kube.list(TUNING_RUNS, self.namespace)
        deployment = await self.kube.get(DEPLOYMENTS, self.namespace, NAME)
        [engine] = [c for c in deployment["spec"]["template"]["spec"]["containers"] if c["name"] == "vllm"]
        try:
            status = (await self.kube.get(SERVING_PROFILES, self.namespace, NAME)).get("status") or {}
        except NotFound:
            status = {}
        return Ending(
            outcome=",".join(f"{run['status'].get('outcome')}/{run['status'].get('cause')}" for run in runs),
            setting=str((status.get("recommendation") or {}).get("setting")),
            args=tuple(engine["args"]),
            replicas=deployment["spec"]["replicas"],
            stages=tuple(self.engines.started),
            made=tuple(sorted(name.partition("-")[2].partition("-")[2] for name in self.cluster.made)),
            made_twice=tuple(self.cluster.made_twice),
            left_behind=tuple(await self.cluster.left_behind()),
            ready=_reason(status, "Ready"),
        )

    async def _told_of(self) -> str:
        runs = await self.kube.list(TUNING_RUNS, self.namespace)
        return str([(run["metadata"]["name"], (run.get("status") or {}).get("message")) for run in runs])


def _containers() -> list[Resource]:
    containers: list[Resource] = deepcopy(template()["spec"]["containers"])
    containers[1]["args"] = ORIGINAL_ARGS
    return containers


def at_step(step: RunStep) -> Callable[[Resource | None, Sequence[Resource]], bool]:
    """Whether a run is at this step."""
    return lambda _, runs: any(_step(run) == step for run in runs)


def is_applied(profile: Resource | None, runs: Sequence[Resource]) -> bool:
    """Whether the recommendation is in force."""
    conditions = ((profile or {}).get("status") or {}).get("conditions") or []
    return any(each["type"] == "Applied" and each["status"] == "True" for each in conditions)


def _is_certified(run: Resource) -> bool:
    status = run.get("status") or {}
    return bool(status.get("outcome") == RunOutcome.CERTIFIED and status.get("cause") != "PresentNotMeasured")


def _step(run: Resource) -> str:
    return str((run.get("status") or {}).get("step") or RunStep.PREFLIGHT)


def _reason(status: Mapping[str, Any], condition: str) -> str:
    return next((str(c["reason"]) for c in status.get("conditions") or [] if c["type"] == condition), "")
