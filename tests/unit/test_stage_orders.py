"""What each stage of a ladder sends: how many requests, of which lengths, for how long."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kneekeeper.api.offered_load import Closed, Fixed, LogNormal, Open, Uniform
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind
from kneekeeper.domain.ladder import LadderSettings, StageOrder
from kneekeeper.domain.lengths import mean_tokens, quantile_tokens
from kneekeeper.domain.stage_orders import FEWEST_OPEN_REQUESTS, OPEN_STAGE_S, around, narrow
from tests.unit.ladder_play import SETTINGS, play


def orders_of(settings: LadderSettings, ttft_s: Callable[[int], float]) -> dict[str, StageOrder]:
    """A ladder on an engine that takes `ttft_s` for a lone prompt of so many tokens."""
    orders: dict[str, StageOrder] = {}

    def note(order: StageOrder, index: int) -> dict[str, object]:
        orders[order.name] = order
        if order.kind is not StageKind.PREFILL or not isinstance(order.prompt_tokens, Fixed):
            return {}
        tokens = order.prompt_tokens.value
        return {"prompt_tokens_mean": float(tokens), "p50_ttft": ttft_s(tokens)}

    play(note, settings)
    return orders


def test_many_sequences_without_context_and_full_steps_are_measured_by_themselves():
    orders = orders_of(SETTINGS, lambda tokens: 0.01 + 1e-4 * tokens)
    many, full = orders["steps-many"], orders["steps-full"]
    assert many.arrivals == Closed(users=64)
    assert mean_tokens(many.prompt_tokens) == 16
    assert mean_tokens(many.output_tokens) == 64
    # 10 ms and 0.1 ms a token: 300 tokens take the 40 ms of the target.
    assert mean_tokens(full.prompt_tokens) == pytest.approx(300, rel=0.01)
    assert full.arrivals == Closed(users=16)
    assert mean_tokens(full.output_tokens) == 16


def test_full_steps_have_no_longer_prompts_than_the_workload_and_fit_into_the_kv_cache():
    longest = orders_of(SETTINGS, lambda tokens: 0.01 + 1e-6 * tokens)["steps-full"]
    assert quantile_tokens(longest.prompt_tokens, 1.0) <= 1000
    held = orders_of(replace(SETTINGS, kv_cache_tokens=3200), lambda tokens: 0.01 + 1e-4 * tokens)["steps-full"]
    assert held.arrivals == Closed(users=5)


@pytest.mark.parametrize("slo", [Slo(ttft_s=0.5), Slo()])
def test_without_a_tpot_target_no_step_is_too_full(slo: Slo):
    orders = orders_of(replace(SETTINGS, slo=slo), lambda tokens: 0.01 + 1e-4 * tokens)
    assert "steps-many" in orders
    assert "steps-full" not in orders


def test_stages_have_enough_requests_for_what_they_tell():
    orders: dict[str, StageOrder] = {}

    def note(order: StageOrder, index: int) -> dict[str, object]:
        orders[order.name] = order
        return {}

    play(note)
    assert orders["ramp-64"].limits.min_requests == 192
    assert orders["ramp-8"].limits.min_requests == 30
    assert (orders["ramp-1"].limits.min_requests, orders["ramp-1"].limits.min_token_gaps) == (8, 2000)
    arrivals = orders["open-1"].arrivals
    assert isinstance(arrivals, Open)
    assert orders["open-1"].limits.min_requests == round(OPEN_STAGE_S * arrivals.rate)
    assert orders["prefill-512"].output_tokens == Fixed(value=1)
    assert orders["prefill-512"].arrivals == Closed(users=1)
    assert all(o.limits.max_requests > o.limits.min_requests for o in orders.values())
    assert all(o.limits.max_duration_s == 120.0 for o in orders.values())


@pytest.mark.parametrize("lengths", [Fixed(value=1), Fixed(value=300), LogNormal(mean=90, sigma=2, maximum=100)])
def test_controls_draw_narrow_lengths_that_the_workload_may_have(lengths):
    drawn = narrow(lengths)
    assert 1 <= drawn.low <= drawn.high <= quantile_tokens(lengths, 1.0)


def test_controls_of_long_answers_are_cut_short():
    assert narrow(Fixed(value=800), 100) == Uniform(low=75, high=125)
    assert narrow(Fixed(value=40), 100) == Uniform(low=30, high=40)


def test_controls_of_documents_have_short_prompts_and_narrow_lengths():
    documents = replace(SETTINGS, prompt_tokens=LogNormal(mean=5000, sigma=0.5, maximum=16_000))
    control = orders_of(documents, lambda tokens: 0.01)["control-1"]
    assert control.prompt_tokens == around(500)
    assert control.output_tokens == around(100)


def test_slow_engines_get_shorter_open_loops():
    def slow(order: StageOrder, index: int) -> dict[str, object]:
        orders[order.name] = order
        return {"requests_per_second": 1.0}

    orders: dict[str, StageOrder] = {}
    play(slow)
    assert orders["open-1"].limits.min_requests == FEWEST_OPEN_REQUESTS
