"""The law of the engine that a run measures: from its stages to a fit of the twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable
from kneekeeper.domain.lengths import mean_tokens, quantile_tokens
from kneekeeper.domain.stage_orders import NO_MORE, LadderSettings, MoreStages
from kneekeeper.domain.steptime import StepTime, fit_step_time
from kneekeeper.domain.twin.fit import TERMS, LawFit, Prior, fit_law
from kneekeeper.domain.twin.stages import TwinStage, twin_stage
from kneekeeper.domain.twin.traffic import TwinTraffic

KINDS = (
    StageKind.RAMP,
    StageKind.PREFILL,
    StageKind.STEPS,
    StageKind.OPEN,
    StageKind.CERTIFY,
    StageKind.BASELINE,
)

_WIDE = 1.0
_LEAST_WIDTH_OF_SLOPES = 0.02
_SHARE_OF_A_STEP = 0.3
"""Of the longest step that was seen: what a term that the data must demand may add to it."""
_SHARE_OF_FIRST_TOKEN = 0.3
"""Of a lone request's TTFT: what the API process may take of it."""
_API_LOAD = 0.3
"""Share of its time that the API process may spend on the tokens of the highest rate seen."""

_TOLD_BY_PROMPTS = {"per_prefill_token_s", "per_prefill_token_squared_s"}
_TOLD_BY_OPEN_LOOPS = {"prefill_step_s", "api_request_s"}
_SHORT = 0.25
"""Of the mean prompt."""
_HIGH_LOAD = 0.9


@dataclass(frozen=True)
class _Stages:
    """Stages that are alike when all that they say is."""

    words: tuple[str, ...]
    stages: tuple[StageSummary, ...] = field(compare=False)


def fit_engine(stages: Sequence[StageSummary], traffic: TwinTraffic) -> LawFit | None:
    """The fit of all usable stages; None without a ramp stage that has a TPOT.

    It takes about a second, and a run asks for that of the same stages several times: the last ones are kept.
    """
    known = tuple(usable(stages, *KINDS))
    return _fit(_Stages(tuple(stage.model_dump_json() for stage in known), known), traffic)


@lru_cache(maxsize=16)
def _fit(known: _Stages, traffic: TwinTraffic) -> LawFit | None:
    stages = known.stages
    start = fit_step_time(stages)
    if start is None:
        return None
    found = (twin_stage(stage, traffic) for stage in stages)
    twins: list[TwinStage] = [twin for twin in found if twin is not None]
    return fit_law(twins, prior_of(stages, start))


def wanted_stages(fit: LawFit | None, settings: LadderSettings) -> MoreStages:
    """The stages that would tell most of what the fit hardly knows; none where it knows enough.

    Prompt lengths tell what a prompt token costs, and whether twice as many cost more than twice; an open loop near
    saturation tells what a step with a prompt costs extra, and how busy the API process is.
    """
    if fit is None:
        return NO_MORE
    weak = set(fit.weak)
    lengths: set[int] = set()
    if weak & _TOLD_BY_PROMPTS:
        shortest = max(1, round(_SHORT * mean_tokens(settings.prompt_tokens)))
        lengths = {shortest, quantile_tokens(settings.prompt_tokens, 0.99)} - set(settings.prefill_tokens)
    return MoreStages(tuple(sorted(lengths)), (_HIGH_LOAD,) if weak & _TOLD_BY_OPEN_LOOPS else ())


def prior_of(stages: Sequence[StageSummary], start: StepTime) -> Prior:
    """The linear fit with wide limits; 0 and a share of a step for all that it leaves out."""
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    prefill = usable(stages, StageKind.PREFILL)
    longest_step_s = max(stage.p50_tpot or 0.0 for stage in ramp)
    first = ramp[0]
    top = ramp[-1]
    users = float(top.users or 1)
    kv_tokens = users * (top.prompt_tokens_mean + top.output_tokens_mean / 2)
    prompt = max(stage.prompt_tokens_mean for stage in [*prefill, top])
    prompt_s = max([*(stage.p50_ttft or 0.0 for stage in prefill), start.per_prefill_token_s * prompt])
    tokens_per_s = max(stage.output_tokens_per_second for stage in ramp)
    mean = {
        "base_s": start.base_s,
        "per_sequence_s": start.per_sequence_s,
        "per_prefill_token_s": start.per_prefill_token_s,
    }
    width = {
        "base_s": _WIDE * max(start.base_s, _LEAST_WIDTH_OF_SLOPES * longest_step_s),
        "per_sequence_s": _WIDE * max(start.per_sequence_s, _SHARE_OF_A_STEP * longest_step_s / users),
        "per_kv_token_s": _SHARE_OF_A_STEP * longest_step_s / kv_tokens,
        "per_prefill_token_s": _WIDE * max(start.per_prefill_token_s, _SHARE_OF_A_STEP * longest_step_s / prompt),
        "per_prefill_token_squared_s": _SHARE_OF_A_STEP * prompt_s / prompt**2,
        "per_prefill_pair_s": _SHARE_OF_A_STEP * prompt_s / (prompt**2 / 2),
        "prefill_step_s": _WIDE * max(start.base_s, _SHARE_OF_A_STEP * (first.p50_tpot or longest_step_s)),
        "api_request_s": _SHARE_OF_FIRST_TOKEN * (first.p50_ttft or prompt_s),
        "api_token_s": _API_LOAD / max(tokens_per_s, 1.0),
    }
    return Prior(
        mean=np.array([mean.get(term, 0.0) for term in TERMS], dtype=np.float64),
        width=np.array([max(width[term], 1e-12) for term in TERMS], dtype=np.float64),
    )
