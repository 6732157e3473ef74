"""What an event of the calendar does to a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kneekeeper.kube.errors import KubeError
from tests.soak.calendar import HOUR_S, Event, What
from tests.soak.engines import MetricsFault
from tests.soak.service import FEWEST_REPLICAS, MOST_REPLICAS, Service

_LONGEST_METRICS_FAULT_S = 2 * HOUR_S
_SHORTEST_FAULT_S = 300.0
_SUSPENDED_S = 3 * HOUR_S
_AWAY_S = HOUR_S
_AGAIN_S = 300.0
_LONG = 200
"""Prompt tokens from which requests become shorter again."""
_TARGETS = ({"p99TTFT": "2500ms", "p99TPOT": "25ms"}, {"p99TTFT": "1s", "p99TPOT": "25ms"}, {"p99TTFT": "5s"})


@dataclass
class Happenings:
    """Some come in two parts: the second one is due later."""

    clock_s: Callable[[], float]
    services: Sequence[Service]
    _later: list[tuple[float, Callable[[], Awaitable[None]]]] = field(default_factory=list)

    async def happens(self, event: Event) -> None:
        """To one service."""
        assert event.profile is not None
        service, draw, now_s = self.services[event.profile], event.draw, self.clock_s()
        match event.what:
            case What.IMAGE:
                await service.upgrade()
            case What.MODEL:
                await service.change_model()
            case What.LENGTHS:
                self._lengths_change(event.profile)
            case What.REPLICAS:
                await service.scale(FEWEST_REPLICAS + int(draw * (MOST_REPLICAS - FEWEST_REPLICAS + 1)))
            case What.CRASH:
                service.crash_next = True
            case What.EVICT:
                await service.evict_clone()
            case What.METRICS:
                fault = list(MetricsFault)[int(draw * len(MetricsFault))]
                service.scraped.begin(fault, now_s + _SHORTEST_FAULT_S + draw * _LONGEST_METRICS_FAULT_S)
            case What.TARGETS:
                await service.set_spec("slo", _TARGETS[int(draw * len(_TARGETS))])
            case What.SUSPEND:
                await service.set_spec("suspend", True)
                self._later.append((now_s + _SUSPENDED_S, lambda: service.set_spec("suspend", False)))
            case What.DELETE:
                await service.delete_profile()
                self._later.append((now_s + _AWAY_S, lambda: self._make_anew(service)))

    async def go_on(self) -> None:
        """The second parts that are due."""
        if not self._later:
            return
        now_s = self.clock_s()
        due = [what for at_s, what in self._later if at_s <= now_s]
        self._later = [each for each in self._later if each[0] > now_s]
        for what in due:
            await what()

    def end(self) -> None:
        """No second parts any more."""
        self._later.clear()

    def _lengths_change(self, profile: int) -> None:
        learning = [service for service in self.services if service.learns] or self.services
        production = learning[profile % len(learning)].production
        production.advance(self.clock_s())
        production.lengths = production.lengths.times(1.6 if production.lengths.prompt < _LONG else 0.6)

    async def _make_anew(self, service: Service) -> None:
        """Once the one before is gone."""
        try:
            await service.make_profile()
        except KubeError:
            self._later.append((self.clock_s() + _AGAIN_S, lambda: self._make_anew(service)))
