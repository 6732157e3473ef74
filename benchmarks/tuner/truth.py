"""The true capacity of a setting: the highest rate at which at most 1% of many requests miss their targets.

20,000 requests with seeds that nothing else uses, after as many more as it takes the queue to forget that it was
empty. Rates are bisected to 1%. The grid's best is found without bisecting every point: one that does not hold what
another holds is not better, and one that does not hold 95% of the best is not within 5% of it. That is exact, as far as
more load never helps. So is that a rate does not hold once a part of the requests has more misses than all may have.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tuner.engines import Engine
from benchmarks.tuner.scenarios import RequestClass, Scenario
from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Slo
from kneekeeper.domain.samples import Bools
from kneekeeper.domain.twin import kernel, law, simulate
from kneekeeper.domain.twin.simulate import Load, TwinResult
from kneekeeper.domain.twin.traffic import TwinRequests

REQUESTS = 20_000
WARM_UP = 2_000
ALLOWED_SHARE = 0.01
CLOSE = 0.95
RESOLUTION = 0.01
_SEED = 770_001
_STEP = 1.3
_LOWEST_RATE = 1e-3
_FIRST_PART = 4
"""A quarter of the requests often has more misses than are allowed in all."""


@dataclass(frozen=True)
class GridTruth:
    """The best point of a scenario's grid, and every point that comes within 5% of it."""

    best: Setting
    capacity: float
    close: tuple[Setting, ...]


def missed(result: TwinResult, slo: Slo) -> Bools:
    """Which requests miss any target."""
    ttft_s, tpot_s = result.ttft_s, np.nan_to_num(result.tpot_s)
    late = (ttft_s > (slo.ttft_s or np.inf)) | (tpot_s > (slo.tpot_s or np.inf))
    return np.asarray(late, dtype=np.bool_)


class Truth:
    """Capacities of one scenario, kept on disk as long as neither it nor the simulated engine changes."""

    def __init__(self, scenario: Scenario, directory: Path, requests: int = REQUESTS) -> None:
        self._scenario, self._requests = scenario, requests
        self._path = directory / f"{_digest(scenario, requests)}.json"
        self._known: dict[str, float] = {}
        if self._path.exists():
            self._known = json.loads(self._path.read_text())

    def capacity(self, setting: Setting, near: float | None = None) -> float:
        """Requests/s, to 1%; 0 where the engine does not start or holds no rate. `near` saves time."""
        key = f"capacity {setting.max_num_seqs} {setting.max_num_batched_tokens}"
        if key not in self._known:
            self._known[key] = self._search(setting, near or 1.0)
            self._store()
        return self._known[key]

    def holds(self, setting: Setting, rate: float) -> bool:
        """Whether at most 1% of each class miss their targets at `rate`."""
        key = f"holds {setting.max_num_seqs} {setting.max_num_batched_tokens} {rate:.6g}"
        if key not in self._known:
            self._known[key] = float(self._holds(setting, rate))
            self._store()
        return bool(self._known[key])

    def of_grid(self) -> GridTruth:
        """The best point of the grid."""
        grid = self._scenario.grid
        # From the middle outwards: an early good point saves looks at all others.
        middle = len(grid) / 2
        best, at = 0.0, grid[0]
        for setting in sorted(grid, key=lambda s: abs(grid.index(s) - middle)):
            if best == 0 or self.holds(setting, (1 + RESOLUTION) * best):
                best, at = self.capacity(setting, best or None), setting
        return GridTruth(at, best, tuple(s for s in grid if self.holds(s, CLOSE * best)))

    @cached_property
    def _drawn(self) -> TwinRequests:
        return self._scenario.traffic.draw(self._requests + self._warm_up, _SEED)

    @property
    def _warm_up(self) -> int:
        return WARM_UP * self._requests // REQUESTS

    def _search(self, setting: Setting, near: float) -> float:
        if not self._scenario.engine.starts(setting):
            return 0.0
        low, high = near, near
        if self._holds(setting, near):
            while self._holds(setting, high := high * _STEP):
                low = high
        else:
            while not self._holds(setting, low := low / _STEP):
                high = low
                if low < _LOWEST_RATE:
                    return 0.0
        while high > (1 + RESOLUTION) * low:
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if self._holds(setting, middle) else (low, middle)
        return low

    def _holds(self, setting: Setting, rate: float) -> bool:
        scenario = self._scenario
        if not scenario.engine.starts(setting):
            return False
        requests = self._drawn
        load = Load(requests.arrival_s, requests.prompt_tokens, requests.output_tokens).at_rate(rate)
        return self._within(_first(load, len(load) // _FIRST_PART), setting, len(load)) and self._within(
            load, setting, len(load)
        )

    def _within(self, load: Load, setting: Setting, planned: int) -> bool:
        """Whether at most 1% of each class among `planned` requests can still miss their targets after these.

        Of a part of all requests those count that had ended when its last one came: what comes later does not change
        them.
        """
        scenario, skip = self._scenario, self._warm_up
        result = scenario.engine.serve(load, setting, _SEED)
        until_s = load.arrival_s[-1] if len(load) < planned else np.inf
        kinds = self._drawn.kind
        for number, slo in enumerate(scenario.slos):
            late = missed(result, slo) & (result.last_s <= until_s) & (kinds[: len(load)] == number)
            if late[skip:].sum() > ALLOWED_SHARE * (kinds[skip:] == number).sum():
                return False
        return True

    def _store(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(self._known))
        partial.replace(self._path)


def _first(load: Load, count: int) -> Load:
    return Load(load.arrival_s[:count], load.prompt_tokens[:count], load.output_tokens[:count])


def cache_directory() -> Path:
    """Where truths are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kneekeeper" / "tuner"


def without_prompts_target(scenario: Scenario) -> Scenario:
    """The scenario without its TTFT targets."""
    return _with_classes(scenario, [replace(kind, ttft_s=None) for kind in scenario.classes])


def without_decodes_target(scenario: Scenario) -> Scenario:
    """The scenario without its TPOT targets."""
    return _with_classes(scenario, [replace(kind, tpot_s=None) for kind in scenario.classes])


def with_ample_kv(scenario: Scenario) -> Scenario:
    """The scenario with a KV cache that never fills."""
    return replace(scenario, engine=scenario.engine.with_kv(scenario.engine.name, 100_000_000))


def without_hard_limit(scenario: Scenario) -> Scenario:
    """The scenario on an engine that admits as many sequences as it is told."""
    return replace(scenario, engine=replace(scenario.engine, most_sequences=None))


def _with_classes(scenario: Scenario, classes: Iterable[RequestClass]) -> Scenario:
    return replace(scenario, classes=tuple(classes))


def _digest(scenario: Scenario, requests: int) -> str:
    parts: tuple[Any, ...] = (Engine, Truth, kernel, law, simulate)
    code = "".join(inspect.getsource(part) for part in parts)
    told = f"{replace(scenario, name='')!r} {requests} {code}"
    return hashlib.sha256(told.encode()).hexdigest()[:24]
