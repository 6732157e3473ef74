import numpy as np
import pytest

from kneekeeper.domain.production_law import LEAST_STEPS, CounterWindow, fit_production
from kneekeeper.domain.twin import Law, Load, TwinLimits, simulate

LAW = Law(base_s=8e-3, per_sequence_s=2e-4, per_prefill_token_s=4e-5)


def window(rate: float, prompt: int, output: int, seed: int = 1) -> CounterWindow:
    """What the counters of an engine under this law would show of a minute or so."""
    count = 600
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))
    load = Load(arrival_s, np.full(count, prompt), np.full(count, output))
    result = simulate(load, TwinLimits(256, 8192, 10**6), LAW)
    running = float((result.last_s - result.first_s).sum() / result.end_s)
    return CounterWindow(
        duration_s=result.end_s,
        steps=result.steps,
        requests=count,
        generation_tokens=count * (output - 1),
        prompt_tokens=count * prompt,
        running=running,
        kv_tokens=running * (prompt + output / 2),
    )


VARIED = [(2, 200, 100), (10, 200, 100), (20, 200, 100), (30, 100, 100), (5, 1500, 100), (10, 1000, 60), (25, 50, 100)]


def test_windows_of_different_load_and_prompts_tell_the_law():
    fit = fit_production([window(*load) for load in VARIED])
    assert fit is not None
    assert fit.law.base_s == pytest.approx(LAW.base_s, rel=0.15)
    assert fit.law.per_prefill_token_s == pytest.approx(LAW.per_prefill_token_s, rel=0.4)
    assert fit.told["base_s"] < 0.3


def test_production_that_never_varies_tells_less_and_that_is_said():
    varied = fit_production([window(*load) for load in VARIED])
    steady = fit_production([window(10, 200, 100, seed) for seed in range(len(VARIED))])
    assert varied is not None
    assert steady is not None
    assert steady.condition > 10 * varied.condition
    assert steady.told["base_s"] > 2 * varied.told["base_s"]


def test_windows_without_enough_steps_are_not_fitted():
    idle = CounterWindow(60.0, LEAST_STEPS - 1, 1, 40, 200, 0.01, 10.0)
    assert fit_production([idle]) is None
    assert fit_production([]) is None
