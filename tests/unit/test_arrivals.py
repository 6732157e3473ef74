from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kneekeeper.api.offered_load import Closed, Open, Replay
from kneekeeper.domain.arrivals import (
    START_SPREAD_S,
    draw_arrivals,
    draw_starts,
    draw_think_times,
    gap_variation,
    replay,
)

TIMES = st.lists(st.floats(0, 1e4), min_size=2, max_size=60).map(lambda gaps: np.cumsum(gaps) - gaps[0])


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5), (None, 0.0)])
def test_gaps_have_the_declared_rate_and_variation(burstiness, variation):
    arrivals = Open(rate=20, burstiness=burstiness)
    gaps = np.diff(draw_arrivals(arrivals, 100_000, np.random.default_rng(0)))
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.001)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, abs=0.05)
    assert gap_variation(arrivals) == pytest.approx(variation**2)


@given(st.floats(0.01, 10_000), st.one_of(st.none(), st.floats(0.05, 20)), st.integers(1, 300), st.integers(0, 2**32))
def test_an_open_loop_ascends_and_offers_exactly_its_rate(rate, burstiness, count, seed):
    times = draw_arrivals(Open(rate=rate, burstiness=burstiness), count, np.random.default_rng(seed))
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert count / times[-1] == pytest.approx(rate)
    assert np.array_equal(
        times, draw_arrivals(Open(rate=rate, burstiness=burstiness), count, np.random.default_rng(seed))
    )


@given(TIMES, st.floats(0.01, 1000))
def test_a_rescaled_trace_has_exactly_the_rate_and_keeps_its_burstiness(at_s, rate):
    times = replay(Replay(rate=rate), at_s)
    if at_s[-1] == 0:
        assert not times.any()
        return
    assert (times.size - 1) / times[-1] == pytest.approx(rate)
    before, after = np.diff(at_s), np.diff(times)
    assert np.allclose(after / after.mean(), before / before.mean(), atol=1e-6)


@given(TIMES, st.floats(0.1, 100))
def test_a_trace_in_real_time_is_only_as_much_faster_as_it_is_told(at_s, speed):
    assert np.allclose(speed * replay(Replay(speed=speed), at_s), at_s)


def test_the_variation_of_a_replay_is_that_of_its_times():
    times = np.cumsum(np.random.default_rng(3).gamma(0.25, 4, 50_000))
    assert gap_variation(Replay(rate=1), times) == pytest.approx(4, rel=0.05)
    assert gap_variation(Closed(users=4)) == 0


@pytest.mark.parametrize("given", [{}, {"rate": 1, "speed": 1}])
def test_a_replay_has_either_a_rate_or_a_speed(given):
    with pytest.raises(ValidationError, match="exactly one of rate and speed"):
        Replay(**given)


def test_think_times_have_the_declared_mean_and_are_none_where_none_is_declared():
    drawn = draw_think_times(Closed(users=4, think_time_s=3), 50_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(3, rel=0.02)
    assert drawn.std() == pytest.approx(3, rel=0.02)
    assert not draw_think_times(Closed(users=4), 10, np.random.default_rng(0)).any()


def test_users_start_out_of_step_over_a_second_and_a_think_time():
    starts = draw_starts(Closed(users=200, think_time_s=9), 500, np.random.default_rng(0))
    assert starts.size == np.unique(starts).size == 200
    assert 9 < starts.max() <= START_SPREAD_S + 9
    assert draw_starts(Closed(users=200), 3, np.random.default_rng(0)).size == 3
