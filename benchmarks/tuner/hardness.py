"""Whether the scenarios are hard: what limits each, and how far one would come without tuning both limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks.tuner.scenarios import Scenario
from benchmarks.tuner.truth import (
    CLOSE,
    REQUESTS,
    GridTruth,
    Truth,
    with_ample_kv,
    without_decodes_target,
    without_hard_limit,
    without_prompts_target,
)
from kneekeeper.api.model import Setting

GAIN = 1.05
"""A constraint binds where more than this times the best capacity can be had without it."""


class Binding(StrEnum):
    """What keeps a scenario from a higher rate."""

    KV = "KV"
    TPOT = "TPOT"
    TTFT = "TTFT"
    BUDGET = "token budget"
    HARD_LIMIT = "hard limit"


@dataclass(frozen=True)
class Hardness:
    """`default_share` is vLLM's defaults over the best point of the grid."""

    default_share: float
    bindings: tuple[Binding, ...]
    one_limit_is_enough: bool
    """Whether moving max_num_seqs or max_num_batched_tokens alone, from the defaults, comes within 5%."""
    close_share: float
    """Of all grid points, those within 5% of the best."""


def hardness(scenario: Scenario, truth: Truth, best: GridTruth, directory: Path, requests: int = REQUESTS) -> Hardness:
    """All of it, from true capacities."""
    default = scenario.engine.default_setting
    relaxed = {
        Binding.KV: with_ample_kv(scenario),
        Binding.TPOT: without_decodes_target(scenario),
        Binding.TTFT: without_prompts_target(scenario),
    }
    if scenario.engine.most_sequences is not None:
        relaxed[Binding.HARD_LIMIT] = without_hard_limit(scenario)
    near = _near(scenario, best.best)
    found = [
        binding
        for binding, easier in relaxed.items()
        if any(Truth(easier, directory, requests).holds(setting, GAIN * best.capacity) for setting in near)
    ]
    goal = CLOSE * best.capacity
    if not all(truth.holds(setting, goal) for setting in _other_budgets(best.best)):
        found.append(Binding.BUDGET)
    lines = [
        *(
            Setting(max_num_seqs=n, max_num_batched_tokens=max(n, default.max_num_batched_tokens))
            for n in scenario.sequences
        ),
        *(
            Setting(max_num_seqs=default.max_num_seqs, max_num_batched_tokens=max(m, default.max_num_seqs))
            for m in scenario.budgets
        ),
    ]
    return Hardness(
        default_share=truth.capacity(default, best.capacity) / best.capacity,
        bindings=tuple(found),
        one_limit_is_enough=any(truth.holds(setting, goal) for setting in lines),
        close_share=len(best.close) / len(scenario.grid),
    )


def _near(scenario: Scenario, best: Setting) -> list[Setting]:
    """The best point, and those with up to four times the sequences and a neighbouring budget."""
    place = scenario.budgets.index(best.max_num_batched_tokens)
    budgets = scenario.budgets[max(0, place - 2) : place + 3]
    sequences = [n for n in scenario.sequences if best.max_num_seqs <= n <= 4 * best.max_num_seqs]
    return [Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in sequences for m in budgets if m >= n]


def _other_budgets(best: Setting) -> list[Setting]:
    """The best sequences with half and with twice the budget."""
    halved = max(best.max_num_seqs, best.max_num_batched_tokens // 2)
    return [
        best.model_copy(update={"max_num_batched_tokens": budget})
        for budget in (halved, 2 * best.max_num_batched_tokens)
    ]
