"""What becomes of a day's requests under one setting, and under one for each mix's hours.

- Switched live: requests in flight at a switch, and all that arrive until twice as late as the last of them ends, are
  counted as missed, whatever became of them: nothing is known of how the two settings meet.
- Switched by rollout: REPLICAS replicas are restarted one after the other from the hour on; those that serve share the
  load of the one that starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.day.cases import Case
from benchmarks.day.requests import HOUR_S, MIDNIGHT, Requests, draw
from benchmarks.tuner.engines import Engine
from benchmarks.tuner.truth import ALLOWED_SHARE, missed
from kneekeeper.api.model import Setting
from kneekeeper.domain.samples import Bools, Floats
from kneekeeper.domain.twin.simulate import Load

REPLICAS = 4
LOWEST, HIGHEST, RESOLUTION = 0.1, 2.0, 0.02
_SEED, _ENGINE_SEED = 41_000, 42_000


@dataclass(frozen=True)
class Switch:
    """From this hour of the day on the setting holds."""

    hour: float
    setting: Setting


@dataclass(frozen=True)
class Day:
    """Requests of a day by mix, and those inside their targets."""

    requests: tuple[int, ...]
    inside: tuple[int, ...]

    @property
    def percent(self) -> float:
        return 100 * sum(self.inside) / sum(self.requests)

    @property
    def holds(self) -> bool:
        """Whether at most 1% of each mix miss their targets."""
        both = zip(self.requests, self.inside, strict=True)
        return all(requests - inside <= ALLOWED_SHARE * requests for requests, inside in both)

    def percent_of(self, mix: int) -> float:
        return 100 * self.inside[mix] / self.requests[mix]


@dataclass(frozen=True)
class World:
    """Of one case, at rates that are multiples of `busiest`, each mix's busiest rate in requests/s."""

    case: Case
    busiest: tuple[float, float]

    def single(self, setting: Setting, factor: float = 1.0) -> Day:
        """The whole day with one setting."""
        requests = self._draw(factor)
        return self._counted(requests, self._late(requests, setting, self.case.engine)[0])

    def live(self, switches: Sequence[Switch], factor: float = 1.0) -> Day:
        """Switched in the running engine; what is in flight then or comes soon after counts as missed.

        A running engine takes nothing above what it was started with: that is the higher of each limit, and so is what
        the KV cache has lost to the token budget.
        """
        requests, engine = self._draw(factor), self.case.engine
        lost = np.zeros(requests.arrival_s.size, dtype=np.bool_)
        most_tokens = max(switch.setting.max_num_batched_tokens for switch in switches)
        for begins, ends in _spans(switches):
            here = requests.between(begins.hour * HOUR_S, ends)
            more_tokens = most_tokens - begins.setting.max_num_batched_tokens
            kv_tokens = engine.kv_cache_tokens - round(engine.kv_tokens_per_budget_token * more_tokens)
            started = engine.with_kv(engine.name, kv_tokens)
            lost[here], last_s = self._late(requests.where(here), begins.setting, started)
            if ends < MIDNIGHT * HOUR_S and last_s.size:
                drained_s = max(ends, float(last_s.max()))
                lost |= requests.between(ends, ends + 2 * (drained_s - ends))
                in_flight = np.zeros_like(lost)
                in_flight[here] = last_s > ends
                lost |= in_flight
        return self._counted(requests, lost)

    def rollout(self, switches: Sequence[Switch], factor: float = 1.0) -> Day:
        """All replicas, restarted one after the other from each hour on."""
        days = [self._rolled(switches, factor, replica) for replica in range(REPLICAS)]
        return Day(
            tuple(map(sum, zip(*(day.requests for day in days), strict=True))),
            tuple(map(sum, zip(*(day.inside for day in days), strict=True))),
        )

    def _rolled(self, switches: Sequence[Switch], factor: float, replica: int) -> Day:
        """One of the replicas, which is restarted after so many others; its requests meanwhile go to those."""
        start = self.case.engine.start_s / HOUR_S
        restarts = [Switch(each.hour + (replica + 1) * start, each.setting) for each in switches[1:]]

        def share(hours: Floats) -> Floats:
            found = np.ones_like(hours)
            for switch, restart in zip(switches[1:], restarts, strict=True):
                rolls = (hours >= switch.hour) & (hours < switch.hour + REPLICAS * start)
                found = np.where(rolls, REPLICAS / (REPLICAS - 1), found)
                found = np.where((hours >= restart.hour - start) & (hours < restart.hour), 0.0, found)
            return found

        busiest = [factor * rate for rate in self.busiest]
        requests = draw(self.case, busiest, _SEED + 100 * (replica + 1), share=share)
        lost = np.zeros(requests.arrival_s.size, dtype=np.bool_)
        for begins, ends in _spans([switches[0], *restarts]):
            here = requests.between(begins.hour * HOUR_S, ends)
            lost[here], _ = self._late(requests.where(here), begins.setting, self.case.engine)
        return self._counted(requests, lost)

    def _draw(self, factor: float) -> Requests:
        return draw(self.case, [factor * rate for rate in self.busiest], _SEED)

    def _late(self, requests: Requests, setting: Setting, engine: Engine) -> tuple[Bools, Floats]:
        """Which of the requests miss their targets on an engine with this setting, and when each ended."""
        load = Load(requests.arrival_s, requests.prompt_tokens, requests.output_tokens)
        result = engine.serve(load, setting, _ENGINE_SEED)
        by_mix = np.stack([missed(result, scenario.slos[0]) for scenario in self.case.mixes])
        return np.take_along_axis(by_mix, requests.mix[None, :], axis=0)[0], result.last_s

    def _counted(self, requests: Requests, lost: Bools) -> Day:
        of_mix = [requests.mix == mix for mix in range(len(self.case.mixes))]
        return Day(tuple(int(of.sum()) for of in of_mix), tuple(int((of & ~lost).sum()) for of in of_mix))


def carried(serve: Callable[[float], Day]) -> float:
    """The largest multiple of the rates that holds, to RESOLUTION; 0 where LOWEST does not."""
    low, high = LOWEST, HIGHEST
    if not serve(low).holds:
        return 0.0
    while high > (1 + RESOLUTION) * low:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if serve(middle).holds else (low, middle)
    return low


def best_single(world: World, order: Sequence[Setting]) -> tuple[Setting, float]:
    """The setting that carries most, and how much; likely ones first save looks at the others."""
    best, most = order[0], 0.0
    for setting in order:
        if most == 0.0 or world.single(setting, (1 + RESOLUTION) * most).holds:
            best, most = setting, carried(partial(world.single, setting))
    return best, most


def _spans(switches: Sequence[Switch]) -> list[tuple[Switch, float]]:
    """Each switch, and the second of the day in which the next one is made."""
    ends = [*(each.hour for each in switches[1:]), MIDNIGHT]
    return [(switch, hour * HOUR_S) for switch, hour in zip(switches, ends, strict=True)]
