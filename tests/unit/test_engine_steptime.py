"""How long a simulated step takes."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from kneekeeper.domain.step_plan import StepPlan
from kneekeeper.engine.hardware import StepTimeLaw
from kneekeeper.engine.steptime import StepTimer

_PLAIN = StepTimeLaw(
    base_ms=5,
    per_sequence_ms=1,
    per_prefill_token_ms=0.1,
    per_prefill_token_pair_ms=0.001,
    per_kv_token_ms=0.01,
    pad_to_graph_sizes=False,
    eager_ms=0,
    noise=0,
)


def decodes(count: int, kv_tokens: int = 0) -> StepPlan:
    return StepPlan({}, count, 0, 0, 0.0, kv_tokens, (), ())


def expected_ms(law: StepTimeLaw, plan: StepPlan, graph_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)) -> float:
    return StepTimer(law, graph_sizes, random.Random(1)).expected_ms(plan)


def test_the_terms_of_the_law_add_up() -> None:
    plan = StepPlan(
        {}, decodes=3, prefills=1, prefill_tokens=20, prefill_token_pairs=200, kv_tokens=500, admitted=(), preempted=()
    )
    assert expected_ms(_PLAIN, plan) == pytest.approx(5 + 4 + 2 + 0.2 + 5)


@pytest.mark.parametrize(("count", "padded"), [(1, 1), (3, 4), (5, 8), (16, 16)])
def test_decodes_are_padded_to_the_next_captured_size(count: int, padded: int) -> None:
    law = _PLAIN.model_copy(update={"pad_to_graph_sizes": True})
    assert expected_ms(law, decodes(count)) == 5 + padded


def test_a_batch_above_the_largest_graph_runs_eagerly_and_is_not_padded() -> None:
    law = _PLAIN.model_copy(update={"pad_to_graph_sizes": True, "eager_ms": 7.0})
    assert expected_ms(law, decodes(17)) == 5 + 7 + 17
    assert expected_ms(law, decodes(3), graph_sizes=()) == 5 + 7 + 3


def test_noise_does_not_shift_the_mean_and_has_the_given_width() -> None:
    timer = StepTimer(_PLAIN.model_copy(update={"noise": 0.1}), (), random.Random(1))
    durations = [timer.duration_s(decodes(5), 0.0) for _ in range(4000)]
    assert fmean(durations) == pytest.approx(0.010, rel=0.01)
    assert fmean((duration / 0.010 - 1) ** 2 for duration in durations) ** 0.5 == pytest.approx(0.1, rel=0.1)


def test_drift_comes_and_goes_over_its_period() -> None:
    law = _PLAIN.model_copy(update={"drift": 0.2, "drift_period_s": 100.0})
    timer = StepTimer(law, (), random.Random(1))
    durations = [timer.duration_s(decodes(5), float(second)) for second in range(100)]
    assert max(durations) == pytest.approx(0.012, rel=0.01)
    assert min(durations) == pytest.approx(0.008, rel=0.01)
    assert timer.duration_s(decodes(5), 130.0) == pytest.approx(durations[30])


def test_the_same_seed_gives_the_same_durations() -> None:
    def draws(seed: int) -> list[float]:
        timer = StepTimer(StepTimeLaw(), (1, 2, 4), random.Random(seed))
        return [timer.duration_s(decodes(2), 0.0) for _ in range(5)]

    assert draws(1) == draws(1) != draws(2)
