"""`python -m benchmarks.twin`: how fast the twin is, and how near to real vLLM.

The last line of output is one JSON object. `--surface-only` leaves real vLLM out. Ends with 1 when a bar is missed,
with 2 when the machine drifted too much to say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import twin_real, twin_surface
from benchmarks.twin_real import Row, Study
from e2e.realvllm.environment import prepare
from kneekeeper.domain.twin.fit import TERMS

TARGET = Path(__file__).parent.parent / "docs/results/twin.md"
MOST_SURFACE_S = 10.0
MOST_TPOT_ERROR = 0.10
MOST_TTFT_ERROR = 0.25


def main() -> int:
    """0 when every bar is met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.twin", description=__doc__)
    parser.add_argument("--surface-only", action="store_true", help="leave real vLLM out, and the page unwritten")
    arguments = parser.parse_args()
    surface = twin_surface.measure()
    print(
        f"{surface.settings} settings, {twin_surface.REQUESTS} requests at each rate: {surface.cpu_s:.2f} s of one "
        f"core; best {surface.best} with {surface.best_requests_per_s:.2f} requests/s"
    )
    numbers: dict[str, Any] = {"surface_s": round(surface.cpu_s, 2)}
    kept = surface.cpu_s <= MOST_SURFACE_S
    if arguments.surface_only:
        print(json.dumps(numbers))
        return 0 if kept else 1
    study = twin_real.study(prepare())
    page = list(_page(study, surface.cpu_s))
    print("\n".join(page))
    if study.rows:
        numbers["tpot_p99_error"] = round(median(abs(row.tpot_error) for row in study.rows), 3)
        numbers["ttft_p99_error"] = round(median(abs(row.ttft_error) for row in study.rows), 3)
    numbers |= {"pairs": len(study.rows), "stages": study.stages, "discarded": len(study.discarded)}
    numbers["verdict"] = "Conclusive" if study.conclusive else "Inconclusive"
    if not study.conclusive:
        print(json.dumps(numbers))
        return 2
    TARGET.write_text("\n".join(page) + "\n")
    kept = kept and numbers["tpot_p99_error"] <= MOST_TPOT_ERROR and numbers["ttft_p99_error"] <= MOST_TTFT_ERROR
    print(json.dumps(numbers))
    return 0 if kept else 1


def _page(study: Study, surface_s: float) -> Iterator[str]:
    yield "# The twin against real vLLM"
    yield ""
    day = datetime.now(UTC).date().isoformat()
    size = f"{len(twin_surface.SEQUENCES)} x {len(twin_surface.BUDGETS)}"
    yield f"Written by `python -m benchmarks.twin` on {day}, on two cores without a GPU."
    yield f"A surface of {size} settings takes {surface_s:.1f} s of one core: rates to 2%,"
    yield f"{twin_surface.REQUESTS} requests at each."
    yield ""
    yield f"Fitted to one ramp under {twin_real.CEILING}; misfit {study.fit.misfit:.2f}, condition"
    yield f"{study.fit.condition:.1e}. Shares of the prior's width that the stages leave:"
    yield ""
    yield "| coefficient | value | left |"
    yield "| --- | --- | --- |"
    for term in TERMS:
        yield f"| {term} | {getattr(study.fit.law, term):.3g} | {study.fit.told[term]:.2f} |"
    yield ""
    yield "Settings that the fit has not seen. P99s in ms, the reference with its own 90% interval:"
    yield ""
    yield "| setting | load | requests | P99 TPOT | twin | error | P99 TTFT | twin | error | |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in study.rows:
        yield _line(row)
    yield ""
    yield f"Discarded, since the controls around them differ by more than {twin_real.AGREEMENT:.0%}: "
    yield f"{len(study.discarded)} of {study.stages}."
    yield from (f"- {stage}" for stage in study.discarded)


def _line(row: Row) -> str:
    cells = (
        str(row.pair.setting),
        f"{row.pair.load:.0%}, {row.pair.rate:.1f}/s",
        f"{row.requests} in {row.kept_rounds}",
        f"{_ms(row.tpot_s.estimate)} ({_ms(row.tpot_s.lower)} to {_ms(row.tpot_s.upper)})",
        _ms(row.predicted_tpot_s),
        f"{row.tpot_error:+.0%}",
        f"{_ms(row.ttft_s.estimate)} ({_ms(row.ttft_s.lower)} to {_ms(row.ttft_s.upper)})",
        _ms(row.predicted_ttft_s),
        f"{row.ttft_error:+.0%}",
        _why(row),
    )
    return f"| {' | '.join(cells)} |"


def _why(row: Row) -> str:
    """What the numbers say of a row that misses a bar: noise of the reference, all steps, or the tail alone."""
    reasons = []
    for name, error, most, median_error, reference in (
        ("TPOT", row.tpot_error, MOST_TPOT_ERROR, row.median_tpot_error, row.tpot_s),
        ("TTFT", row.ttft_error, MOST_TTFT_ERROR, row.median_ttft_error, row.ttft_s),
    ):
        if abs(error) <= most:
            continue
        if reference.ratio > (1 + most) ** 2:
            reasons.append(f"{name}: the reference itself is known to {reference.ratio - 1:.0%} only")
        elif abs(median_error) > most / 2 and median_error * error > 0:
            reasons.append(
                f"{name}: the median is off too, by {median_error:+.0%}: the engine was not as fast as fitted"
            )
        else:
            reasons.append(f"{name}: the tail alone, the median is off by {median_error:+.0%}")
    return "; ".join(reasons)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


if __name__ == "__main__":
    sys.exit(main())
