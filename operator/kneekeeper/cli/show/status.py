"""Profiles as lists, and one profile as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from kneekeeper.api.profile_status import RecommendationConfidence
from kneekeeper.api.quantities import counted
from kneekeeper.cli.show.listing import (
    BAD,
    FAINT,
    GOOD,
    NOTICE,
    Column,
    Detail,
    Namespaces,
    fact_lines,
    limits,
    listing,
    milliseconds,
    number,
)
from kneekeeper.cli.show.production import headroom_style, percent, replica_lines, scale_text, traffic_facts
from kneekeeper.domain.views.fleet import BELOW_THE_KNEE, FleetRow, Knee, Targets
from kneekeeper.domain.views.profile import Level, ProfileView


def _state(row: FleetRow) -> str:
    if row.suspended:
        return "Suspended"
    return (row.stage if row.active_run else row.reason) or "Unseen"


def _state_style(row: FleetRow) -> str:
    if row.suspended:
        return FAINT
    if row.active_run:
        return NOTICE
    return GOOD if row.reason == BELOW_THE_KNEE else BAD if row.ready == "False" else NOTICE


_NAMESPACE = Column[FleetRow]("NAMESPACE", lambda row: row.namespace)
_COLUMNS = (
    Column[FleetRow]("NAME", lambda row: row.name),
    Column[FleetRow]("TARGET", lambda row: row.target),
    Column[FleetRow]("STATE", _state, _state_style),
    Column[FleetRow]("LIMITS", lambda row: limits(row.in_force)),
    Column[FleetRow]("RECOMMENDED", lambda row: limits(row.recommended)),
    Column[FleetRow]("CAPACITY", lambda row: number(row.capacity_requests_per_second, "/s")),
    Column[FleetRow](
        "HEADROOM", lambda row: percent(row.headroom_percent), lambda row: headroom_style(row.headroom_percent)
    ),
)
_WIDE = (
    Column[FleetRow]("REPLICAS", lambda row: number(row.replicas)),
    Column[FleetRow]("KNEE", lambda row: number(row.knee.concurrency if row.knee else None)),
    Column[FleetRow]("BOUND", lambda row: row.bound_by or ""),
    Column[FleetRow]("SLO", lambda row: targets(row.slo)),
    Column[FleetRow]("MODE", lambda row: row.mode),
    Column[FleetRow]("RUN", lambda row: row.active_run or ""),
    Column[FleetRow]("MODEL", lambda row: row.model),
    Column[FleetRow]("GPU", lambda row: row.gpu_product),
)


def fleet_lines(rows: Sequence[FleetRow], namespaces: Namespaces, detail: Detail) -> list[Text]:
    """One line a profile."""
    return listing((*((_NAMESPACE,) if namespaces is Namespaces.ALL else ()), *fleet_columns(detail)), rows)


def fleet_columns(detail: Detail) -> tuple[Column[FleetRow], ...]:
    """What is told of a profile, but for its namespace."""
    return (*_COLUMNS, *(_WIDE if detail is Detail.WIDE else ()))


def targets(slo: Targets) -> str:
    """`TTFT 500ms, TPOT 40ms`: the P99s that were promised, and the share that must not fail."""
    named = (("TTFT", slo.p99_ttft_ms), ("TPOT", slo.p99_tpot_ms), ("E2E", slo.p99_e2e_ms))
    told = [f"{name} {milliseconds(value)}" for name, value in named if value is not None]
    if slo.availability_percent is not None:
        told.append(f"availability {slo.availability_percent}%")
    return ", ".join(told)


def knee(given: Knee | None) -> str:
    """With its interval."""
    if given is None:
        return "not found yet"
    return f"{number(given.concurrency)} requests in flight ({number(given.lower)} to {number(given.upper)})"


def profile_lines(view: ProfileView, detail: Detail, now: datetime) -> Iterator[Text]:
    """The profile against its knee, what needs attention, and what to do next."""
    row = view.row
    title = Text.assemble((f"{row.name} in {row.namespace}: ", "bold"), (_state(row), _state_style(row)))
    yield title.append(f". {row.message}" if row.message else "")
    yield Text()
    yield from fact_lines(_facts(view, detail, now), 13)
    if view.replicas:
        yield Text()
        yield from replica_lines(view.replicas, detail)
    noticed = [each for each in view.conditions if each.level is not Level.FINE]
    if noticed:
        yield Text()
        for each in noticed:
            style = BAD if each.level is Level.PROBLEM else NOTICE
            yield Text.assemble((f"{each.type} is {each.status}: {each.reason}. ", style), each.message)
    steps = list(_next_steps(view))
    if steps:
        yield Text()
        yield from steps


def _facts(view: ProfileView, detail: Detail, now: datetime) -> Iterator[tuple[str, str]]:
    row, recommendation = view.row, view.recommendation
    certified = recommendation is not None and recommendation.confidence == RecommendationConfidence.CERTIFIED
    where = f" on {row.gpu_product}" if row.gpu_product else ""
    engine = f", {row.model}{where}, {counted(row.replicas or 0, 'replica')}" if row.model else ""
    yield "target", f"{row.target}{engine}"
    yield "promised", targets(row.slo) or "nothing but throughput"
    before = view.certified_for
    for_others = f", certified for P99 {targets(before)}, the targets of before" if before is not None else ""
    yield "limits", f"{limits(row.in_force)}{for_others}"
    if recommendation is not None:
        same = recommendation.limits == row.in_force
        what = "as they are" if same else f"{limits(recommendation.limits)}: {recommendation.improvement}"
        yield "recommended" if certified else "predicted", what
        yield "bound by", recommendation.bound_by
        if recommendation.promised_output_tokens_per_second is not None:
            yield "throughput", f"{number(recommendation.promised_output_tokens_per_second)} output tokens/s a replica"
    promised = ", promised" if certified else ""
    yield "capacity", f"{number(row.capacity_requests_per_second, ' requests/s a replica')}{promised}"
    if view.scale is not None:
        yield "in all", scale_text(view.scale, detail)
    yield "knee", knee(row.knee)
    if view.traffic is not None:
        yield from traffic_facts(view.traffic, detail, now)
    yield "mode", row.mode + (", suspended" if row.suspended else "")
    if row.active_run:
        yield "run", f"{row.active_run}: {row.stage}"


def _next_steps(view: ProfileView) -> Iterator[Text]:
    where = f"{view.row.name} -n {view.row.namespace}"
    recommendation = view.recommendation
    if view.findings:
        yield _step(counted(len(view.findings), "finding"), f"kneekeeper explain {where}")
    if recommendation is not None and recommendation.limits != view.row.in_force and view.rollout_step is None:
        yield _step("what would change", f"kneekeeper diff {where}")
        if recommendation.confidence == RecommendationConfidence.CERTIFIED:
            yield _step("to make it so", f"kneekeeper approve {where}")
    if view.run is not None and view.run.fit is not None:
        yield _step("the measurement", f"kneekeeper curve {where}")


def _step(what: str, command: str) -> Text:
    return Text.assemble("  ", (f"{what}: ", FAINT), command)
