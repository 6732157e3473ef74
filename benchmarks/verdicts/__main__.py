"""Print a line for each condition, and all numbers as one JSON object; with --page, write them as a page."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import verdicts
from benchmarks.verdicts.conditions import (
    CONDITIONS,
    FAILING,
    FAILING_IN_BURSTS,
    FAILING_STAGES,
    MAX_FALSE_PASS,
    MIN_POWER,
    MORE_FOR_WORST,
    QUICK,
    QUICK_BELOW_STAGES,
    QUICK_FAILING_STAGES,
    QUICK_TRUTH_REQUESTS,
    TRUTH_SEED,
    Tried,
    failing_pass,
    summarise,
    try_condition,
    worst_of,
)
from benchmarks.verdicts.margin import MARGIN_CELLS, MarginRow, margin_row
from benchmarks.verdicts.page import cells, page
from benchmarks.verdicts.truth import TRUTH_REQUESTS


def main() -> int:
    """0 when in every condition at most 5% of the undeserved, and at least 80% of the deserved stages passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=verdicts.__doc__)
    parser.add_argument(
        "--stages",
        type=int,
        default=50,
        help=f"stages at the edge a condition (50), {MORE_FOR_WORST} times as many in the worst; below "
        f"{QUICK_BELOW_STAGES}: two conditions and no margins",
    )
    parser.add_argument("--margin-stages", type=int, default=10, help="stages a cell of the margins' table; 0: none")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the work (1)")
    parser.add_argument("--page", type=Path, help="write the tables as a page of the docs")
    arguments = parser.parse_args()
    quick = arguments.stages < QUICK_BELOW_STAGES
    if quick and arguments.page is not None:
        parser.error(f"a page is worth {QUICK_BELOW_STAGES} stages a condition; raise --stages or leave --page out")
    begun = time.monotonic()
    conditions = QUICK if quick else CONDITIONS
    truth_requests = QUICK_TRUTH_REQUESTS if quick else TRUTH_REQUESTS
    margins: list[MarginRow] = []
    with ProcessPoolExecutor(arguments.workers) if arguments.workers > 1 else nullcontext() as pool:
        spread: Callable[..., Iterator[Any]] = map if pool is None else pool.map
        tried: list[Tried] = []
        for one in spread(partial(try_condition, stages=arguments.stages, truth_requests=truth_requests), conditions):
            tried.append(one)
            print(*cells(one.result), sep=" | ", flush=True)
        worst = worst_of([one.result for one in tried]) if not quick else []
        more = partial(try_condition, stages=MORE_FOR_WORST * arguments.stages)
        for at, one in zip(
            worst, spread(more, [conditions[at] for at in worst], [tried[at] for at in worst]), strict=True
        ):
            tried[at] = one
            print(*cells(one.result), sep=" | ", flush=True)
        if arguments.margin_stages and not quick:
            for row in spread(partial(margin_row, stages=arguments.margin_stages, seed=TRUTH_SEED), MARGIN_CELLS):
                margins.append(row)
                print(row.engine, row.change, *(f"{share:.0%}" for share in row.passed), sep=" | ", flush=True)
    failing_stages = QUICK_FAILING_STAGES if quick else FAILING_STAGES
    summary = summarise(tried, *(failing_pass(failures, failing_stages) for failures in (FAILING, FAILING_IN_BURSTS)))
    results = [one.result for one in tried]
    if arguments.page is not None:
        arguments.page.write_text("\n".join(page(summary, results, margins, arguments.margin_stages)) + "\n")
    used = os.times()
    numbers: dict[str, Any] = asdict(summary) | {
        "edge_stages": sum(result.edge_stages for result in results),
        "easy_stages": sum(result.easy_stages for result in results),
        "elapsed_s": round(time.monotonic() - begun),
        "cpu_s": round(used.user + used.system + used.children_user + used.children_system),
        "conditions": [asdict(result) for result in results],
        "margins": [asdict(row) | {"least": row.least} for row in margins],
    }
    print(json.dumps(numbers))
    false = max(summary.false_pass, summary.false_pass_failing, summary.false_pass_failing_in_bursts)
    kept = false <= MAX_FALSE_PASS and summary.power >= MIN_POWER
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
