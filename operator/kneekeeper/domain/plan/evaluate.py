"""From a run's stored stages to what the ladder, the fit and the choice are given."""

from __future__ import annotations

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.api.tuning_run import Fit, RunPlan, StageKind, TuningRunStatus
from kneekeeper.domain.boundary import slo_boundary
from kneekeeper.domain.choose import ChooseInput
from kneekeeper.domain.engines import valid_sequence_grid, valid_token_grid
from kneekeeper.domain.knee import fit_throughput
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.plan.requests import longest, slo_of, traffic_of
from kneekeeper.domain.stats import Interval
from kneekeeper.domain.steptime import fit_step_time

# Prompts of the prefill-only stages, as shares of the mean prompt: enough spread for a slope.
PREFILL_SHARES = (0.5, 1.0, 2.0)


def ceiling_of(status: TuningRunStatus) -> Setting:
    """The setting that the ladder was climbed with: the ramp's own, before it the present clone's."""
    climbed = next((s.setting for s in status.stages if s.kind == StageKind.CONTROL), None)
    if climbed is not None:
        return climbed
    assert status.clone is not None  # the ladder starts on a ready clone
    return status.clone.setting


def ladder_settings(plan: RunPlan, status: TuningRunStatus) -> LadderSettings:
    """What the ladder is built from; the same for the same stored status."""
    traffic = traffic_of(plan.profile_spec, plan.max_model_len)
    ladder = plan.profile_spec.probe.ladder
    mean = mean_tokens(traffic.prompt_tokens)
    sizes = {min(longest(traffic.prompt_tokens), max(1, round(share * mean))) for share in PREFILL_SHARES}
    return LadderSettings(
        slo=slo_of(plan.profile_spec),
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        burstiness=traffic.burstiness,
        max_concurrency=ladder.max_concurrency,
        ceiling=ceiling_of(status),
        max_stage_duration_s=ladder.max_stage_duration,
        control_tolerance=ladder.control_tolerance_percent / 100,
        kv_cache_tokens=_kv_cache_tokens(status),
        prefill_tokens=tuple(sorted(sizes)),
        start=status.clone.start if status.clone is not None else 1,
    )
