"""Searches that restart the engine for each setting, on the same engine and load, charged for starts and stages.

A setting is measured as one would: start the engine, and bisect the highest rate at which 99% of 1,000 requests meet
their targets, to 5%. vLLM's auto_tune is another procedure: all requests at once, then one request/s less at a time,
100 requests each, until the targets hold (benchmarks/auto_tune in vLLM's repository).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import optuna

from benchmarks.tuner.scenarios import Scenario
from benchmarks.tuner.truth import missed
from kneekeeper.api.model import Setting
from kneekeeper.domain.twin.simulate import Load

STAGE_REQUESTS = 1_000
AUTO_TUNE_REQUESTS = 100
ALLOWED_SHARE = 0.01
RATE_RESOLUTION = 1.05
TRIALS = 20
CONSTRAINED_TRIALS = 60
"""Of one stage each; a trial of the others is five or six."""
_MOST_STAGES = 12
_LEAST_RATE = 1e-3
_PAUSE_S = 2.0


@dataclass(frozen=True)
class Step:
    """After so many engine minutes this setting was the best that was seen."""

    engine_minutes: float
    setting: Setting


@dataclass(frozen=True)
class SearchResult:
    """How a search went; `course` grows with each better setting."""

    engine_starts: int
    engine_minutes: float
    course: tuple[Step, ...]

    @property
    def chosen(self) -> Setting | None:
        """The last best setting; None where no setting held any rate."""
        return self.course[-1].setting if self.course else None

    def chosen_after(self, engine_minutes: float) -> Setting | None:
        """The best setting that was seen by then."""
        seen = [step.setting for step in self.course if step.engine_minutes <= engine_minutes]
        return seen[-1] if seen else None


@dataclass
class Bench:
    """The engine and the load generator of one search, with their bill."""

    scenario: Scenario
    seed: int
    starts: int = 0
    seconds: float = 0.0
    best: float = 0.0
    course: list[Step] = field(default_factory=list)
    _running: Setting | None = None
    _stages: int = 0

    def start(self, setting: Setting) -> bool:
        """An engine with this setting runs; False where it does not start, which takes as long."""
        if self._running == setting:
            return True
        self.starts += 1
        self.seconds += self.scenario.engine.start_s
        started = self.scenario.engine.starts(setting)
        self._running = setting if started else None
        return started

    def miss_share(self, setting: Setting, rate: float, requests: int = STAGE_REQUESTS) -> float:
        """Of the class that misses most, in a stage at this rate; all arrive at once where it is infinite."""
        share, _ = self._stage(setting, rate, requests)
        return share

    def throughput(self, setting: Setting, requests: int = STAGE_REQUESTS) -> float:
        """Requests/s when all arrive at once."""
        _, duration_s = self._stage(setting, np.inf, requests)
        return requests / duration_s

    def _stage(self, setting: Setting, rate: float, requests: int) -> tuple[float, float]:
        assert self._running == setting  # started before
        self._stages += 1
        seed = self.seed * 10_000 + self._stages
        drawn = self.scenario.traffic.draw(requests, seed)
        load = Load(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens).at_rate(rate)
        result = self.scenario.engine.serve(load, setting, seed, self.seconds)
        duration_s = float(result.last_s.max())
        self.seconds += duration_s + _PAUSE_S
        shares = [
            float(missed(result, slo)[drawn.kind == number].mean()) if np.any(drawn.kind == number) else 0.0
            for number, slo in enumerate(self.scenario.slos)
        ]
        return max(shares), duration_s

    def note(self, setting: Setting, rate: float) -> None:
        """`setting` has held `rate`."""
        if rate > self.best:
            self.best = rate
            self.course.append(Step(self.seconds / 60, setting))

    def result(self) -> SearchResult:
        return SearchResult(self.starts, self.seconds / 60, tuple(self.course))


def measure(bench: Bench, setting: Setting) -> float:
    """The highest rate that holds, in requests/s; 0 where none does."""
    if not bench.start(setting):
        return 0.0
    high = bench.throughput(setting)
    low = 0.0
    for _ in range(_MOST_STAGES):
        rate = (low + high) / 2 if low == 0 or high > 2 * low else float(np.sqrt(low * high))
        if bench.miss_share(setting, rate) <= ALLOWED_SHARE:
            low = rate
        else:
            high = rate
        if high <= max(RATE_RESOLUTION * low, _LEAST_RATE):
            break
    bench.note(setting, low)
    return low


def defaults(bench: Bench) -> None:
    """Nothing is searched: vLLM's own choice."""
    bench.note(bench.scenario.engine.default_setting, 1.0)


def full_grid(bench: Bench) -> None:
    """Every point of the grid."""
    for setting in bench.scenario.grid:
        measure(bench, setting)


def auto_tune(bench: Bench) -> None:
    """vLLM's auto_tune over the grid's points, with the targets in place of its limit on E2E latency."""
    for setting in bench.scenario.grid:
        if not bench.start(setting):
            continue
        rate = float(np.ceil(bench.throughput(setting)))
        while rate >= 1 and bench.miss_share(setting, rate, AUTO_TUNE_REQUESTS) > ALLOWED_SHARE:
            rate -= 1
        bench.note(setting, rate)


def random_search(bench: Bench) -> None:
    """Points of the grid in random order."""
    order = np.random.default_rng(bench.seed).permutation(len(bench.scenario.grid))
    for place in order[:TRIALS]:
        measure(bench, bench.scenario.grid[place])


def tpe(bench: Bench) -> None:
    """Optuna's TPE over both limits; a trial measures a setting."""

    def objective(trial: optuna.Trial) -> float:
        return measure(bench, _suggested(bench.scenario, trial))

    _study(optuna.samplers.TPESampler(seed=bench.seed)).optimize(objective, n_trials=TRIALS)


def constrained_tpe(bench: Bench) -> None:
    """Optuna's TPE over both limits and the rate, with the share of misses as a constraint; a trial is one stage."""
    fastest = max(_fastest(bench), _LEAST_RATE)

    def objective(trial: optuna.Trial) -> float:
        setting = _suggested(bench.scenario, trial)
        rate = fastest * trial.suggest_float("load", 0.02, 1.2, log=True)
        share = bench.miss_share(setting, rate) if bench.start(setting) else 1.0
        trial.set_constraint("misses", share - ALLOWED_SHARE)
        if share <= ALLOWED_SHARE:
            bench.note(setting, rate)
        return rate

    sampler = optuna.samplers.TPESampler(seed=bench.seed)
    _study(sampler).optimize(objective, n_trials=CONSTRAINED_TRIALS)


SEARCHES: dict[str, Callable[[Bench], None]] = {
    "vLLM defaults": defaults,
    "full grid": full_grid,
    "vLLM auto_tune": auto_tune,
    "random": random_search,
    "Optuna TPE": tpe,
    "constrained TPE": constrained_tpe,
}


def search(name: str, scenario: Scenario, seed: int) -> SearchResult:
    """Run one of SEARCHES."""
    bench = Bench(scenario, seed)
    SEARCHES[name](bench)
    return bench.result()


def _fastest(bench: Bench) -> float:
    """Requests/s of the first point from the largest on that starts."""
    for setting in itertools.chain(reversed(bench.scenario.grid)):
        if bench.start(setting):
            return bench.throughput(setting)
    return 0.0


def _suggested(scenario: Scenario, trial: optuna.Trial) -> Setting:
    sequences = trial.suggest_int("sequences", 0, len(scenario.sequences) - 1)
    budget = trial.suggest_int("budget", 0, len(scenario.budgets) - 1)
    least = scenario.sequences[sequences]
    return Setting(max_num_seqs=least, max_num_batched_tokens=max(least, scenario.budgets[budget]))


def _study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize", sampler=sampler)
