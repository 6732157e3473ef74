import pytest

from kneekeeper.api.offered_load import Fixed, LogNormal
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.steptime import StepTime, fit_step_time
from tests.unit.small_server import SmallServer
from tests.unit.stage_builders import CEILING, run_ladder, summary

A, B, D = 8e-3, 1e-4, 5e-5


def closed(users: int) -> StageSummary:
    """Exactly what the law says of a closed loop: T = A + B N + D X p T with X = N / (o T)."""
    prompt, output = 200.0, 100.0
    step = A + B * users + D * users * prompt / output
    return summary(
        users=users,
        p50_tpot=step,
        p50_ttft=A + D * prompt,
        requests_per_second=users / (output * step),
        prompt_tokens_mean=prompt,
        output_tokens_mean=output,
    )


def prefill(tokens: int) -> StageSummary:
    return summary(f"prefill-{tokens}", StageKind.PREFILL, prompt_tokens_mean=tokens, p50_ttft=0.003 + A + D * tokens)


def test_the_law_is_found_again_from_what_it_makes():
    fit = fit_step_time([*map(closed, (1, 2, 4, 8, 16, 32)), *map(prefill, (128, 512, 1024))])
    assert fit is not None
    assert fit.base_s == pytest.approx(A, rel=1e-6)
    assert fit.per_sequence_s == pytest.approx(B, rel=1e-6)
    assert fit.per_prefill_token_s == pytest.approx(D, rel=1e-6)
    assert fit.step_s(10, 100) == pytest.approx(A + 10 * B + 100 * D)


def test_a_constant_in_ttft_is_not_charged_to_the_prompt():
    fit = fit_step_time([closed(1), closed(8), prefill(128), prefill(512)])
    assert fit is not None
    assert fit.per_prefill_token_s == pytest.approx(D)


def test_without_prefill_stages_a_single_user_tells_the_slope():
    fit = fit_step_time([*map(closed, (1, 8, 32)), prefill(512)])
    assert fit is not None
    assert fit.per_prefill_token_s == pytest.approx(D, rel=0.1)


def test_a_single_level_gives_a_constant():
    fit = fit_step_time([closed(4), prefill(128), prefill(512)])
    assert fit == StepTime(pytest.approx(A + B * 4), 0.0, pytest.approx(D))  # type: ignore[arg-type]


def test_without_a_tpot_there_is_no_law():
    assert fit_step_time([summary(p50_tpot=None), prefill(128)]) is None
    assert fit_step_time([]) is None


def test_times_are_never_negative():
    shrinking = [summary(users=n, p50_tpot=0.02 / n, requests_per_second=1.0) for n in (1, 2, 4)]
    faster = [summary(kind=StageKind.PREFILL, prompt_tokens_mean=n, p50_ttft=1.0 / n) for n in (100, 200)]
    fit = fit_step_time([*shrinking, *faster])
    assert fit is not None
    assert min(fit.base_s, fit.per_sequence_s, fit.per_prefill_token_s) >= 0


def test_a_ladder_on_a_server_of_that_law_gives_it_back_within_a_third():
    settings = LadderSettings(
        slo=Slo(tpot_s=1.0),
        prompt_tokens=LogNormal(mean=200, sigma=0.5, maximum=1000),
        output_tokens=Fixed(value=100),
        burstiness=1.0,
        max_concurrency=64,
        ceiling=CEILING,
        max_stage_duration_s=120.0,
        control_tolerance=0.15,
        kv_cache_tokens=None,
        prefill_tokens=(100, 200, 400),
    )
    server = SmallServer(lambda n, kv, p: A + B * n + D * p, CEILING)
    fit = fit_step_time(run_ladder(settings, server))
    assert fit is not None
    assert fit.base_s == pytest.approx(A, rel=0.1)
    assert fit.per_sequence_s == pytest.approx(B, rel=0.33)
    assert fit.per_prefill_token_s == pytest.approx(D, rel=0.1)
