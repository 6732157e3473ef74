from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kneekeeper.api.offered_load import Closed, Fixed, LogNormal, Open, Uniform
from kneekeeper.api.stage import Limits, StageSpec, Target
from kneekeeper.domain.arrivals import START_SPREAD_S
from kneekeeper.domain.workload import draw_lengths, draw_prompt, draw_workload

LENGTHS = st.one_of(
    st.builds(Fixed, value=st.integers(1, 100_000)),
    st.builds(lambda low, more: Uniform(low=low, high=low + more), st.integers(1, 1000), st.integers(0, 1000)),
    st.builds(LogNormal, mean=st.floats(1, 1e5), sigma=st.floats(0, 3), maximum=st.integers(1, 10**6)),
)


def spec(**values: Any) -> StageSpec:
    defaults: dict[str, Any] = {
        "id": "stage",
        "target": Target(host="127.0.0.1", port=8000, model="tiny"),
        "prompt_tokens": LogNormal(mean=100, sigma=0.8, maximum=2000),
        "output_tokens": LogNormal(mean=50, sigma=0.5, maximum=400),
        "arrivals": Closed(users=8),
        "limits": Limits(min_requests=100, max_requests=500, max_duration_s=60),
        "seed": 1,
    }
    return StageSpec(**(defaults | values))


@given(LENGTHS, st.integers(0, 2**32))
def test_lengths_are_whole_and_stay_in_their_range(lengths, seed):
    drawn = draw_lengths(lengths, 50, np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    assert drawn.shape == (50,)
    match lengths:
        case Fixed():
            assert set(drawn) == {lengths.value}
        case Uniform():
            assert lengths.low <= drawn.min() <= drawn.max() <= lengths.high
        case LogNormal():
            assert 1 <= drawn.min() <= drawn.max() <= lengths.maximum


def test_a_uniform_draw_reaches_both_ends():
    assert set(draw_lengths(Uniform(low=3, high=5), 200, np.random.default_rng(0))) == {3, 4, 5}


@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0])
def test_a_log_normal_has_the_declared_mean_and_sigma(sigma):
    drawn = draw_lengths(LogNormal(mean=800, sigma=sigma, maximum=10**6), 100_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(800, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(sigma, abs=0.01)


@pytest.mark.parametrize("arrivals", [Closed(users=8), Open(rate=5)])
def test_the_same_spec_gives_the_same_requests_and_another_seed_others(arrivals):
    first, again = draw_workload(spec(arrivals=arrivals)), draw_workload(spec(arrivals=arrivals))
    other = draw_workload(spec(arrivals=arrivals, seed=2))
    for name in ("prompt_tokens", "output_tokens", "intended_s"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))


def test_stages_that_differ_in_rate_alone_have_the_same_lengths():
    slow, fast = draw_workload(spec(arrivals=Open(rate=1))), draw_workload(spec(arrivals=Open(rate=2)))
    assert np.array_equal(slow.output_tokens, fast.output_tokens)
    assert np.allclose(slow.intended_s, 2 * fast.intended_s)


def test_an_open_loop_plans_all_requests():
    workload = draw_workload(spec(arrivals=Open(rate=5)))
    assert len(workload) == workload.intended_s.size == 500


def test_users_of_a_closed_loop_start_out_of_step_within_a_second():
    workload = draw_workload(spec(arrivals=Closed(users=100), output_tokens=Fixed(value=64)))
    assert workload.intended_s.size == 100
    assert workload.intended_s.max() <= START_SPREAD_S
    assert np.unique(workload.intended_s).size == 100
    first, later = workload.output_tokens[:100], workload.output_tokens[100:]
    assert first.min() >= 1
    assert first.max() <= 64
    assert np.unique(first).size > 30
    assert set(later) == {64}


def test_more_users_than_requests_start_only_as_many_as_there_are_requests():
    limits = Limits(min_requests=1, max_requests=3, max_duration_s=1)
    assert draw_workload(spec(arrivals=Closed(users=8), limits=limits)).intended_s.size == 3


@given(st.integers(1, 300), st.integers(0, 2**48), st.integers(0, 10**6))
def test_a_prompt_has_its_exact_length_and_allowed_ids(tokens, seed, index):
    prompt = draw_prompt(seed, index, tokens, 10, 250)
    assert prompt.size == tokens
    assert 10 <= prompt.min() <= prompt.max() <= 250
    assert np.array_equal(prompt, draw_prompt(seed, index, tokens, 10, 250))


def test_no_two_prompts_share_their_first_block():
    prompts = {tuple(draw_prompt(seed, index, 16, 10, 250)) for seed in range(4) for index in range(500)}
    assert len(prompts) == 2000


@pytest.mark.parametrize("host", ["vllm", "vllm.default.svc", "", "10.0.0", "10.0.0.1:80"])
def test_a_target_that_is_not_an_ip_address_is_refused(host):
    with pytest.raises(ValidationError, match="not a name"):
        Target(host=host, port=80, model="m")


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "2001:db8::5"])
def test_both_kinds_of_ip_address_are_taken(host):
    assert Target(host=host, port=80, model="m").host == host


def test_ranges_that_are_the_wrong_way_round_are_refused():
    with pytest.raises(ValidationError, match="swap them"):
        Uniform(low=2, high=1)
    with pytest.raises(ValidationError, match="all prompts are the same"):
        Target(host="::1", port=80, model="m", token_id_low=7, token_id_high=7)
