"""The fit finds the law back from stages that the twin itself ran, says what it does not know, and asks for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.stage import PrefixSharing, Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.engine_law import fit_engine, wanted_stages
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.stage_orders import NO_MORE, LadderSettings
from kneekeeper.domain.twin import Law, Load, TwinLimits, log_normal_noise, simulate
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.stages import OWN_LENGTHS, twin_stage
from kneekeeper.domain.twin.traffic import TwinTraffic
from tests.unit.stage_builders import summary

CEILING = Setting(max_num_seqs=128, max_num_batched_tokens=4096)
PROMPTS, OUTPUTS = LogNormal(mean=300, sigma=0.8, maximum=3000), LogNormal(mean=80, sigma=0.5, maximum=400)
TRAFFIC = TwinTraffic(PROMPTS, OUTPUTS)
TRUE = Law(
    base_s=8e-3,
    per_sequence_s=1.5e-4,
    per_prefill_token_s=5e-5,
    prefill_step_s=2e-3,
    api_request_s=1e-3,
    noise=log_normal_noise(0.05, seed=3),
)


def measured(
    name: str, kind: StageKind, users: int, rate: float = 0.0, prompt: int = 0, output: int = 1, law: Law = TRUE
) -> StageSummary:
    """A stage on an engine of the true law, with draws that the fit does not know."""
    requests = 12 if prompt and users == 1 else max(60, 5 * users) if users else 300
    drawn = TRAFFIC.draw(requests + 3 * users, 99 + users + prompt)
    prompts, outputs = drawn.prompt_tokens, drawn.output_tokens
    if prompt:
        prompts, outputs = np.full(prompts.size, prompt), np.full(outputs.size, output)
    arrival_s: Floats = np.arange(prompts.size, dtype=np.float64) * 0.02
    if not users:
        arrival_s = drawn.arrival_s / rate
    result = simulate(Load(arrival_s, prompts, outputs, users=users), TwinLimits(128, 4096, 10**6), law)
    rows = slice(2 * users, prompts.size - users)
    span_s = float(result.last_s[rows.stop - 1] - result.last_s[max(0, rows.start - 1)])

    def quantile(values: Floats, q: float) -> float | None:
        return float(np.nanquantile(values[rows], q)) if not np.all(np.isnan(values[rows])) else None

    return summary(
        name,
        kind,
        setting=CEILING,
        users=users or None,
        offered_requests_per_second=rate or None,
        prompt_tokens_mean=float(prompts[rows].mean()),
        output_tokens_mean=float(outputs[rows].mean()),
        requests=requests,
        requests_per_second=requests / span_s,
        output_tokens_per_second=float(outputs[rows].sum()) / span_s,
        p50_ttft=quantile(result.ttft_s, 0.5),
        p99_ttft=quantile(result.ttft_s, 0.99),
        p50_tpot=quantile(result.tpot_s, 0.5),
        p99_tpot=quantile(result.tpot_s, 0.99),
    )


def ladder(law: Law = TRUE) -> list[StageSummary]:
    ramp = [measured(f"ramp-{n}", StageKind.RAMP, n, law=law) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    prefill = [measured(f"prefill-{n}", StageKind.PREFILL, 1, prompt=n, law=law) for n in (150, 300, 600)]
    open_loops = [measured(f"open-{k}", StageKind.OPEN, 0, rate, law=law) for k, rate in ((1, 12.0), (2, 18.0))]
    return [*ramp, *prefill, *open_loops]


def fitted(stages: list[StageSummary]) -> LawFit:
    fit = fit_engine(stages, TRAFFIC)
    assert fit is not None
    return fit


def test_the_law_is_found_back_from_a_ladder():
    fit = fitted(ladder())
    assert fit.law.base_s == pytest.approx(TRUE.base_s, rel=0.1)
    assert fit.law.per_prefill_token_s == pytest.approx(TRUE.per_prefill_token_s, rel=0.25)
    # Sequences and the context that they hold grow together under one workload: only their sum is known.
    per_sequence_s = fit.law.per_sequence_s + fit.law.per_kv_token_s * 340
    assert per_sequence_s == pytest.approx(TRUE.per_sequence_s, rel=0.25)
    assert fit.misfit < 2


def test_the_draws_hold_the_estimate_and_spread_less_with_more_stages():
    few, many = fitted(ladder()[:3]), fitted(ladder())

    def spread(fit: LawFit) -> float:
        return float(np.std([law.per_sequence_s for law in fit.draws]))

    low, high = np.quantile([law.base_s for law in many.draws], [0.02, 0.98])
    assert low <= many.law.base_s <= high
    assert spread(many) < spread(few)


def test_the_same_stages_give_the_same_fit():
    first, second = fitted(ladder()), fit_engine([*ladder(), summary(verdict=Verdict.VOID)], TRAFFIC)
    assert second is not None
    assert first.law == second.law


@pytest.mark.parametrize("users", [27, 48, 96])
def test_the_output_rate_of_a_level_does_not_hang_on_which_requests_end_last(users: int):
    traffic = TwinTraffic(PROMPTS, LogNormal(mean=450, sigma=0.7, maximum=2000))
    law = replace(TRUE, noise=Law(base_s=0.0).noise)
    twin = twin_stage(summary(users=users, requests=3 * users, prompt_tokens_mean=300, output_tokens_mean=450), traffic)
    assert twin is not None
    predicted = np.exp(twin.predict(law)[twin.statistics.index("output_rate")])
    drawn = traffic.draw(20_000, 5)
    load = Load(np.zeros(20_000), drawn.prompt_tokens, drawn.output_tokens, users=users)
    long_run = simulate(load, twin.limits, law)
    tokens_per_s = float(drawn.output_tokens.sum()) / long_run.end_s
    assert predicted == pytest.approx(tokens_per_s, rel=0.03)


def test_stages_with_prompts_of_their_own_hit_no_prefix():
    sharing = replace(TRAFFIC, prefix=PrefixSharing(hit_share=0.5, block_tokens=16))
    of_kind = {kind: twin_stage(summary(kind=kind, users=1), sharing) for kind in (StageKind.RAMP, *OWN_LENGTHS)}
    hits = {kind: None if twin is None else twin.load.prefix_hit_tokens for kind, twin in of_kind.items()}
    assert hits.pop(StageKind.RAMP) is not None
    assert hits == dict.fromkeys(OWN_LENGTHS)


def test_the_stages_of_steps_tell_sequences_from_the_context_that_they_hold():
    true = replace(TRUE, per_sequence_s=5e-5, per_kv_token_s=3e-7)

    def errors(stages: list[StageSummary]) -> tuple[float, float]:
        law = fitted(stages).law
        return (
            abs(law.per_sequence_s / true.per_sequence_s - 1),
            abs(law.per_kv_token_s / true.per_kv_token_s - 1),
        )

    steps = [
        measured("steps-many", StageKind.STEPS, 128, prompt=16, output=64, law=true),
        measured("steps-full", StageKind.STEPS, 16, prompt=300, output=16, law=true),
    ]
    without, with_steps = errors(ladder(true)), errors([*ladder(true), *steps])
    assert max(with_steps) < 0.3
    assert max(with_steps) < max(without)


def test_without_a_ramp_there_is_no_fit():
    assert fit_engine([measured("prefill-300", StageKind.PREFILL, 1, prompt=300)], TRAFFIC) is None


def settings() -> LadderSettings:
    return LadderSettings(
        slo=Slo(ttft_s=1.0),
        prompt_tokens=PROMPTS,
        output_tokens=OUTPUTS,
        burstiness=1.0,
        max_concurrency=128,
        ceiling=CEILING,
        max_stage_duration_s=60.0,
        control_tolerance=0.15,
        kv_cache_tokens=None,
        prefill_tokens=(150, 300, 600),
    )


def test_what_the_fit_hardly_knows_is_asked_for():
    fit = fitted(ladder())
    assert wanted_stages(None, settings()) == NO_MORE
    assert wanted_stages(replace(fit, told=dict.fromkeys(fit.told, 0.1)), settings()) == NO_MORE
    of_prompts = wanted_stages(replace(fit, told={**fit.told, "per_prefill_token_squared_s": 0.9}), settings())
    assert len(of_prompts.prefill_tokens) == 2
    assert not set(of_prompts.prefill_tokens) & {150, 300, 600}
    assert wanted_stages(replace(fit, told={**fit.told, "api_request_s": 0.9}), settings()).open_loads == (0.9,)
