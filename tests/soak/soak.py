"""Weeks of many services and one operator: time passes, things happen, and everybody does their part."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from kneekeeper.actuate.apply import Writers
from kneekeeper.domain.names import LABEL_RUN
from kneekeeper.domain.plan.profile import IDLE_TICK_S
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.ticks import PROFILE, RUN, Connections
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    SECRETS,
    SERVING_PROFILES,
    TUNING_RUNS,
    Resource,
)
from kneekeeper.observe.clients import Clients
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.faults import AtRandom, Call, Fault
from tests.chaos.memory import Memory
from tests.chaos.played_operator import Clock, PlayedOperator
from tests.integration.place import SETTINGS, make_place
from tests.soak.calendar import DAY_S, HOUR_S, Event, What, calendar
from tests.soak.engines import SoakEngines, Sources
from tests.soak.happenings import Happenings
from tests.soak.network import OperatorsKube, PlayersKube
from tests.soak.notes import Notes, bugs
from tests.soak.production import LOOK_S, Production
from tests.soak.service import NAME, Service, all_addresses
from tests.soak.usage import Day, objects_of, remembered, usage_of_this_process

_BEAT_S = 10.0
"""Nothing is looked at more often, as by an operator that has much to do: what a run only waits for is not asked for
every two seconds, a stage that goes on once a minute, and a profile that nothing befell once a minute, or at every
second of its ticks where it idles."""
_UNDISTURBED_S = 60.0

_ENDS_WITHIN_S = 6 * HOUR_S
"""Deleted profiles are gone by then."""

_SHORTEST_FAULTS_S, _LONGEST_FAULTS_S = 300.0, HOUR_S
"""Of the API server."""

_EPOCH = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
_OURS = {SERVING_PROFILES.plural: PROFILE, TUNING_RUNS.plural: RUN}
_KINDS = {PROFILE: SERVING_PROFILES, RUN: TUNING_RUNS}


class StillThere(Exception):
    """Profiles that were deleted and do not go."""


@dataclass
class Soak:
    """`begin`, `lived`, `end`."""

    kube: PlayersKube
    """Of everybody but the operator."""
    operators_kube: OperatorsKube
    proxy: FaultProxy
    engines: SoakEngines
    http: httpx.AsyncClient
    clock: Clock
    bugs: list[str]
    services: list[Service] = field(default_factory=list)
    days: list[Day] = field(default_factory=list)
    happened: Counter[What] = field(default_factory=Counter)
    most_kept: int = 0
    """Finished runs of one profile beyond its limit, at the end of a day."""
    operator: PlayedOperator = field(init=False)
    notes: Notes = field(init=False)
    happenings: Happenings = field(init=False)
    _productions: dict[str, Production] = field(default_factory=dict)
    _services: dict[str, Service] = field(default_factory=dict)
    _to_play: set[str] = field(default_factory=set)
    _to_list: set[str] = field(default_factory=set)
    _to_tell: list[tuple[str, Resource]] = field(default_factory=list)
    _faults: AtRandom | None = None
    _faults_until_s: float = -math.inf
    _kills_at_next_write: Fault | None = None

    def __post_init__(self) -> None:
        self.notes = Notes(self.clock, self._productions)
        self.happenings = Happenings(self.clock, self.services)
        self.operator = PlayedOperator(self.kube, self.clock, self._connect)

    async def begin(self, profiles: int) -> None:
        """That many services, and the operator."""
        self.kube.told = self.operators_kube.told = self._written
        self.operators_kube.is_detoured = lambda: self._kills_at_next_write is not None or self._has_faults
        self.proxy.plan, self.proxy.killed = self._plan, self.operator.kill
        addresses = all_addresses()
        for number in range(profiles):
            service = await Service.begun(self.kube, self.engines, number, addresses)
            self.services.append(service)
            self._services[service.namespace] = service
            self._productions[service.namespace] = service.production
        self.operator.start()

    async def lived(
        self, days: float, seed: int, told: Callable[[Day], None] = lambda day: None, within_s: float = math.inf
    ) -> None:
        """All of it, or what of it can be lived in so many real seconds; a row for each day is told at once."""
        random.seed(seed)  # ticks are jittered
        events = calendar(days, len(self.services), seed)
        next_look_s = next_hour_s = 0.0
        deadline = time.monotonic() + within_s
        for day in range(math.ceil(days)):
            while self.clock.now_s < min(days, day + 1) * DAY_S and time.monotonic() < deadline:
                self.clock.now_s += _BEAT_S
                while events and events[0].at_s <= self.clock.now_s:
                    await self._happens(events.pop(0))
                if self.clock.now_s >= next_hour_s:
                    next_hour_s += HOUR_S
                    for service in self.services:
                        await service.scale_on_capacity()
                if self.clock.now_s >= next_look_s:
                    next_look_s += LOOK_S
                    for service in self.services:
                        service.production.advance(self.clock.now_s)
                await self._turn()
            self.days.append(await self._row(day + 1))
            told(self.days[-1])
            if time.monotonic() >= deadline:
                return

    async def end(self) -> list[str]:
        """All profiles are deleted; what of them is left then. Raises StillThere."""
        self.happenings.end()
        self._faults_until_s, self._kills_at_next_write = -math.inf, None
        for service in self.services:
            await service.delete_profile()
        until_s = self.clock.now_s + _ENDS_WITHIN_S
        while any(service.uids for service in self.services):
            self.clock.now_s += _BEAT_S
            await self._turn()
            if self.clock.now_s > until_s:
                raise StillThere(", ".join(service.namespace for service in self.services if service.uids))
        self.kube.memory.forget_all()
        return [
            f"{service.namespace} {kind.name} {each['metadata']['name']}"
            for service in self.services
            for kind in (SERVING_PROFILES, TUNING_RUNS, PODS, JOBS, SECRETS, CONFIG_MAPS)
            for each in await self.kube.list(kind, service.namespace, labels="" if kind.plural in _OURS else LABEL_RUN)
        ]

    @property
    def _has_faults(self) -> bool:
        return self.clock.now_s < self._faults_until_s

    def _plan(self, call: Call) -> Fault | None:
        if self._kills_at_next_write is not None and call.writes:
            fault, self._kills_at_next_write = self._kills_at_next_write, None
            return fault
        return self._faults(call) if self._has_faults and self._faults is not None else None

    def _connect(self) -> Connections:
        """A new operator knows nothing, and its watches tell of all there is."""
        clients = Clients(self.operators_kube, self.http, self.engines.connect_agent, clock_s=self.clock)
        object.__setattr__(clients, "metrics", Sources(self.http, self.engines, _EPOCH.timestamp()))
        everywhere = {service.namespace for service in self.services}
        self._to_list |= everywhere
        self._to_play |= everywhere
        return Connections(
            clients=clients,
            writers=Writers(self.operators_kube, self.engines.connect_agent, SETTINGS),
            clock=lambda: _EPOCH + timedelta(seconds=self.clock.now_s),
        )

    def _written(self, method: str, path: str, answer: Resource | None) -> None:
        """As a watch would tell of it; of what was lost on the way, by a list."""
        before, _, after = path.partition("/namespaces/")
        namespace, _, rest = after.partition("/")
        plural = rest.partition("/")[0]
        if before and plural in (PODS.plural, JOBS.plural, DEPLOYMENTS.plural):
            self._to_play.add(namespace)
        elif plural in _OURS and (answer is None or method == "DELETE"):
            self._to_list.add(namespace)
        elif plural in _OURS and answer is not None:
            self._to_tell.append((_OURS[plural], answer))

    async def _turn(self) -> None:
        """What is due now."""
        now_s = self.clock.now_s
        await self.happenings.go_on()
        for service in self.services:
            if service.namespace in self._to_play or now_s >= service.next_s:
                self._to_play.discard(service.namespace)
                await self._play(service)
            if service.namespace in self._to_list:
                self._to_list.discard(service.namespace)
                await self._list(service)
        told, self._to_tell = self._to_tell, []
        for kind, each in told:
            self.notes.take(kind, each)
            await self.operator.told(kind, each)
        for key in self.operator.due_releases:
            await self._release(key)
        looks = [key for key in self.operator.beats.agenda.due() if not self._may_wait(key)]
        if looks:
            await self.operator.look(looks)

    def _may_wait(self, key: Key) -> bool:
        """A run whose stage goes on, and a profile that nothing befell since it was looked at."""
        if key.kind == RUN:
            return not self._services[key.namespace].stage_is_news()
        entry = self.operator.beats.agenda._entries[key]
        was_idle = entry.due_s - entry.last_s > 0.5 * IDLE_TICK_S
        return not entry.woken and self.clock.now_s < entry.last_s + (2 * IDLE_TICK_S if was_idle else _UNDISTURBED_S)

    async def _play(self, service: Service) -> None:
        await service.play()
        deployment = await self.kube.get(DEPLOYMENTS, service.namespace, NAME)
        key = Key("Deployment", service.namespace, NAME)
        self.operator.beats.workload_told(key, deployment["metadata"], deployment["status"], is_gone=False)

    async def _list(self, service: Service) -> None:
        found = [(kind, each) for kind in _KINDS for each in await self.kube.list(_KINDS[kind], service.namespace)]
        uids = {each["metadata"]["uid"] for _, each in found}
        if service.uids - uids:
            await service.collect(uids)
        service.uids = uids
        for kind, each in found:
            self.notes.take(kind, each)
            await self.operator.told(kind, each)
        if all(kind != PROFILE for kind, _ in found):
            self.notes.gone(service.namespace)
            self.operator.gone(Key(PROFILE, service.namespace, NAME))

    async def _release(self, key: Key) -> None:
        try:
            each = await self.kube.get(_KINDS[key.kind], key.namespace, key.name)
        except NotFound:
            self.operator.gone(key)
        else:
            await self.operator.told(key.kind, each)
        self._to_list.add(key.namespace)

    async def _happens(self, event: Event) -> None:
        self.happened[event.what] += 1
        match event.what:
            case What.API:
                self.proxy.forget()
                self._faults = AtRandom(int(1e6 * event.draw))
                lasts_s = _SHORTEST_FAULTS_S + event.draw * (_LONGEST_FAULTS_S - _SHORTEST_FAULTS_S)
                self._faults_until_s = self.clock.now_s + lasts_s
            case What.KILL:
                self._kills_at_next_write = Fault.KILLED_BEFORE if event.draw < 0.5 else Fault.KILLED_AFTER
            case What.RESTART:
                self.operator.start()
            case _:
                await self.happenings.happens(event)

    async def _row(self, day: int) -> Day:
        self.kube.memory.forget_all()
        objects, beyond = await objects_of(self.kube, [service.namespace for service in self.services])
        self.most_kept = max(self.most_kept, beyond)
        tallies = [service.production.tally for service in self.services]
        return usage_of_this_process(
            day,
            objects=objects,
            remembered=remembered(self.operator.beats),
            runs=len(self.notes.runs),
            retunes=self.notes.retunes,
            rollbacks=len(self.notes.rollbacks),
            calls=self.operators_kube.calls,
            promised=sum(tally.promised for tally in tallies),
            broken=sum(tally.broken for tally in tallies),
        )


@asynccontextmanager
async def begun(kubeconfig: Path, folder: Path, profiles: int) -> AsyncIterator[Soak]:
    """At the API server of this kubeconfig, with the rights of its user."""
    clock = Clock()
    engines = SoakEngines(clock)
    proxy = FaultProxy(kubeconfig)
    async with (
        proxy.running(),
        await PlayersKube.connect("soak", str(kubeconfig)) as kube,
        await OperatorsKube.connect("soak", str(kubeconfig)) as operators,
        await Kube.connect("soak", str(proxy.written_kubeconfig(folder))) as detour,
        engines.http() as http,
    ):
        kube.memory = operators.memory = Memory()
        await make_place(kube)
        operators.detour = detour
        with bugs() as told:
            soak = Soak(kube, operators, proxy, engines, http, clock, told)
            try:
                await soak.begin(profiles)
                yield soak
            finally:
                for service in soak.services:
                    await service.end()
