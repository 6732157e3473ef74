import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageSummary, Verdict
from kneekeeper.domain.boundary import slo_boundary, tail_curve
from tests.unit.stage_builders import summary

SLO = Slo(tpot_s=0.04)


def ramp(*p99s: float, requests: int = 300) -> list[StageSummary]:
    return [
        summary(f"ramp-{2**i}", users=2**i, p50_tpot=p99 / 1.4, p99_tpot=p99, requests=requests)
        for i, p99 in enumerate(p99s)
    ]


def test_the_boundary_lies_between_the_levels_around_the_target():
    boundary = slo_boundary(ramp(0.01, 0.012, 0.02, 0.03, 0.05), SLO)
    assert boundary.tpot is not None
    assert 8 < boundary.tpot.lower < boundary.tpot.estimate < boundary.tpot.upper < 16
    assert (boundary.met_everywhere, boundary.met_nowhere) == (False, False)


def test_levels_that_all_hold_say_so():
    boundary = slo_boundary(ramp(0.01, 0.012, 0.02), SLO)
    assert boundary.met_everywhere
    assert boundary.tpot is not None
    assert boundary.tpot.estimate == 4


def test_levels_that_all_miss_say_so():
    boundary = slo_boundary(ramp(0.05, 0.06), SLO)
    assert boundary.met_nowhere
    assert boundary.tpot is None


def test_without_a_target_every_level_holds():
    boundary = slo_boundary(ramp(0.05, 0.06), Slo(ttft_s=1.0))
    assert (boundary.tpot, boundary.met_everywhere) == (None, True)


def test_without_stages_nothing_is_claimed():
    boundary = slo_boundary([summary(verdict=Verdict.INVALID)], SLO)
    assert (boundary.tpot, boundary.met_everywhere, boundary.met_nowhere) == (None, False, False)


def test_one_slow_stage_below_others_is_smoothed_away():
    curve = tail_curve(ramp(0.01, 0.03, 0.015, 0.05))
    assert curve is not None
    assert list(curve.p99_tpot_s) == sorted(curve.p99_tpot_s)
    assert curve.at(2) == pytest.approx(np.sqrt(0.03 * 0.015))


def test_fewer_requests_give_a_wider_interval():
    few = slo_boundary(ramp(0.01, 0.012, 0.02, 0.03, 0.05, requests=40), SLO).tpot
    many = slo_boundary(ramp(0.01, 0.012, 0.02, 0.03, 0.05, requests=2000), SLO).tpot
    assert few is not None
    assert many is not None
    assert few.ratio > many.ratio > 1


def test_the_interval_covers_the_boundary_about_as_often_as_it_says():
    """Log-normal TPOT whose true P99 is 10 ms * users^0.5, so that 16 users are the boundary."""
    spread = 0.15
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        stages = []
        for users in (1, 2, 4, 8, 16, 32, 64):
            median = 0.01 * users**0.5 / np.exp(2.326 * spread)
            draws = median * np.exp(spread * rng.standard_normal(max(30, 5 * users)))
            p50, p99 = np.median(draws), np.quantile(draws, 0.99)
            stages.append(summary(users=users, p50_tpot=p50, p99_tpot=p99, requests=draws.size))
        found = slo_boundary(stages, SLO).tpot
        assert found is not None
        covered.append(found.lower <= 16 <= found.upper)
    assert np.mean(covered) >= 0.75


@given(st.lists(st.floats(1e-4, 10), min_size=1, max_size=9))
def test_any_ramp_gives_a_boundary_within_its_levels(p99s):
    boundary = slo_boundary(ramp(*p99s), SLO)
    if boundary.tpot is None:
        assert boundary.met_nowhere
    else:
        assert 1 <= boundary.tpot.lower <= boundary.tpot.estimate <= boundary.tpot.upper <= 2 ** (len(p99s) - 1)
