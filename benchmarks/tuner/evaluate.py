"""One scenario: the product's run and all searches, held against the truth."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.tuner import baselines
from benchmarks.tuner.baselines import SEARCHES, SearchResult, Step, search
from benchmarks.tuner.engines import Engine
from benchmarks.tuner.hardness import Hardness, hardness
from benchmarks.tuner.product import ProductResult, tune
from benchmarks.tuner.scenarios import Scenario
from benchmarks.tuner.truth import CLOSE, REQUESTS, GridTruth, Truth
from kneekeeper.api.model import Setting
from kneekeeper.domain.twin import kernel

SEED = 1

ALLOWED_MINUTES = 10.0
ALLOWED_REQUESTS = 4_000
"""A run may take the longer of ten engine minutes and the time of so many requests at the chosen capacity."""


@dataclass(frozen=True)
class ProductOutcome:
    """What the product's run was worth."""

    setting: Setting | None
    capacity_share: float
    """True capacity of its setting over that of the grid's best point; 0 without a PASS."""
    promised_share: float
    """Promised rate over the setting's true capacity; 0 without a PASS."""
    broken: bool
    """Whether the targets are missed at the promised rate."""
    engine_starts: int
    engine_minutes: float
    allowed_minutes: float
    bound_by: str
    ended: str
    """Verdicts of its certifications, or why there was none."""


@dataclass(frozen=True)
class SearchOutcome:
    """What a search was worth: at its end, and when it had taken as long as the product's run."""

    engine_starts: int
    engine_minutes: float
    capacity_share: float
    share_as_early: float


@dataclass(frozen=True)
class Row:
    """A scenario's whole result."""

    scenario: str
    engine: str
    best: GridTruth
    hardness: Hardness
    product: ProductOutcome
    searches: dict[str, SearchOutcome]


def evaluate(scenario: Scenario, directory: Path, requests: int = REQUESTS) -> Row:
    """Minutes of work from nothing; what is kept in `directory` is not computed again."""
    truth = Truth(scenario, directory, requests)
    best = truth.of_grid()
    product = _outcome(truth, best, tune(scenario, SEED))
    return Row(
        scenario=scenario.name,
        engine=scenario.engine.name,
        best=best,
        hardness=hardness(scenario, truth, best, directory, requests),
        product=product,
        searches={
            name: _search_outcome(truth, best, _searched(name, scenario, directory), product.engine_minutes)
            for name in SEARCHES
        },
    )


def _outcome(truth: Truth, best: GridTruth, result: ProductResult) -> ProductOutcome:
    status = result.status
    verdicts = ", ".join(str(each.verdict) for each in status.certifications)
    capacity = truth.capacity(result.setting, best.capacity) if result.setting is not None else 0.0
    return ProductOutcome(
        setting=result.setting,
        capacity_share=capacity / best.capacity,
        promised_share=result.promised / capacity if capacity > 0 else 0.0,
        broken=result.setting is not None and not truth.holds(result.setting, result.promised),
        engine_starts=result.engine_starts,
        engine_minutes=result.engine_minutes,
        allowed_minutes=max(ALLOWED_MINUTES, ALLOWED_REQUESTS / (capacity or best.capacity) / 60),
        bound_by=str(status.choices[-1].bound_by) if status.choices else "",
        ended=verdicts or f"{status.cause}: {status.message}",
    )


def _search_outcome(truth: Truth, best: GridTruth, result: SearchResult, minutes: float) -> SearchOutcome:
    def share(setting: Setting | None) -> float:
        return 0.0 if setting is None else truth.capacity(setting, CLOSE * best.capacity) / best.capacity

    return SearchOutcome(
        engine_starts=result.engine_starts,
        engine_minutes=result.engine_minutes,
        capacity_share=share(result.chosen),
        share_as_early=share(result.chosen_after(minutes)),
    )


def _searched(name: str, scenario: Scenario, directory: Path) -> SearchResult:
    """A search's result, kept as long as neither it nor the scenario changes."""
    code = "".join(inspect.getsource(part) for part in (baselines, Engine, kernel))
    digest = hashlib.sha256(f"{name} {SEED} {scenario!r} {code}".encode()).hexdigest()[:24]
    path = directory / f"search-{digest}.json"
    if path.exists():
        kept = json.loads(path.read_text())
        course = tuple(Step(at, Setting(max_num_seqs=n, max_num_batched_tokens=m)) for at, n, m in kept["course"])
        return SearchResult(kept["engine_starts"], kept["engine_minutes"], course)
    result = search(name, scenario, SEED)
    course_rows = [
        (step.engine_minutes, step.setting.max_num_seqs, step.setting.max_num_batched_tokens) for step in result.course
    ]
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**asdict(result), "course": course_rows}))
    return result
