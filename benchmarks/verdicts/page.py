"""What the benchmark found, as the page docs/results/verdicts.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.verdicts.conditions import (
    EASY_SHARE,
    FAILING,
    FAILING_IN_BURSTS,
    FAILING_STAGES,
    MAX_FALSE_PASS,
    MIN_POWER,
    MORE_FOR_WORST,
    ConditionResult,
    Summary,
)
from benchmarks.verdicts.margin import MARGINS, UTILISATION, MarginRow
from benchmarks.verdicts.stage import STAGE_REQUESTS
from benchmarks.verdicts.truth import TRUTH_REQUESTS
from kneekeeper.domain.certify import SAFETY


def cells(result: ConditionResult) -> tuple[str, ...]:
    """One row of the table of conditions."""
    return (
        result.engine,
        result.targets,
        result.traffic,
        f"{result.utilisation:.0%}",
        f"{result.false_pass:.1%}",
        f"{result.edge_fail:.1%}",
        f"{result.edge_misses:.2%}",
        f"{result.power:.1%}",
        f"{result.easy_misses:.2%}",
        f"{result.easy_median_requests:.0f}",
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def page(
    summary: Summary, results: Sequence[ConditionResult], margins: Sequence[MarginRow], margin_stages: int
) -> Iterator[str]:
    """The lines of docs/results/verdicts.md."""
    yield "# What a verdict is worth"
    yield ""
    yield "Written by `make bench-verdicts`."
    yield ""
    yield (
        f"Certification stages of at most {STAGE_REQUESTS:,} requests on simulated engines, judged by the code of "
        "load agent and operator, which see what a client sees. R is the rate at which exactly 1% of "
        f"{TRUTH_REQUESTS:,} requests miss the targets; a claim about a rate is tried at {SAFETY} times that rate."
    )
    yield ""
    yield f"- Claims about R, which do not deserve it, passed in **{summary.false_pass:.1%}** of the stages of the"
    yield f"  worst condition, in {summary.false_pass_pooled:.1%} of all (95% upper bound"
    yield f"  {summary.false_pass_pooled_upper:.1%}). Allowed: {MAX_FALSE_PASS:.0%} in each."
    yield f"- Claims about {EASY_SHARE} R, which deserve it, passed in **{summary.power:.1%}** of the stages of the"
    yield f"  worst condition, in {summary.power_pooled:.1%} of all, after {summary.median_requests or 0:.0f} requests"
    yield f"  in the median. Wanted: {MIN_POWER:.0%} in each."
    yield f"- Of {FAILING_STAGES} stages on a fast server that fails {FAILING.share:.0%} of the requests,"
    yield f"  {summary.false_pass_failing:.1%} passed; of as many on one that fails {FAILING_IN_BURSTS.share:.1%},"
    yield f"  {FAILING_IN_BURSTS.burst:.0f} in a row in the mean, {summary.false_pass_failing_in_bursts:.1%}."
    yield ""
    yield (
        f"Each condition has {min(result.edge_stages for result in results)} stages at R and "
        f"{min(result.easy_stages for result in results)} at {EASY_SHARE} R, the worst have {MORE_FOR_WORST} times as "
        "many. The engines that are called held out were first tried when the rule was finished."
    )
    yield ""
    head = ["engine", "targets", "arrivals", "R / saturation", "PASS at R", "FAIL at R", f"true misses at {SAFETY} R"]
    head += [f"PASS at {EASY_SHARE} R", f"true misses at {SAFETY * EASY_SHARE:.2f} R", "median requests"]
    yield from _table(head, [cells(result) for result in results])
    yield ""
    yield ("Bursty arrivals are Gamma with a coefficient of variation of 2.")
    if not margins:
        return
    yield ""
    yield "## The margin between offered and promised rate"
    yield ""
    yield (
        f"P99 TTFT just meets its target at R, {UTILISATION:.0%} of saturation, as production will be; the stage runs "
        f"before the change and offers R times the margin. Shares of PASS, all of them wrong, of {margin_stages} "
        "stages a cell; the last column is the least margin from which on at most 5% pass."
    )
    yield ""
    rows = [
        (row.engine, row.change, *(f"{share:.0%}" for share in row.passed), f"{row.least}" if row.least else "more")
        for row in margins
    ]
    yield from _table(("engine", "change", *(f"{margin:.1f}" for margin in MARGINS), "needed"), rows)
    yield ""
    enough = [f"{row.change} ({row.engine})" for row in margins if row.least is not None and row.least <= SAFETY]
    more = [f"{row.change} ({row.engine})" for row in margins if row.least is None or row.least > SAFETY]
    yield f"- {SAFETY} is enough for: {'; '.join(enough) or 'none of these'}."
    yield f"- It is not enough for: {'; '.join(more) or 'none of these'}."
    yield ""
    yield (
        "A machine that becomes slower by a share has a boundary that is lower by that share, so it uses up that much "
        "of the margin; what is left must cover the stage's own blindness for queues that have not built up yet. "
        f"The promise of a rate at offered / {SAFETY} therefore holds for a machine and arrivals as they were during "
        "the certification. Who expects them to become worse leaves that much more room; what does change is for the "
        "watch on production to find."
    )
