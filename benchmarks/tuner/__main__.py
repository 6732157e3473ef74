"""`make bench-tuner`: the tuner against ground truth, and against searches; the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.tuner.evaluate import Row, evaluate
from benchmarks.tuner.report import Summary, summarise, tables
from benchmarks.tuner.scenarios import SCENARIOS
from benchmarks.tuner.truth import cache_directory

WORKERS = 2
BEGIN, END = "<!-- make bench-tuner begin -->", "<!-- make bench-tuner end -->"


def main() -> int:
    """Non-zero where a target is missed or the scenarios are not hard."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the tables between its two marks")
    parser.add_argument("--only", default="", help="run the scenarios whose name holds this alone; says nothing of all")
    options = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    if not chosen or (options.only and options.page is not None):
        parser.error("--only must leave scenarios, and a page tells of all of them")
    begun_s = time.monotonic()
    rows = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for row in pool.map(partial(evaluate, directory=cache_directory()), chosen):
            rows.append(row)
            print(_line(row), file=sys.stderr, flush=True)
    summary = summarise(rows)
    told = tables(rows)
    print(told)
    print(f"\nTook {(time.monotonic() - begun_s) / 60:.0f} minutes.")
    if options.page is not None:
        _write(options.page, told, summary)
    print(json.dumps(asdict(summary)))
    return 0 if _met(summary) else 1


def _met(summary: Summary) -> bool:
    enough = summary.scenarios - 2
    return (
        summary.within_5_percent >= enough
        and summary.broken_slo <= 1
        and summary.engine_starts_22nd <= 2
        and summary.max_engine_starts <= 4
        and summary.engine_minutes_22nd <= 10
        and summary.promised_share_22nd >= 0.7
        and all(summary.hard.values())
    )


def _line(row: Row) -> str:
    run = row.product
    return (
        f"{row.scenario}: {run.setting} has {run.capacity_share:.0%} of the best ({row.best.best}), promises "
        f"{run.promised_share:.0%}, {run.engine_starts} starts, {run.engine_minutes:.1f} of {run.allowed_minutes:.1f} "
        f"minutes, {run.ended}"
    )


def _write(page: Path, told: str, summary: Summary) -> None:
    """Replace what stands between the marks."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    numbers = (
        f"Of {summary.scenarios} scenarios the chosen setting carries at least 95% of the best grid point's rate in "
        f"**{summary.within_5_percent}**; {summary.without_pass} ended without a certified setting, and the promise "
        f"was broken in {summary.broken_slo}. All but two took at most {summary.engine_starts_22nd} engine starts and "
        f"{summary.engine_minutes_unscaled_22nd} engine minutes, and promised at least "
        f"{summary.promised_share_22nd:.0%} of what the setting carries."
    )
    page.write_text(f"{before}{BEGIN}\n{numbers}\n\n{told}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
