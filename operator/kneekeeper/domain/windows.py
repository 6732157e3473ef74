"""Recurring windows of time, as cron tells when they open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from kneekeeper.api.probe import Window

_ANY_DAY = datetime(2026, 1, 1)


def window_problem(window: Window) -> str | None:
    """What is wrong with its time zone or schedule, or None."""
    try:
        zone = ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return f"timeZone {window.time_zone!r} is not in the IANA database; for example Europe/Berlin"
    try:
        if next(CronSim(window.schedule, _ANY_DAY.replace(tzinfo=zone)), None) is None:
            return f"schedule {window.schedule!r} names no date that exists"
    except CronSimError as error:
        return f"schedule {window.schedule!r}: {error}; for example 0 3 * * *"
    return None


def is_open(window: Window, now: datetime) -> bool:
    """Whether `now` lies in the window: it opened at most its duration ago. Raises as `opens_after`."""
    return opens_after(window, now - timedelta(seconds=window.duration)) <= now


def closes_at(window: Window, moment: datetime) -> datetime:
    """When a window that is open at `moment` closes: the one that opened last. Raises as `opens_after`."""
    duration = timedelta(seconds=window.duration)
    opened = opens_after(window, moment - duration)
    while (following := opens_after(window, opened)) <= moment:
        opened = following
    return opened + duration


def opens_after(window: Window, moment: datetime) -> datetime:
    """When it opens next, after `moment`, in UTC.

    Raises ValueError where it never does (30 February) or where `window_problem` tells of one.
    """
    try:
        local = moment.astimezone(ZoneInfo(window.time_zone))
        # In an hour that comes twice, CronSim also tells times of the first.
        return next(opens for each in CronSim(window.schedule, local) if (opens := each.astimezone(UTC)) > moment)
    except (StopIteration, CronSimError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"the window {window.schedule!r} in {window.time_zone} never opens") from error
