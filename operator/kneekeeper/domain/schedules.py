"""Which entry of `spec.schedules` is in force, and the profile that it makes of its own.

An entry is in force from each time its cron tells for its duration, in elapsed time: it neither grows nor shrinks
where the clock of its time zone jumps. Of several that are in force the first in the list counts; where none is, the
profile's own workload and bounds do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kneekeeper.api.probe import Window
from kneekeeper.api.serving_profile import Schedule, ServingProfileSpec
from kneekeeper.domain.windows import is_open, opens_after, window_problem


@dataclass(frozen=True)
class InForce:
    """`entry` counts from 0; None for the profile's own workload and bounds. Nothing changes before `until`."""

    entry: int | None
    until: datetime


def schedule_problem(schedule: Schedule) -> str | None:
    """What is wrong with an entry's times, or that it changes nothing; None where all is well."""
    if schedule.workload is None and schedule.parameters is None:
        return "it changes nothing: give it a workload or parameters"
    return window_problem(_window(schedule))


def in_force(schedules: list[Schedule], now: datetime) -> InForce:
    """The entry in force at `now`. Raises ValueError for no entries, and where `schedule_problem` tells of one."""
    windows = [_window(schedule) for schedule in schedules]
    entry = next((index for index, window in enumerate(windows) if is_open(window, now)), None)
    return InForce(entry, min(_changes_after(window, now) for window in windows))


def spec_in_force(spec: ServingProfileSpec, entry: int | None) -> ServingProfileSpec | None:
    """What is asked in the hours of an entry; None where the profile has no such entry."""
    if entry is None:
        return spec.with_changes(schedules=[]) if spec.schedules else spec
    if entry >= len(spec.schedules):
        return None
    schedule = spec.schedules[entry]
    return spec.with_changes(
        workload=schedule.workload or spec.workload,
        parameters=schedule.parameters or spec.parameters,
        schedules=[],
    )


def specs_asked(spec: ServingProfileSpec) -> list[ServingProfileSpec]:
    """What is asked at any hour: the profile's own first, then each entry's."""
    entries: list[int | None] = [None, *range(len(spec.schedules))]
    return [asked for entry in entries if (asked := spec_in_force(spec, entry)) is not None]


def _window(schedule: Schedule) -> Window:
    return Window(schedule=schedule.cron, time_zone=schedule.time_zone, duration=schedule.duration)


def _changes_after(window: Window, now: datetime) -> datetime:
    """When the window opens or closes next; where it opens anew before it closes, when the first would have."""
    duration = timedelta(seconds=window.duration)
    closes = opens_after(window, now - duration) + duration
    return min(closes, opens_after(window, now))
