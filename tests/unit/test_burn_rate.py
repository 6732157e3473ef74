"""A breach is told only where a long and a short window agree, and both were really seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.domain.burn_rate import RULES, WINDOWS_S, burning
from kneekeeper.domain.observation import ViolationShare


def shares(**by_window: float) -> dict[float, ViolationShare]:
    values = {w: by_window.get(f"s{w:.0f}", 0.0) for w in WINDOWS_S}
    return {w: ViolationShare(share, 1.0, 500, window_s=w) for w, share in values.items()}


def test_a_short_burst_alone_is_no_breach():
    assert burning(shares(s300=1.0, s1800=0.05, s3600=0.1)) is None


def test_a_breach_that_is_over_is_no_breach():
    assert burning(shares(s300=0.0, s1800=0.0, s3600=0.5, s21600=0.2)) is None


@pytest.mark.parametrize(("windows", "rule"), [({"s300": 0.2, "s3600": 0.2}, 0), ({"s1800": 0.1, "s21600": 0.1}, 1)])
def test_both_windows_of_a_rule_make_a_breach(windows: dict[str, float], rule: int):
    assert burning(shares(**windows)) == RULES[rule]


@pytest.mark.parametrize("change", [{"window_s": 1000.0}, {"requests": 20}, {"lower": 0.0}])
def test_a_window_that_was_hardly_seen_proves_nothing(change: dict[str, float]):
    seen = shares(s300=0.2, s3600=0.2)
    seen[3600.0] = replace(seen[3600.0], **change)  # type: ignore[arg-type]
    if "requests" in change:
        assert seen[3600.0].requests == 20
    assert burning(seen) is None


def test_what_is_not_known_is_no_breach():
    assert burning({}) is None
