"""How far above the promised rate a certification has to offer, so that its PASS holds at the promised one.

The targets are set such that the P99 TTFT just meets them at R *as production will be*: on a machine that has
become slower than it was during the certification, or with arrivals burstier than the declared ones. A stage that
offers R times the margin is then asked for its verdict; all its PASSes are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.verdicts.engine import ENGINES, Engine
from benchmarks.verdicts.stage import run_stage
from benchmarks.verdicts.truth import BURSTY, POISSON, Targets, Traffic, long_run, saturation, targets_met
from kneekeeper.api.tuning_run import Verdict

MARGINS = (1.0, 1.1, 1.2, 1.3)
UTILISATION = 0.85
TRUTH_REQUESTS = 200_000
WRONG_PASS_SHARE = 0.05


@dataclass(frozen=True)
class Change:
    """How production differs from the certification."""

    name: str
    declared: Traffic
    real: Traffic
    slower: float = 0.0
    """Share of its speed that the machine loses."""


CHANGES = (
    Change("none, Poisson", POISSON, POISSON),
    Change("none, bursty", BURSTY, BURSTY),
    Change("5% slower, Poisson", POISSON, POISSON, 0.05),
    Change("5% slower, bursty", BURSTY, BURSTY, 0.05),
    Change("10% slower, Poisson", POISSON, POISSON, 0.10),
    Change("Poisson declared, cv 1.4", POISSON, Traffic("cv 1.4", 0.5)),
)


@dataclass(frozen=True)
class MarginRow:
    """Shares of PASS, one for each of `MARGINS`."""

    engine: str
    change: str
    passed: tuple[float, ...]

    @property
    def least(self) -> float | None:
        """The least margin from which on at most 5% pass; None when none of those tried is enough."""
        enough = None
        for margin, share in zip(reversed(MARGINS), reversed(self.passed), strict=True):
            if share > WRONG_PASS_SHARE:
                break
            enough = margin
        return enough


MARGIN_CELLS = tuple((engine, change) for engine in ENGINES for change in CHANGES)


def margin_row(cell: tuple[Engine, Change], *, stages: int, seed: int) -> MarginRow:
    """The row of an engine and a change, from `stages` stages a margin."""
    engine, change = cell
    rate = UTILISATION * saturation(engine)
    ttft_s, tpot_s = long_run(engine, change.real, rate, seed, speed=1 - change.slower, requests=TRUTH_REQUESTS)
    slo = targets_met(ttft_s, tpot_s, Targets.TTFT)
    passed = []
    for margin in MARGINS:
        found = [run_stage(engine, change.declared, margin * rate, slo, seed + 1 + number) for number in range(stages)]
        passed.append(sum(outcome.verdict is Verdict.PASS for outcome in found) / stages)
    return MarginRow(engine.name, change.name, tuple(passed))
