"""Entries of a schedule come into force and go by the wall clock of their time zone, also where that clock jumps."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.api.serving_profile import Schedule, ServingProfileSpec
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.schedules import in_force, spec_in_force, specs_asked
from tests.unit.plan.circumstances import PROFILE_SPEC

LONG_PROMPTS: dict[str, Any] = {
    "promptTokens": {"distribution": "Fixed", "value": 4000},
    "outputTokens": {"distribution": "Fixed", "value": 20},
}
BOUNDS: dict[str, Any] = {"maxNumSeqs": {"max": 8}}


def entry(cron: str, hours: float, zone: str = "UTC", **content: Any) -> Schedule:
    what = content or {"workload": LONG_PROMPTS}
    return Schedule.model_validate({"cron": cron, "timeZone": zone, "duration": f"{hours * 60:g}m", **what})


def profile(*schedules: Schedule) -> ServingProfileSpec:
    return ServingProfileSpec.model_validate(PROFILE_SPEC).with_changes(schedules=list(schedules))


OFFICE = entry("0 8 * * 1-5", 10, "Europe/Berlin")
NIGHT = entry("0 20 * * *", 12, "America/New_York")


def minutes_in_force(schedules: list[Schedule], start: datetime, days: int) -> Counter[int | None]:
    """How many minutes each entry holds, counted in quarters of an hour."""
    moments = (start + timedelta(minutes=15 * quarter) for quarter in range(days * 24 * 4))
    held = Counter(in_force(schedules, moment).entry for moment in moments)
    return Counter({entry: 15 * quarters for entry, quarters in held.items()})


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-01-14T06:59:59", None),
        ("2026-01-14T07:00:00", 0),  # 8:00 in Berlin in winter
        ("2026-01-14T16:59:59", 0),
        ("2026-01-14T17:00:00", None),
        ("2026-07-15T05:59:59", None),
        ("2026-07-15T06:00:00", 0),  # 8:00 in summer
        ("2026-01-17T12:00:00", None),  # a Saturday
    ],
)
def test_an_entry_holds_from_its_hour_for_its_duration(moment: str, holds: int | None):
    assert in_force([OFFICE], datetime.fromisoformat(f"{moment}+00:00")).entry == holds


def test_of_entries_in_force_the_first_in_the_list_counts():
    lunch = entry("0 12 * * *", 1, "Europe/Berlin")
    noon = datetime(2026, 1, 14, 11, 30, tzinfo=UTC)
    assert in_force([lunch, OFFICE], noon).entry == 0
    assert in_force([OFFICE, lunch], noon).entry == 0
    assert in_force([OFFICE, lunch], noon + timedelta(days=3)).entry == 1


def test_a_week_has_five_office_days():
    held = minutes_in_force([OFFICE], datetime(2026, 1, 12, tzinfo=UTC), days=7)
    assert held == {0: 5 * 10 * 60, None: (7 * 24 - 50) * 60}


@pytest.mark.parametrize("start", [datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)])
def test_a_night_lasts_as_long_as_declared_where_the_clock_jumps(start: datetime):
    held = minutes_in_force([NIGHT], start + timedelta(hours=18), days=2)  # both nights, whole
    assert held[0] == 2 * 12 * 60


@pytest.mark.parametrize(
    ("jump", "hour"),
    [(datetime(2026, 3, 29, tzinfo=UTC), "30 2 * * *"), (datetime(2026, 10, 25, tzinfo=UTC), "30 2 * * *")],
)
def test_an_hour_that_is_skipped_or_comes_twice_holds_once(jump: datetime, hour: str):
    held = minutes_in_force([entry(hour, 1, "Europe/Berlin")], jump, days=1)
    assert held[0] == 60


@given(
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 1), timezones=st.just(UTC)),
    hours=st.sampled_from([0.5, 6, 24, 30]),
)
@settings(max_examples=30, deadline=None)
def test_nothing_changes_before_the_next_change_that_is_told(start: datetime, hours: float):
    schedules = [entry("15 3 * * 0", hours, "Europe/Berlin"), OFFICE, NIGHT]
    now = in_force(schedules, start)
    assert start < now.until
    for share in (0.25, 0.999):
        assert in_force(schedules, start + share * (now.until - start)).entry == now.entry


def test_every_change_of_a_year_is_met_by_looking_when_told():
    moment, end, seen = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), []
    while moment < end:
        now = in_force([OFFICE], moment)
        seen.append(now.entry)
        moment = now.until
    assert seen.count(0) == 261  # its working days
    assert all(one != other for one, other in pairwise(seen))


def test_an_entry_replaces_what_it_declares_and_nothing_else():
    spec = profile(entry("0 1 * * *", 1), entry("0 2 * * *", 1, parameters=BOUNDS))
    traffic, bounds = spec_in_force(spec, 0), spec_in_force(spec, 1)
    assert traffic is not None
    assert bounds is not None
    assert (traffic.workload, traffic.parameters) == (spec.schedules[0].workload, spec.parameters)
    assert (bounds.workload, bounds.parameters) == (spec.workload, spec.schedules[1].parameters)
    assert traffic.slo == bounds.slo == spec.slo
    assert spec_in_force(spec, 2) is None
    assert specs_asked(spec) == [spec_in_force(spec, each) for each in (None, 0, 1)]


@pytest.mark.parametrize(
    ("broken", "reason", "told"),
    [
        (entry("0 25 * * *", 1), "InvalidSchedule", "spec.schedules[1]: schedule '0 25 * * *'"),
        (entry("0 3 30 2 *", 1), "InvalidSchedule", "Bad day-of-month"),
        (entry("0 3 * * *", 1, "Mars/Olympus"), "InvalidSchedule", "timeZone 'Mars/Olympus'"),
        (entry("0 3 * * *", 1, workload=None), "InvalidSchedule", "it changes nothing"),
        (
            entry("0 3 * * *", 1, workload={"promptTokens": {"distribution": "Fixed", "value": 1}}),
            "InvalidWorkload",
            "With spec.schedules[1]: spec.workload needs promptTokens and outputTokens",
        ),
    ],
)
def test_a_broken_entry_is_named(broken: Schedule, reason: str, told: str):
    problem = spec_problem(profile(OFFICE, broken))
    assert problem is not None
    assert problem.reason == reason
    assert told in problem.message


def test_good_entries_are_accepted():
    assert spec_problem(profile(OFFICE, NIGHT, entry("0 2 * * *", 1, parameters=BOUNDS))) is None
