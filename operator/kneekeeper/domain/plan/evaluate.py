"""From a run's stored stages to what the ladder, the fit and the choice are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Open
from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.api.run_plan import RunPlan, SettingBounds, SourceFacts
from kneekeeper.api.serving_profile import ArrivalProcess
from kneekeeper.api.stage import PrefixSharing
from kneekeeper.api.tuning_run import Fit, StageKind, StageSummary, TuningRunStatus
from kneekeeper.domain.admission import most_running
from kneekeeper.domain.boundary import Boundary, slo_boundary
from kneekeeper.domain.certify import planned_requests, settling_requests
from kneekeeper.domain.choose import ChooseInput
from kneekeeper.domain.control import mark_void
from kneekeeper.domain.engine_law import fit_engine
from kneekeeper.domain.engines import valid_sequence_grid, valid_token_grid
from kneekeeper.domain.knee import KNEE_ELASTICITY, KneeCap, ThroughputFit, fit_throughput, knee_cap
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.lengths import longest_tokens, mean_tokens
from kneekeeper.domain.mix_targets import loosest_slo
from kneekeeper.domain.mix_verdicts import certify_requests
from kneekeeper.domain.plan.requests import slo_of, traffic_of
from kneekeeper.domain.plan.throughput_runs import asks_for_throughput, declared_users
from kneekeeper.domain.stats import Interval
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.traffic import BLOCK_SIZE_TOKENS, TwinTraffic

# Prompts of the prefill-only stages, as shares of the mean prompt, and as multiples of the smallest budget that may be
# chosen: a prompt of that length takes as long as a step in which such a budget is full, which no load on the ceiling
# shows.
PREFILL_SHARES = (1.0, 2.0)
PREFILL_BUDGETS = (1, 2)


def ceiling_of(status: TuningRunStatus) -> Setting:
    """The setting that the ladder was climbed with: the ramp's own, before it the present clone's."""
    climbed = next((s.setting for s in status.stages if s.kind == StageKind.CONTROL), None)
    if climbed is not None:
        return climbed
    assert status.clone is not None  # the ladder starts on a ready clone
    return status.clone.setting


def ladder_settings(plan: RunPlan, status: TuningRunStatus) -> LadderSettings:
    """What the ladder is built from; the same for the same stored status."""
    traffic = traffic_of(plan.profile_spec, plan.max_model_len, status.sources)
    ladder = plan.profile_spec.probe.ladder
    mean = mean_tokens(traffic.prompt_tokens)
    wanted = [max(1, round(share * mean)) for share in PREFILL_SHARES]
    wanted += [times * plan.bounds.lowest.max_num_batched_tokens for times in PREFILL_BUDGETS]
    sizes = {min(longest_tokens(traffic.prompt_tokens), tokens) for tokens in wanted}
    return LadderSettings(
        slo=loosest_slo(slo_of(plan.profile_spec), traffic.kinds.classes),
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
        timing=traffic.timing,
        kinds=traffic.kinds,
    )


@dataclass(frozen=True)
class Evaluation:
    """What is fitted to the stages of a run, those between disagreeing controls left out."""

    stages: tuple[StageSummary, ...]
    throughput: ThroughputFit
    boundary: Boundary
    engine: LawFit | None


def evaluate(plan: RunPlan, status: TuningRunStatus) -> Evaluation:
    """Fit all that is fitted. It takes seconds: a tick that does it runs beside the event loop."""
    stages = mark_void(status.stages, plan.profile_spec.probe.ladder.control_tolerance_percent / 100)
    classes = traffic_of(plan.profile_spec, plan.max_model_len, status.sources).kinds.classes
    boundary = slo_boundary(stages, loosest_slo(slo_of(plan.profile_spec), classes))
    engine = fit_engine(stages, _measured_traffic(plan, status, stages))
    return Evaluation(stages, fit_throughput(stages, _elasticity(plan)), boundary, engine)


def _elasticity(plan: RunPlan) -> float:
    """Of throughput at the knee: what the profile asks for, else the usual one."""
    percent = plan.profile_spec.parameters.knee_elasticity_percent
    return KNEE_ELASTICITY if percent is None else percent / 100


def twin_traffic(settings: LadderSettings) -> TwinTraffic:
    """The load of the ladder as the twin sees it."""
    return TwinTraffic(
        prompt_tokens=settings.prompt_tokens,
        output_tokens=settings.output_tokens,
        burstiness=settings.burstiness,
        kv_cache_tokens=settings.kv_cache_tokens,
        classes=settings.kinds.classes,
        prefix=_prefix(settings.kinds.hit_share),
    )


def twin_traffic_of(plan: RunPlan, sources: SourceFacts | None, kv_cache_tokens: int) -> TwinTraffic:
    """The declared or learned load as the twin sees it, where there is no ladder."""
    traffic = traffic_of(plan.profile_spec, plan.max_model_len, sources)
    return TwinTraffic(
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        burstiness=traffic.burstiness,
        kv_cache_tokens=kv_cache_tokens,
        classes=traffic.kinds.classes,
        prefix=_prefix(traffic.kinds.hit_share),
    )


def _prefix(hit_share: float) -> PrefixSharing | None:
    return PrefixSharing(hit_share=hit_share, block_tokens=BLOCK_SIZE_TOKENS) if hit_share else None


def _measured_traffic(plan: RunPlan, status: TuningRunStatus, stages: Sequence[StageSummary]) -> TwinTraffic:
    """The load, on an engine that runs no more sequences at a time than the stages have shown, with as large a KV cache
    as the engines had that were started."""
    settings = ladder_settings(plan, status)
    return replace(twin_traffic(settings), most_running=most_running(stages), caches=_caches(settings, status))


def _caches(settings: LadderSettings, status: TuningRunStatus) -> tuple[tuple[int, int], ...]:
    tried = [(choice.setting, choice.kv_cache_tokens) for choice in status.choices]
    seen = {setting.max_num_batched_tokens: tokens for setting, tokens in tried if tokens is not None}
    if settings.kv_cache_tokens is None or not seen:
        return ()
    return tuple(sorted({settings.ceiling.max_num_batched_tokens: settings.kv_cache_tokens, **seen}.items()))


def fit_of(evaluation: Evaluation, status: TuningRunStatus, ramp_ended_by: str) -> Fit:
    """What the ramp says of the engine, for people and for the next choice."""
    throughput, boundary = evaluation.throughput, evaluation.boundary
    law = evaluation.engine.law if evaluation.engine is not None else None
    return Fit(
        verdict=throughput.verdict,
        alpha=throughput.alpha_s,
        beta=throughput.beta_s,
        cap_requests_per_second=throughput.cap,
        knee=_estimate(throughput.knee),
        tpot_boundary=_estimate(boundary.tpot),
        step_base=law.base_s if law else None,
        step_per_sequence=law.per_sequence_s if law else None,
        step_per_prefill_token=law.per_prefill_token_s if law else None,
        kv_cache_tokens=_kv_cache_tokens(status),
        ramp_ended_by=ramp_ended_by,
        message=throughput.message[:512],
    )


def choose_input(plan: RunPlan, status: TuningRunStatus, evaluation: Evaluation) -> ChooseInput:
    """Everything that Choose looks at, earlier certifications included."""
    settings, highest = ladder_settings(plan, status), plan.bounds.highest
    return ChooseInput(
        ladder=settings,
        stages=evaluation.stages,
        engine=evaluation.engine,
        traffic=_measured_traffic(plan, status, evaluation.stages),
        bounds=SettingBounds(lowest=plan.bounds.lowest, highest=_lower_of(highest, settings.ceiling)),
        previous=status.certifications,
        sequence_grid=valid_sequence_grid(highest.max_num_seqs),
        token_grid=valid_token_grid(highest.max_num_batched_tokens),
        users=declared_users(plan.profile_spec) if asks_for_throughput(plan.profile_spec) else None,
        knee_cap=_cap(plan, evaluation),
        certified_by=_certified_by(plan, settings),
    )


def _certified_by(plan: RunPlan, settings: LadderSettings) -> int | None:
    """Requests of the open loop that the choice is certified with: at least as many as its gaps ask for."""
    workload = plan.profile_spec.workload
    if workload is not None and workload.arrivals.process is ArrivalProcess.CLOSED:
        return None
    planned = planned_requests(settling_requests(Open(rate=1.0, burstiness=settings.burstiness)))
    return certify_requests([kind.weight for kind in settings.kinds.classes], planned)


def _cap(plan: RunPlan, evaluation: Evaluation) -> KneeCap | None:
    """None unless the profile makes its knee a hard cap."""
    if plan.profile_spec.parameters.knee_elasticity_percent is None:
        return None
    return knee_cap(evaluation.throughput, evaluation.stages, _elasticity(plan))


def _lower_of(a: Setting, b: Setting) -> Setting:
    """Nothing beyond the ceiling was seen, so nothing beyond it is chosen."""
    return Setting(
        max_num_seqs=min(a.max_num_seqs, b.max_num_seqs),
        max_num_batched_tokens=min(a.max_num_batched_tokens, b.max_num_batched_tokens),
    )


def _kv_cache_tokens(status: TuningRunStatus) -> int | None:
    """As the ceiling's engine reported it: later ones with lower limits have somewhat more."""
    if status.fit is not None:
        return status.fit.kv_cache_tokens
    return status.clone.kv_cache_tokens if status.clone is not None else None


def _estimate(interval: Interval | None) -> KneeEstimate | None:
    if interval is None:
        return None
    return KneeEstimate(concurrency=interval.estimate, lower=interval.lower, upper=interval.upper)
