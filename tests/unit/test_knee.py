import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.tuning_run import StageSummary, Verdict
from kneekeeper.domain.knee import KneeVerdict, fit_throughput, knee_cap
from tests.unit.stage_builders import summary

ALPHA, BETA = 1.0, 1 / 32  # X/R is largest at 32 users, elasticity 0.2 at 128


def ramp(
    highest: int, noise: float = 0.0, seed: int = 0, cap: float = float("inf"), beta: float = BETA
) -> list[StageSummary]:
    rng = np.random.default_rng(seed)
    levels = [2**k for k in range(highest.bit_length())]
    stages = []
    for users in levels:
        x = min(users / (ALPHA + beta * users), cap) * np.exp(noise * rng.standard_normal())
        stages.append(summary(f"ramp-{users}", users=users, requests_per_second=x, output_tokens_per_second=100 * x))
    return stages


def test_an_exact_hyperbola_is_found_again():
    fit = fit_throughput(ramp(256))
    assert [fit.alpha_s, fit.beta_s] == pytest.approx([ALPHA, BETA])
    assert fit.cap is None
    assert fit.verdict == KneeVerdict.KNEE
    assert fit.knee is not None
    assert fit.knee.estimate == pytest.approx(128)
    assert fit.requests_per_s(32) == pytest.approx(16)


def test_a_plateau_is_the_knee_when_it_comes_before_the_elasticity():
    fit = fit_throughput(ramp(512, cap=12.0))
    assert fit.cap == pytest.approx(12.0)
    assert fit.knee is not None
    assert fit.knee.estimate == pytest.approx(12 * ALPHA / (1 - 12 * BETA), rel=0.01)
    assert fit.requests_per_s(500) == pytest.approx(12.0)
    assert "stops growing" in fit.message


def test_noise_alone_makes_no_plateau():
    clipped = [fit_throughput(ramp(256, noise=0.05, seed=seed)).cap is not None for seed in range(40)]
    assert sum(clipped) <= 4


def test_a_ramp_that_ended_before_its_knee_has_none():
    fit = fit_throughput(ramp(64))
    assert (fit.verdict, fit.knee) == (KneeVerdict.NO_KNEE, None)
    assert fit.alpha_s is not None


def test_throughput_that_grows_linearly_has_no_knee():
    assert fit_throughput(ramp(64, beta=0.0)).verdict == KneeVerdict.NO_KNEE


def test_three_levels_are_too_few():
    fit = fit_throughput(ramp(4))
    assert fit.verdict == KneeVerdict.INCONCLUSIVE
    assert fit.alpha_s == pytest.approx(ALPHA)
    assert "4 levels" in fit.message


@pytest.mark.parametrize("count", [0, 1])
def test_without_two_levels_there_is_no_curve(count):
    fit = fit_throughput(ramp(1)[:count])
    assert (fit.verdict, fit.alpha_s, fit.requests_per_s(4)) == (KneeVerdict.INCONCLUSIVE, None, None)


def test_a_noisy_machine_gives_no_knee_but_its_width():
    fit = fit_throughput(ramp(256, noise=0.3, seed=5))
    assert fit.verdict == KneeVerdict.INCONCLUSIVE
    assert fit.knee is not None
    assert "too wide" in fit.message


def test_void_stages_do_not_count():
    stages = ramp(256)
    wrong = summary("ramp-16", users=16, output_tokens_per_second=1.0, verdict=Verdict.VOID)
    assert fit_throughput([*stages, wrong]) == fit_throughput(stages)


def test_lengths_that_were_drawn_short_do_not_look_like_throughput():
    lucky = [
        stage.with_changes(
            output_tokens_mean=50.0 if stage.users == 8 else 100.0,
            requests_per_second=stage.requests_per_second * (2 if stage.users == 8 else 1),
            requests=30 if stage.users == 8 else 1000,
        )
        for stage in ramp(256)
    ]
    fit = fit_throughput(lucky)
    assert fit.knee is not None
    assert fit.knee.estimate == pytest.approx(128, rel=0.05)


def test_the_interval_covers_the_knee_about_as_often_as_it_says():
    fits = [fit_throughput(ramp(256, noise=0.05, seed=seed)) for seed in range(100)]
    knees = [fit.knee for fit in fits if fit.knee is not None]
    assert len(knees) >= 90
    covered = np.mean([knee.lower <= 128 <= knee.upper for knee in knees])
    assert 0.75 <= covered <= 0.99  # 90% nominal; residuals of 9 levels know their own spread badly


def test_the_same_stages_give_the_same_interval():
    assert fit_throughput(ramp(256, noise=0.05)) == fit_throughput(ramp(256, noise=0.05))


@given(st.lists(st.floats(0.1, 1e4), min_size=2, max_size=10))
def test_any_throughput_gives_an_answer_that_is_in_order(throughputs):
    stages = [
        summary(f"ramp-{2**i}", users=2**i, requests_per_second=x, output_tokens_per_second=100 * x)
        for i, x in enumerate(throughputs)
    ]
    fit = fit_throughput(stages)
    assert fit.message
    if fit.knee is not None:
        assert 1 <= fit.knee.lower <= fit.knee.estimate <= fit.knee.upper
    if fit.verdict == KneeVerdict.KNEE:
        assert fit.knee is not None
        assert fit.knee.ratio <= 1.5


@pytest.mark.parametrize(("elasticity", "users"), [(0.1, 288), (0.2, 128), (0.5, 32)])
def test_a_knee_has_the_elasticity_that_is_asked_for(elasticity: float, users: int):
    fit = fit_throughput(ramp(512), elasticity)
    assert fit.knee is not None
    assert fit.knee.estimate == pytest.approx(users)
    assert f"elasticity is {elasticity:g}" in fit.message
    cap = knee_cap(fit, ramp(512), elasticity)
    assert cap is not None
    assert cap.sequences in (users - 1, users)  # whole requests, never above the knee


def test_a_knee_that_was_not_reached_caps_at_the_highest_level_and_says_so():
    cap = knee_cap(fit_throughput(ramp(64), 0.1), ramp(64), 0.1)
    assert cap is not None
    assert cap.sequences == 64
    assert "was not reached" in cap.message


def test_a_knee_that_is_not_known_caps_at_the_highest_level_and_says_so():
    cap = knee_cap(fit_throughput(ramp(4)), ramp(4), 0.2)
    assert cap is not None
    assert cap.sequences == 4
    assert "is not known" in cap.message
    assert knee_cap(fit_throughput([]), [], 0.2) is None
