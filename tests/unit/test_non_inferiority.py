"""The comparison before and after a rollout: seldom wrong however often one looks, and honest where it cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.non_inferiority import ALPHA, Comparison, Misses, compare, confidence_sequence


def misses(share: float, requests: int = 20_000, load: float | None = None) -> Misses:
    return Misses(share, share, requests, load)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (misses(0.01), misses(0.10), Comparison.WORSE),
        (misses(0.10), misses(0.01), Comparison.NOT_WORSE),
        (misses(0.005, 200_000), misses(0.005, 200_000), Comparison.NOT_WORSE),
        (misses(0.01, 1000), misses(0.01, 1000), Comparison.UNDECIDED),
        (misses(0.0, 50), misses(1.0, 50), Comparison.UNDECIDED),
        (Misses(0.0, 0.5, 20_000), Misses(0.1, 0.9, 20_000), Comparison.UNDECIDED),
        (Misses(0.0, 0.05, 20_000), Misses(0.2, 0.9, 20_000), Comparison.WORSE),
    ],
)
def test_verdicts(before: Misses, after: Misses, verdict: Comparison):
    assert compare(before, after) == verdict


def test_more_misses_under_more_load_prove_nothing():
    assert compare(misses(0.01, load=1.0), misses(0.10, load=1.2)) == Comparison.WORSE
    assert compare(misses(0.01, load=1.0), misses(0.10, load=2.0)) == Comparison.UNDECIDED


def test_fewer_misses_under_less_load_prove_nothing():
    assert compare(misses(0.10, load=1.0), misses(0.01, load=0.5)) == Comparison.UNDECIDED


@given(st.floats(0, 1), st.integers(1, 100_000))
def test_the_sequence_holds_what_was_seen(share: float, requests: int):
    lowest, highest = confidence_sequence(share, requests)
    assert 0 <= lowest <= share + 1e-9
    assert share - 1e-9 <= highest <= 1


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_looking_after_every_tenth_request_excludes_the_truth_seldom(share: float):
    rng, wrong, runs = np.random.default_rng(7), 0, 200
    for _ in range(runs):
        counts = np.cumsum(rng.random(1000) < share)[9::10]
        for looked, k in zip(range(10, 1001, 10), counts.tolist(), strict=True):
            lowest, highest = confidence_sequence(k / looked, looked)
            if not lowest <= share <= highest:
                wrong += 1
                break
    assert wrong / runs <= ALPHA + 0.02
