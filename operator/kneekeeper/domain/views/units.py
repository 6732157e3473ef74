"""Numbers and times as they are shown: four significant digits, milliseconds for latencies, RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime


def four_digits(value: float) -> float:
    """To four significant digits, as in the resources."""
    return float(f"{value:.4g}")


def rounded(value: float | None) -> float | None:
    """The same; None stays None."""
    return None if value is None else four_digits(value)


def milliseconds(seconds: float | None) -> float | None:
    """To four significant digits."""
    return None if seconds is None else four_digits(1e3 * seconds)


def iso(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, whole seconds."""
    return None if moment is None else moment.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
