"""Many lives, each held against the same story without a fault."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kneekeeper.kube.client import Kube
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.faults import API_FAULTS, DEATHS, AtOneWrite, AtRandom, EachInTurn, Fault, KillAtWrites, Plan
from tests.chaos.life import ORIGINAL_ARGS, REPLICAS, Ending, Life, NeverEnds, Story
from tests.chaos.memory import Memory, PlayersKube
from tests.chaos.stories import ALL
from tests.integration.place import make_place

MOST_CALLS_PER_MINUTE = 1200
"""Of one profile and its run, which looks every half second in its busiest minutes, some fifteen calls each: what asks
more is a hot loop."""


GIVEN_UP = (
    "Inconclusive/EngineNotScheduled",
    "Inconclusive/BudgetExhausted",
    "Failed/NoLoadAgent",
    "Failed/PodRefused",  # a pod that the server calls invalid is not made again without a change
    "Certified/PresentNotMeasured",
    "Cancelled/NotScaled",
)
"""Outcomes and causes that tell that something took too long, or that the server would not have it."""


@dataclass
class Report:
    """What the lives so far came to."""

    runs: int = 0
    wrong: int = 0
    left_behind: int = 0
    gave_up: int = 0
    kills: int = 0
    faults: int = 0
    most_calls_per_minute: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.wrong or self.left_behind) and self.most_calls_per_minute <= MOST_CALLS_PER_MINUTE

    def tell(self, what: str) -> None:
        """Told at once, and once more at the end: a long campaign may be cut off."""
        self.told.append(what)
        print(what, flush=True)

    def summary(self) -> dict[str, int]:
        """The last line of output."""
        return {
            "runs": self.runs,
            "wrong": self.wrong,
            "left_behind": self.left_behind,
            "gave_up": self.gave_up,
            "faults": self.faults,
            "kills": self.kills,
            "most_calls_per_minute": self.most_calls_per_minute,
            "bound_calls_per_minute": MOST_CALLS_PER_MINUTE,
        }

    def joined(self, other: Report) -> Report:
        """Both together."""
        return Report(
            self.runs + other.runs,
            self.wrong + other.wrong,
            self.left_behind + other.left_behind,
            self.gave_up + other.gave_up,
            self.kills + other.kills,
            self.faults + other.faults,
            max(self.most_calls_per_minute, other.most_calls_per_minute),
            [*self.told, *other.told],
        )


@dataclass
class Lives:
    """Where lives are lived: one API server, one proxy before it."""

    kube: Kube
    proxy: FaultProxy
    through_proxy: Kube
    report: Report = field(default_factory=Report)
    _count: int = 0
    _expected: dict[str, Ending] = field(default_factory=dict)

    async def expected(self, story: Story) -> Ending:
        """The ending of the story without faults, lived once."""
        if story.name not in self._expected:
            self._expected[story.name] = await self._lived(story, lambda call: None)
        return self._expected[story.name]

    async def live(self, story: Story, plan: Plan, what: str) -> None:
        """One life under the plan, and what it came to."""
        expected, report = await self.expected(story), self.report
        someone_dies = isinstance(plan, AtOneWrite) and plan.fault in DEATHS
        report.runs += 1
        began = time.monotonic()
        try:
            ending = await self._lived(story, plan)
        except NeverEnds as error:
            report.wrong += 1
            report.tell(f"{story.name} {what}: never ends: {error}")
            return
        report.left_behind += bool(ending.left_behind)
        if someone_dies:
            expected, ending = expected.standing, ending.standing
        elif story.cuts_off and ending.is_shorter(expected):
            ending = replace(ending, made=expected.made, stages=expected.stages)
        if ending != expected and _gave_up(ending):
            report.gave_up += 1
        elif ending != expected:
            report.wrong += 1
            report.tell(f"{story.name} {what}: {_difference(expected, ending)}")
        print(f"{story.name} {what}: {time.monotonic() - began:.1f} s, {report.wrong} wrong so far", flush=True)

    async def _lived(self, story: Story, plan: Plan) -> Ending:
        self._count += 1
        self.proxy.faults = 0
        life = await Life.begun(self.kube, self.proxy, self.through_proxy, story, self._count)
        try:
            return await life.lived(plan)
        finally:
            if not life.kills:  # a new operator looks at everything at once, rightly
                most = max(life.calls_by_minute.values(), default=0)
                self.report.most_calls_per_minute = max(self.report.most_calls_per_minute, most)
            self.report.kills += life.kills
            self.report.faults += self.proxy.faults
            await life.cluster.end()


def _gave_up(ending: Ending) -> bool:
    """Whether the run ended early, says that it did, and left everything as it was: a server that is away for an hour
    is away longer than a clone is waited for."""
    as_it_was = ending.args == tuple(ORIGINAL_ARGS) and ending.replicas == REPLICAS and not ending.left_behind
    return as_it_was and ending.outcome in GIVEN_UP and not ending.made_twice


def _difference(expected: Ending, ending: Ending) -> str:
    names = [name for name in Ending.__dataclass_fields__ if getattr(expected, name) != getattr(ending, name)]
    return "; ".join(f"{name} {getattr(ending, name)} instead of {getattr(expected, name)}" for name in names)


@asynccontextmanager
async def lives(kubeconfig: Path, operators: Path | None = None) -> AsyncIterator[Lives]:
    """At the API server of this kubeconfig, with the rights of its user; the operator with those of its own, if any."""
    with tempfile.TemporaryDirectory() as folder:
        proxy = FaultProxy(operators or kubeconfig)
        async with proxy.running(), await PlayersKube.connect("chaos", str(kubeconfig)) as kube:
            kube.memory = Memory()
            proxy.carried_out = kube.memory.forget
            await make_place(kube)
            through = str(proxy.written_kubeconfig(Path(folder)))
            async with await Kube.connect("chaos", through) as through_proxy:
                yield Lives(kube, proxy, through_proxy)


async def at_random(kubeconfig: Path, seeds: Iterable[int]) -> Report:
    """One life for each seed, of each story in turn."""
    async with lives(kubeconfig) as places:
        for seed in seeds:
            await places.live(ALL[seed % len(ALL)], AtRandom(seed), f"with seed {seed}")
        return places.report


async def each_fault_in_turn(kubeconfig: Path) -> Report:
    """Every fault at every kind of call, once in each phase of the run."""
    async with lives(kubeconfig) as places:
        for fault in API_FAULTS:
            for story in ALL:
                await places.live(story, EachInTurn(fault), f"with {fault} at each call")
        return places.report


async def every_kill(kubeconfig: Path) -> Report:
    """The operator is killed before and after each single write of each story, one write a life."""
    async with lives(kubeconfig) as places:
        for story in ALL:
            recorded = KillAtWrites(only=0)
            await places.live(story, recorded, "recorded")
            for number, write in enumerate(recorded.writes, start=1):
                await places.live(story, KillAtWrites(only=number), f"killed around write {number}, {write}")
        return places.report


async def every_death(kubeconfig: Path) -> Report:
    """The load agents, and the engines under test, die before each single write of each story; and the operator dies
    at each, while its write is carried out behind those of the next one. One write a life."""
    async with lives(kubeconfig) as places:
        for story in ALL:
            for fault in (*DEATHS, Fault.KILLED_LATE):
                recorded = AtOneWrite(fault)
                await places.live(story, recorded, "recorded")
                for number, write in enumerate(recorded.writes, start=1):
                    await places.live(story, AtOneWrite(fault, number), f"{fault} at write {number}, {write}")
        return places.report
