"""The knee that production alone tells, on engines whose step times are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kneekeeper.domain.passive import KneePrior, NotObserved, passive_knee
from kneekeeper.domain.passive.knee import WIDEST_INTERVAL, Bound
from kneekeeper.domain.passive.levels import cloud_of
from tests.unit.history_builders import day, history

KNEE = 80.0
"""Four times base over slope of the builders' engine."""


def test_traffic_that_comes_near_tells_the_knee_with_a_narrow_interval():
    answer = passive_knee(history(day(5, 70)))
    assert answer.knee is not None
    assert answer.knee.lower < KNEE < answer.knee.upper
    assert answer.knee.estimate == pytest.approx(KNEE, rel=0.1)
    assert answer.knee.ratio <= WIDEST_INTERVAL
    assert answer.not_observed is None


def test_traffic_that_never_comes_near_gives_a_lower_bound_and_no_knee():
    answer = passive_knee(history(day(3, 25)))
    assert (answer.knee, answer.not_observed) == (None, NotObserved.TRAFFIC_TOO_LOW)
    assert 20 < answer.at_least <= KNEE


def test_steps_that_take_no_longer_with_more_requests_have_no_knee():
    answer = passive_knee(history(day(5, 70), slope_s=0.0))
    assert answer.knee is None
    assert answer.at_least == pytest.approx(70, rel=0.05)


@pytest.mark.parametrize(
    ("loads", "reason"),
    [(day(5, 70, windows=8), NotObserved.TOO_LITTLE_HISTORY), (np.full(288, 33.0), NotObserved.TOO_FEW_LOADS)],
)
def test_history_that_tells_no_growth_says_why(loads, reason):
    assert passive_knee(history(loads)).not_observed == reason


def test_a_run_narrows_the_interval_of_a_knee_that_traffic_nearly_reached():
    seen = history(day(5, 60), noise=0.05)
    alone, known = passive_knee(seen), passive_knee(seen, KneePrior(KNEE))
    assert known.knee is not None
    assert alone.knee is None or known.knee.ratio < alone.knee.ratio


def test_a_run_that_production_contradicts_is_not_believed():
    seen = history(day(5, 70))
    assert passive_knee(seen, KneePrior(6 * KNEE)) == passive_knee(seen)


def test_a_run_alone_makes_no_knee_of_traffic_that_is_far_below():
    assert passive_knee(history(day(3, 25)), KneePrior(KNEE)).knee is None


def test_a_cache_that_fills_before_computing_is_used_up_is_the_knee():
    answer = passive_knee(history(day(5, 38), kv_share=1 / 40))
    assert answer.knee is not None
    assert answer.bound is Bound.KV_CACHE
    assert answer.knee.estimate == pytest.approx(38, rel=0.1)


def test_windows_with_preemptions_or_hardly_a_token_do_not_count():
    seen = history(day(5, 70))
    odd = np.arange(len(seen)) % 3 == 0
    spoilt = replace(
        seen,
        decoding=np.where(odd, 3 * seen.decoding, seen.decoding),
        preemptions_per_s=np.where(odd, 0.1, 0.0),
    )
    assert passive_knee(spoilt).knee == passive_knee(seen.at(~odd)).knee
    quiet = replace(seen, gaps_per_s=np.where(odd, 1e-3, seen.gaps_per_s))
    assert cloud_of(quiet).running.size == np.sum(~odd)


def test_missing_windows_do_not_matter():
    seen = history(day(5, 70))
    holes = np.arange(len(seen)) % 7 == 0
    decoding, gaps_per_s = (np.where(holes, np.nan, each) for each in (seen.decoding, seen.gaps_per_s))
    answer = passive_knee(replace(seen, decoding=decoding, gaps_per_s=gaps_per_s))
    assert answer.knee is not None
    assert answer.knee.estimate == pytest.approx(KNEE, rel=0.1)


def test_tokens_meet_more_requests_than_run_on_average():
    """A batch of 10 or 90, half of the time each: steps of 30 and 110 ms; tokens meet mostly the full one."""
    busy, quiet = 90.0, 10.0
    tokens = busy / 0.11 + quiet / 0.03
    met = (busy**2 / 0.11 + quiet**2 / 0.03) / tokens
    seen = history(day(5, 70), noise=0.0)
    at = np.arange(len(seen)) == 144
    mixed = replace(
        seen,
        decoding=np.where(at, 50.0, seen.decoding),
        running=np.where(at, 50.0, seen.running),
        running_sd=np.where(at, 40.0, 0.0),
        gaps_per_s=np.where(at, tokens / 2, seen.gaps_per_s),
    )
    assert cloud_of(mixed).running[144] == pytest.approx(met, rel=0.15)
    assert cloud_of(mixed).running[144] > 55


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    base_s=st.floats(0.005, 0.1),
    knee=st.floats(8, 400),
    reach=st.floats(0.75, 1.5),
    seed=st.integers(0, 10_000),
)
def test_whatever_the_engine_the_interval_of_a_line_holds_its_knee(base_s, knee, reach, seed):
    seen = history(day(knee * reach / 12, knee * reach), base_s, 4 * base_s / knee, seed=seed, noise=0.03)
    answer = passive_knee(seen)
    assert answer.knee is not None
    assert answer.knee.lower < knee < answer.knee.upper
