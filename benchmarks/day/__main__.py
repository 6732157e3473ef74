"""Print a table for each case, and one JSON object of all as the last line; with --page, write it as a page."""

from __future__ import annotations

import argparse
import json
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.day.cases import CASES, Case
from benchmarks.day.requests import EVENING, MORNING
from benchmarks.day.serving import LOWEST, REPLICAS, Day, Switch, World, best_single, carried
from benchmarks.tuner.product import tune
from benchmarks.tuner.scenarios import Scenario
from kneekeeper.api.model import Setting
from kneekeeper.domain.certify import SAFETY

WORKERS = 2
_OUTCOME = re.compile(r"```json\n(.+)\n```")


@dataclass(frozen=True)
class Row:
    """One way to serve the day. `percent` are requests inside their targets at the day's own rates, by mix."""

    served: str
    carries: float
    """0: less than LOWEST."""
    percent: tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    """Of one case. Settings are `sequences/tokens`, gains are over the best single setting."""

    case: str
    requests: int
    busiest_requests_per_s: tuple[float, float]
    rows: tuple[Row, ...]
    best_single: str
    best_single_carries: float
    switched_live_carries: float
    switched_by_rollout_carries: float
    gain_live_percent: float
    gain_by_rollout_percent: float


def measure(case: Case) -> Outcome:
    """Certify a setting for each mix, look for the best single one, and serve the day with each and with both."""
    with ProcessPoolExecutor(WORKERS) as pool:
        found = list(pool.map(partial(tune, seed=1), case.mixes))
        day, night = (each.setting for each in found)
        if day is None or night is None:
            raise SystemExit(f"{case.name}: a mix has no certified setting")
        busiest = (SAFETY * found[0].promised, SAFETY * found[1].promised)
        world = World(case, busiest)
        switches = (Switch(0, night), Switch(MORNING, day), Switch(EVENING, night))
        by_rollout, live = partial(world.rollout, switches), partial(world.live, switches)
        alone = {setting: partial(world.single, setting) for setting in (case.engine.default_setting, day, night)}
        carries = {serve: pool.submit(carried, serve) for serve in (by_rollout, live, *alone.values())}
        grid = list(dict.fromkeys([*case.grid, day, night]))
        singles = dict(zip(grid, pool.map(world.single, grid), strict=True))
        best, best_carries = best_single(world, sorted(grid, key=lambda each: -_least(singles[each])))
        both = [pool.submit(serve) for serve in (live, by_rollout)]

        def row(setting: Setting, why: str) -> Row:
            return _row(f"{setting}, {why}", carries[alone[setting]].result(), singles[setting])

        names = [scenario.name for scenario in case.mixes]
        rows = (
            _row(f"{best}, the best single setting of {len(grid)}", best_carries, singles[best]),
            row(case.engine.default_setting, "what vLLM starts with"),
            row(day, f"certified for {names[0]}"),
            row(night, f"certified for {names[1]}"),
            _row(f"{day} and {night}, switched live", carries[live].result(), both[0].result()),
            _row(f"{day} and {night}, switched by rollout", carries[by_rollout].result(), both[1].result()),
        )
    return Outcome(
        case=case.name,
        requests=sum(singles[best].requests),
        busiest_requests_per_s=(round(busiest[0], 3), round(busiest[1], 3)),
        rows=rows,
        best_single=str(best),
        best_single_carries=rows[0].carries,
        switched_live_carries=rows[-2].carries,
        switched_by_rollout_carries=rows[-1].carries,
        gain_live_percent=_gain(rows[-2], rows[0]),
        gain_by_rollout_percent=_gain(rows[-1], rows[0]),
    )


def _least(day: Day) -> float:
    """Of the mix that is worse off."""
    return min(day.percent_of(mix) for mix in range(len(day.requests)))


def _row(served: str, carries: float, day: Day) -> Row:
    return Row(served, round(carries, 3), (round(day.percent_of(0), 2), round(day.percent_of(1), 2)))


def _gain(row: Row, single: Row) -> float:
    return round(100 * (row.carries / max(single.carries, LOWEST) - 1), 1)


def table(case: Case, outcome: Outcome) -> str:
    """Of one case."""
    first, second = (scenario.name for scenario in case.mixes)
    lines = [f"| setting | carries | {first} inside its SLO | {second} inside its SLO |", "| --- | --- | --- | --- |"]
    for row in outcome.rows:
        carries = f"{row.carries:.2f}" if row.carries > 0 else f"below {LOWEST:g}"
        lines.append(f"| {row.served} | {carries} | {row.percent[0]:.2f}% | {row.percent[1]:.2f}% |")
    return "\n".join(lines)


def main() -> None:
    """Print tables and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--case", choices=[case.name for case in CASES], help="only this one; the page keeps the others"
    )
    parser.add_argument("--page", type=Path, help="write the tables to this page")
    options = parser.parse_args()
    kept = _kept(options.page) if options.case is not None and options.page is not None else {}
    outcomes: dict[str, Outcome] = {}
    for case in CASES:
        if options.case in (None, case.name):
            outcomes[case.name] = measure(case)
            print(table(case, outcomes[case.name]))
        elif case.name in kept:
            outcomes[case.name] = kept[case.name]
    line = json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()})
    if options.page is not None:
        options.page.write_text(_page(outcomes, line), encoding="utf-8")
    print(line)


def _kept(page: Path) -> dict[str, Outcome]:
    """What the page tells of cases that were measured before."""
    found = _OUTCOME.search(page.read_text(encoding="utf-8")) if page.exists() else None
    told = json.loads(found.group(1)) if found is not None else {}
    return {
        name: Outcome(**{**each, "rows": tuple(_row_of(row) for row in each["rows"])})
        for name, each in told.items()
        if isinstance(each, dict)
    }


def _row_of(told: dict[str, Any]) -> Row:
    return Row(told["served"], told["carries"], tuple(told["percent"]))


def _page(outcomes: dict[str, Outcome], line: str) -> str:
    parts = [_INTRODUCTION]
    parts += [_section(case, outcomes[case.name]) for case in CASES if case.name in outcomes]
    return "\n".join([*parts, f"```json\n{line}\n```", ""])


def _section(case: Case, outcome: Outcome) -> str:
    mixes = zip(case.mixes, outcome.busiest_requests_per_s, strict=True)
    lines = [
        f"## {case.title}",
        "",
        f"{case.engine.name}. {case.about}",
        "",
        *(_mix(scenario, rate) for scenario, rate in mixes),
    ]
    gain = (
        f"Over the best single setting: {outcome.gain_live_percent:+.1f}% switched live, "
        f"{outcome.gain_by_rollout_percent:+.1f}% by rollout."
    )
    return "\n".join([*lines, "", table(case, outcome), "", gain, ""])


def _mix(scenario: Scenario, rate: float) -> str:
    kind = scenario.classes[0]
    arrivals = "Poisson" if scenario.burstiness_percent == 100 else f"Gamma {scenario.burstiness_percent / 100:g}"
    return (
        f"- {scenario.name}: {kind.prompt.mean} prompt and {kind.output.mean} output tokens on average, {arrivals}, "
        f"P99 TTFT {kind.ttft_s:g} s, P99 TPOT {kind.tpot_s:g} s, up to {rate:.2f} requests/s a replica"
    )


_INTRODUCTION = f"""\
# A day with two traffic mixes

Written by `make bench-day`.

One mix from {MORNING}:00 to {EVENING}:00, another one by night. The engines are simulated; their laws are not the one
that the product fits. The two settings are what a run certifies for each mix, and its certified rate is the mix's
busiest. The single setting is the best of a grid for this very day, which can only be told afterwards: nobody has it,
and yet it is what two settings are held against. Whether two settings gain depends on whether the mixes ask for
different ones: a case of each is shown.

`carries` is the largest multiple of the day's rates at which at most 1% of each mix miss their targets; the percentages
are at the day's own rates.

Switched live, all requests that are in flight at a switch or arrive within twice the time in which those end are
counted as missed, and the engine has started with the higher of each limit. By rollout, {REPLICAS} replicas restart
one after the other from the hour on, and the others share the load. The product switches by rollout, or live
[where that is allowed](../schedules.md#switched-live).
"""


if __name__ == "__main__":
    main()
