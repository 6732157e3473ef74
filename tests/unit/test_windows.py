"""Windows open and close by the wall clock of their time zone, also where that clock jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kneekeeper.api.probe import Window
from kneekeeper.domain.windows import closes_at, is_open, opens_after

BERLIN = Window(schedule="0 3 * * *", time_zone="Europe/Berlin", duration=7200)


@pytest.mark.parametrize(
    ("moment", "open_then"),
    [("01:59", False), ("02:00", True), ("03:59", True), ("04:00", False), ("12:00", False)],
)
def test_a_window_is_open_from_its_start_for_its_duration(moment: str, open_then: bool):
    now = datetime.fromisoformat(f"2026-01-15T{moment}:00+00:00")
    assert is_open(BERLIN, now) is open_then


def test_a_window_follows_summer_time():
    assert is_open(BERLIN, datetime(2026, 7, 15, 1, 30, tzinfo=UTC))
    assert not is_open(BERLIN, datetime(2026, 1, 15, 1, 30, tzinfo=UTC))


def test_every_night_of_a_year_has_its_window():
    moment, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    opened = 0
    while (moment := opens_after(BERLIN, moment)) < end:
        opened += 1
        assert is_open(BERLIN, moment + timedelta(minutes=90))
    assert opened == 365


def test_a_window_closes_its_duration_after_it_opened():
    nightly = Window(schedule="0 3 * * *", duration=7200.0)
    assert closes_at(nightly, datetime(2026, 1, 1, 3, 0, tzinfo=UTC)) == datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert closes_at(nightly, datetime(2026, 1, 1, 4, 59, tzinfo=UTC)) == datetime(2026, 1, 1, 5, tzinfo=UTC)


def test_a_window_that_opens_again_before_it_closes_goes_on_from_there():
    hourly = Window(schedule="0 * * * *", duration=5400.0)
    assert closes_at(hourly, datetime(2026, 1, 1, 3, 20, tzinfo=UTC)) == datetime(2026, 1, 1, 4, 30, tzinfo=UTC)


def test_a_window_in_another_time_zone_closes_by_the_clock_there():
    berlin = Window(schedule="0 3 * * *", time_zone="Europe/Berlin", duration=7200.0)
    assert closes_at(berlin, datetime(2026, 7, 1, 2, 0, tzinfo=UTC)) == datetime(2026, 7, 1, 3, tzinfo=UTC)
