"""Runs as lists, and the end of one in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from kneekeeper.api.quantities import format_duration
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.cli.show.listing import (
    BAD,
    GOOD,
    NOTICE,
    Column,
    Detail,
    Namespaces,
    fact_lines,
    limits,
    listing,
    number,
)
from kneekeeper.cli.show.status import knee
from kneekeeper.domain.views.run import RunView
from kneekeeper.domain.views.runs import RunRow

GOOD_OUTCOMES = (RunOutcome.CERTIFIED.value, RunOutcome.PREDICTED.value, RunOutcome.NO_IMPROVEMENT.value)
"""Ends of runs that answered their question well."""


def outcome_style(outcome: str) -> str:
    """Of a run that may go on yet."""
    return NOTICE if not outcome else GOOD if outcome in GOOD_OUTCOMES else BAD


def _state(row: RunRow) -> str:
    if row.outcome:
        return row.outcome
    return f"{row.step} ({row.waiting_for or row.stage})" if row.waiting_for or row.stage else row.step


_NAMESPACE = Column[RunRow]("NAMESPACE", lambda row: row.namespace)
_COLUMNS = (
    Column[RunRow]("NAME", lambda row: row.name),
    Column[RunRow]("PROFILE", lambda row: row.profile),
    Column[RunRow]("TRIGGER", lambda row: row.trigger),
    Column[RunRow]("STATE", _state, lambda row: outcome_style(row.outcome)),
    Column[RunRow]("LIMITS", lambda row: limits(row.limits)),
    Column[RunRow]("PROMISED", lambda row: number(row.promised_requests_per_second, "/s")),
    Column[RunRow]("KNEE", lambda row: number(row.knee.concurrency if row.knee else None)),
    Column[RunRow]("STARTED", lambda row: row.started_at or ""),
    Column[RunRow]("TOOK", lambda row: "" if row.duration_s is None else format_duration(row.duration_s)),
)
_WIDE = (
    Column[RunRow]("GAIN", lambda row: "" if row.improvement_percent is None else f"{row.improvement_percent}%"),
    Column[RunRow]("STARTS", lambda row: str(row.engine_starts)),
    Column[RunRow]("GPU-SECONDS", lambda row: str(row.gpu_seconds)),
    Column[RunRow]("CAUSE", lambda row: row.cause),
)


def run_lines(rows: Sequence[RunRow], namespaces: Namespaces, detail: Detail) -> list[Text]:
    """One line a run."""
    columns = (
        *((_NAMESPACE,) if namespaces is Namespaces.ALL else ()),
        *_COLUMNS,
        *(_WIDE if detail is Detail.WIDE else ()),
    )
    return listing(columns, rows)


def run_summary(view: RunView) -> Iterator[Text]:
    """What stands above the table of a run's stages, and below it what came of them."""
    state = view.outcome or view.step
    yield Text.assemble(
        (f"{view.name} of {view.profile}: ", "bold"), (state, outcome_style(view.outcome or ""))
    ).append(f". {view.message}" if view.message else "")
    facts = [
        ("trigger", view.trigger),
        ("started", view.started_at or "not yet"),
        ("finished", view.finished_at or "not yet"),
        (
            "cost",
            f"{view.engine_starts} engine starts, {view.gpu_seconds} GPU seconds, {view.measure_seconds} s of load",
        ),
        ("limits were", limits(view.present)),
    ]
    if view.fit is not None:
        facts.append(("knee", knee(view.fit.knee) if view.fit.knee else f"none: {view.fit.message}"))
    facts += [
        (
            "proposed",
            f"{limits(each.limits)}, {number(each.sustainable_requests_per_second)} requests/s, bound by "
            f"{each.bound_by}",
        )
        for each in view.choices
    ]
    facts += [
        (
            "certified",
            f"{each.verdict}: {limits(each.limits)} at {number(each.offered_requests_per_second)} requests/s, "
            f"{each.misses} of {each.requests} missed",
        )
        for each in view.certifications
    ]
    facts += [("did not start", f"{limits(each.limits)}: {each.message}") for each in view.failures]
    yield from fact_lines(facts, 14)
