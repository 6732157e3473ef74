"""Random kills over all paths: whatever dies when, nothing borrowed stays borrowed and nothing is left behind.

`make e2e-kills` is the long form. KNEEKEEPER_KILLS and KNEEKEEPER_SEED say how many, and which;
KNEEKEEPER_MINUTES after how long no more are begun, on a machine that is too slow for so many.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from e2e.lab import SYSTEM_NAMESPACE, Lab, Object, condition, install
from e2e.runs import quick_profile
from e2e.simulated import Simulated
from e2e.wide import BORROWING, SLACK, steady
from e2e.wide.kill_turns import APPLIER, LENDER, MOMENTS, Moment, Turns
from e2e.witness import writes_of_operator
from kneekeeper import __version__
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.domain.names import LABEL_ROLE, LABEL_RUN, ROLE_CLONE
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Conflict, NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, JOBS, PODS, SERVING_PROFILES, TUNING_RUNS, Kind

KILLS = int(os.environ.get("KNEEKEEPER_KILLS", "20"))
SEED = int(os.environ.get("KNEEKEEPER_SEED", "1"))
MINUTES = float(os.environ.get("KNEEKEEPER_MINUTES", "inf"))
ALL_ARE_MET = 10 * len(MOMENTS)
"""With so many kills no moment may be left out."""
SETTLES_S = 180.0

LOOK_S = 0.25
"""Some steps last a second."""
LASTS = ("Ceiling", "Ramp", "Certify", "Baseline", "Verify")
LATEST_S = 8.0
"""A step that lasts is not hit before, at random; the others at once."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
"""Between two kills of one workload's."""
IDLE_S = 5.0
IDLE = ("Idle", "MinInterval", "CoolDown")
"""Reasons of a profile's Probing. When nothing is under way for so long, nothing will be."""

SLOW_START = {"startup_s": 8.0}
"""Longer than an operator takes to come back: else the one that was killed while writing finds all rolled out."""
MANY_RESTARTS = {"maxRestarts": 20}
"""So that a run outlives the kills of its engine and gets far."""
MOST_STARTS = 14
"""Of the engine, by kills: the others are for the run itself."""
MOST_FAILED_AGENTS = 2
"""Of one Job: its controller waits twice as long for each further one, from ten seconds on."""

pytestmark = [pytest.mark.wide, pytest.mark.timeout(300 + 60 * KILLS)]


@dataclass(frozen=True)
class Victim:
    """What can be killed now."""

    kind: Kind
    metadata: Object

    async def kill(self, kube: Kube) -> bool:
        """By force, as a crash would. False where it had died before."""
        name, namespace = self.metadata["name"], self.metadata["namespace"]
        grace_s = 0 if self.kind == PODS else None
        try:
            await kube.delete(self.kind, namespace, name, uid=self.metadata["uid"], grace_period_s=grace_s)
        except (NotFound, Conflict):
            return False
        return True


@dataclass(frozen=True)
class Scene:
    """All that is there at one time."""

    profiles: dict[str, Object]
    runs: list[Object]
    jobs: list[Object]
    pods: list[Object]
    system: list[Object]
    deployments: dict[str, Object]

    @classmethod
    async def look(cls, kube: Kube, namespace: str) -> Scene:
        kinds = (SERVING_PROFILES, TUNING_RUNS, JOBS, PODS, DEPLOYMENTS)
        asked = [*(kube.list(kind, namespace) for kind in kinds), kube.list(PODS, SYSTEM_NAMESPACE)]
        profiles, runs, jobs, pods, deployments, system = await asyncio.gather(*asked)
        return cls(_by_name(profiles), runs, jobs, pods, system, _by_name(deployments))

    def run_of(self, workload: str) -> Object | None:
        """The run that is not over."""
        runs = (run for run in self.runs if run["spec"]["profileName"] == workload)
        return next((run for run in runs if _status(run).get("step") != RunStep.DONE), None)

    def moment(self, workload: str) -> Moment | None:
        """None while nothing is under way."""
        run, profile = self.run_of(workload), self.profiles.get(workload, {})
        if run is not None and _lives(run):
            return Moment(workload, _status(run).get("step", RunStep.PREFLIGHT))
        if run is not None:
            return Moment(workload, RunStep.CLEAN_UP)
        if profile and not _lives(profile):
            return Moment(workload, "Restore") if workload == APPLIER else None
        rollout = _status(profile).get("rollout") if profile else None
        return Moment(workload, rollout["step"]) if rollout else None

    def victims(self, workload: str) -> dict[str, Victim]:
        """By path. An operator and a dashboard must be ready: a kill of one that does not work yet is none."""
        run, profile = self.run_of(workload), self.profiles.get(workload)
        found = {
            pod["metadata"]["labels"]["app.kubernetes.io/component"]: Victim(PODS, pod["metadata"])
            for pod in self.system
            if _lives(pod) and _is_ready(pod)
        }
        serving = [pod for pod in self.pods if _lives(pod) and pod["metadata"]["labels"].get("app") == workload]
        found |= {"serving": Victim(PODS, serving[-1]["metadata"])} if serving else {}
        found |= {"profile": Victim(SERVING_PROFILES, profile["metadata"])} if profile and _lives(profile) else {}
        return found if run is None else found | self._victims_of(run)

    def _victims_of(self, run: Object) -> dict[str, Victim]:
        name, starts = run["metadata"]["name"], (_status(run).get("clone") or {}).get("start", 0)
        found = {"run": Victim(TUNING_RUNS, run["metadata"])} if _lives(run) else {}
        failed = 0
        for job in self.jobs:
            if _lives(job) and job["metadata"]["labels"].get(LABEL_RUN) == name:
                found["job"] = Victim(JOBS, job["metadata"])
                failed = _status(job).get("failed", 0)
        for pod in self.pods:
            labels = pod["metadata"]["labels"]
            if not _lives(pod) or labels.get(LABEL_RUN) != name:
                continue
            if starts <= MOST_STARTS if labels[LABEL_ROLE] == ROLE_CLONE else failed < MOST_FAILED_AGENTS:
                found[labels[LABEL_ROLE]] = Victim(PODS, pod["metadata"])
        return found


@dataclass
class Killer:
    """Kills until it has killed enough, and lets both workloads begin anew whenever nothing is under way."""

    lab: Lab
    kube: Kube
    namespace: str
    wanted: dict[str, Object]
    turns: Turns
    lives: int = 0
    _stays: dict[str, Moment | None] = field(default_factory=dict)
    _rests: dict[str, float] = field(default_factory=dict)

    async def kill(self, count: int, longest_s: float) -> None:
        """Until so many were killed, or for so long."""
        end = time.monotonic() + longest_s
        while self.turns.killed.total() < count and time.monotonic() < end:
            await asyncio.sleep(LOOK_S)
            scene = await Scene.look(self.kube, self.namespace)
            assert scene.deployments[LENDER]["spec"]["replicas"] in (1, 2)
            awake = {moment for name in self.wanted if (moment := await self._awake(scene, name)) is not None}
            victims = {moment: scene.victims(moment.workload) for moment in awake}
            turn = self.turns.next(victims)
            if turn is None or not await victims[turn[0]][turn[1]].kill(self.kube):
                continue
            moment, path = turn
            self.turns.was_killed(moment, path)
            self._rest(moment.workload, SHORTEST_PAUSE_S, LONGEST_PAUSE_S)
            print(f"{self.turns.killed.total()} killed: {path} at {' '.join(moment)}", flush=True)

    async def _awake(self, scene: Scene, workload: str) -> Moment | None:
        """Where the workload is, unless it rests. One with nothing under way is begun anew."""
        moment = scene.moment(workload)
        if moment != self._stays.get(workload):
            self._stays[workload] = moment
            self._rest(workload, 0.0, LATEST_S if moment is not None and moment.step in LASTS else 0.0)
            if moment is None:
                self._rest(workload, IDLE_S, IDLE_S)
        if time.monotonic() < self._rests.get(workload, 0.0):
            return None
        if moment is None:
            await self._begin_anew(scene, workload)
        return moment

    async def _begin_anew(self, scene: Scene, workload: str) -> None:
        profile = scene.profiles.get(workload)
        if profile is None:
            self.lives += 1
            self.lab.apply(self.wanted[workload])
        elif _lives(profile) and condition(profile, "Probing")["reason"] in IDLE:
            self.turns.begins_anew(workload)
            await Victim(SERVING_PROFILES, profile["metadata"]).kill(self.kube)
        self._rest(workload, IDLE_S, IDLE_S)

    def _rest(self, workload: str, shortest_s: float, longest_s: float) -> None:
        self._rests[workload] = time.monotonic() + self.turns.chance.uniform(shortest_s, longest_s)


@pytest.fixture
def with_dashboard(lab: Lab) -> Iterator[None]:
    """The chart with the dashboard, and without it afterwards."""
    install(lab, ["dashboard.enabled=true"])
    lab.wait_rolled_out("kneekeeper-dashboard", SYSTEM_NAMESPACE)
    yield
    install(lab)


def workloads(lab: Lab) -> tuple[Simulated, Simulated]:
    """See `kill_turns.LENDER`."""
    return steady(lab, name=LENDER, gpus=2), steady(lab, name=APPLIER, gpus=0, replicas=1, hardware=SLOW_START)


def profiles(namespace: str) -> dict[str, Object]:
    """Of both, by name."""
    lends, applies = ({**kind, "probe": {**kind["probe"], "budget": MANY_RESTARTS}} for kind in (BORROWING, SLACK))
    return {
        LENDER: quick_profile(namespace, LENDER, **lends),
        APPLIER: quick_profile(namespace, APPLIER, deletionPolicy="Restore", **applies),
    }


def standing(lab: Lab, namespace: str) -> dict[str, object]:
    """What must be as before: the specs of both workloads, and what lies around them."""
    deployments = {d["metadata"]["name"]: d["spec"] for d in lab.find("deployments", namespace)}
    pods = sorted(p["metadata"]["labels"].get("app", p["metadata"]["name"]) for p in lab.find("pods", namespace))
    others = {kind: sorted(o["metadata"]["name"] for o in lab.find(kind, namespace)) for kind in ("jobs", "secrets")}
    return {"deployments": deployments, "pods": pods, **others}


def test_after_random_kills_replicas_pods_secrets_and_jobs_are_as_before(
    lab: Lab, namespace: str, with_dashboard: None
):
    for workload in workloads(lab):
        lab.apply(workload.deployment(namespace))
        lab.wait_rolled_out(workload.name, namespace)
    before, wanted, turns = standing(lab, namespace), profiles(namespace), Turns(random.Random(SEED))
    began = time.monotonic()

    async def kill() -> int:
        async with await Kube.connect(__version__, str(lab.cluster.kubeconfig)) as kube:
            killer = Killer(lab, kube, namespace, wanted, turns)
            await killer.kill(KILLS, 60 * MINUTES)
            return killer.lives

    lives = asyncio.run(kill())
    minutes, kills = (time.monotonic() - began) / 60, turns.killed.total()
    print(f"{kills} kills with seed {SEED} in {minutes:.0f} minutes of {lives} lives:\n{turns.table()}", flush=True)
    for name in wanted:
        lab.kubectl("-n", namespace, "delete", "sp", name, "--ignore-not-found", "--timeout=330s")
    lab.wait("all to be as before", lambda: standing(lab, namespace) == before, timeout_s=SETTLES_S)
    places = {"update deployments/scale/lender", "patch deployments/applier"}
    assert set(writes_of_operator(lab, namespace)) <= places
    missed = [] if kills < ALL_ARE_MET else [moment for moment in MOMENTS if not turns.by_moment()[moment]]
    assert missed == []


def _by_name(objects: list[Object]) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _lives(obj: Object) -> bool:
    return "deletionTimestamp" not in obj["metadata"]


def _is_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in _status(pod).get("conditions", []))
