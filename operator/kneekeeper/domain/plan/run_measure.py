"""The measuring steps: Ceiling, Ramp, Choose, Certify, Baseline."""

from __future__ import annotations

from dataclasses import replace

from kneekeeper.api.model import Setting
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.stage import Limits
from kneekeeper.api.tuning_run import (
    Certification,
    Choice,
    RunOutcome,
    RunStep,
    StageKind,
    StageSummary,
    TuningRunStatus,
    Verdict,
)
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.certify import SAFETY, planned_requests
from kneekeeper.domain.choose import Chosen, choose
from kneekeeper.domain.engine_law import wanted_stages
from kneekeeper.domain.improvement import Improvement, shown_improvement, with_improvement
from kneekeeper.domain.ladder import LadderDone, LadderEnd, StageOrder, next_stage, next_warm_up
from kneekeeper.domain.mix_verdicts import certify_requests
from kneekeeper.domain.observation import RunObservation
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.evaluate import choose_input, evaluate, fit_of, ladder_settings
from kneekeeper.domain.plan.offers import Offer, baseline_offer, certified_offer, least_requests
from kneekeeper.domain.plan.own_cache import with_own_cache
from kneekeeper.domain.plan.requests import traffic_of
from kneekeeper.domain.plan.run_clone import (
    CloneDown,
    CloneReady,
    clone_words,
    engine_container,
    lower_ceiling,
    note_failure,
    start_clone,
    want_clone,
)
from kneekeeper.domain.plan.run_end import cut_short, ended, going_on, over_budget
from kneekeeper.domain.plan.run_in_place import is_in_place, want_serving_pod
from kneekeeper.domain.plan.run_live import NotLive, is_as_production, tune_live
from kneekeeper.domain.plan.run_stage import StageDecided, is_void, run_stage
from kneekeeper.domain.plan.throughput_runs import (
    asks_for_throughput,
    certification_of_throughput,
    compared,
    full_limits,
)
from kneekeeper.domain.stage_orders import MOST_REQUESTS

MAX_CERTIFICATIONS = 3  # the first and two refits
MAX_VOID_STAGES = 2
MAX_CRASHES = 3
CRASHES_UNDER_LOAD = "CrashesUnderLoad"


def ceiling(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Start the engine with the highest setting that it takes."""
    plan = _plan(status)
    over = over_budget(status, obs)
    if over is not None:
        return RunDecision(over)
    highest = plan.present if is_in_place(plan) else plan.live_start or plan.bounds.highest
    wanted = status.clone.setting if status.clone is not None else highest
    engine = want_serving_pod(obs, status) if is_in_place(plan) else want_clone(obs, status, wanted)
    if isinstance(engine, RunDecision):
        return engine
    if isinstance(engine, CloneReady):
        return RunDecision(going_on(engine.status, RunStep.RAMP, f"The engine runs with {wanted}."), next_tick_s=0.5)
    status = note_failure(status, wanted, engine.failure)
    lowered = lower_ceiling(plan, wanted, engine.failure)
    if lowered is not None and isinstance(clone_words(engine_container(obs.workload, plan), plan, lowered), Refusal):
        lowered = plan.present
    if lowered is None:
        message = f"The engine does not start even as it is: {engine.failure.message}"
        return RunDecision(ended(status, RunOutcome.FAILED, engine.failure.kind, message))
    # One restart is kept: without a certification the ramp would be for nothing.
    if status.cost.engine_starts >= plan.profile_spec.probe.budget.max_restarts:
        message = f"No start is left for a lower ceiling (spec.probe.budget.maxRestarts): {engine.failure.message}"
        return RunDecision(ended(status, RunOutcome.FAILED, engine.failure.kind, message))
    return start_clone(obs, status, lowered)


def ramp(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Climb the ladder on the ceiling, one decided stage after the other."""
    assert status.clone is not None  # Ceiling leaves a ready one
    engine = serving(obs, status, status.clone.setting)
    if isinstance(engine, RunDecision):
        return engine
    settings = ladder_settings(_plan(status), engine.status)
    order = next_stage(settings, engine.status.stages)
    if isinstance(order, LadderDone):
        if order.reason in (LadderEnd.CONTROLS_DISAGREE, LadderEnd.NOT_MEASURABLE):
            return RunDecision(ended(engine.status, RunOutcome.INCONCLUSIVE, order.reason, order.message))
        evaluation = evaluate(_plan(status), engine.status)
        further = next_stage(replace(settings, more=wanted_stages(evaluation.engine, settings)), engine.status.stages)
        if isinstance(further, LadderDone):
            fit = fit_of(evaluation, engine.status, order.reason)
            climbed = engine.status.with_changes(fit=fit)
            return RunDecision(going_on(climbed, RunStep.CHOOSE, order.message), next_tick_s=0.5)
        order = further
    decided = run_stage(obs, engine, order)
    if isinstance(decided, RunDecision):
        return decided
    return decided.then(decided.status)


def choose_setting(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Fit what was measured and propose a setting with a rate."""
    plan = _plan(status)
    ended_by = status.fit.ramp_ended_by if status.fit is not None else ""
    evaluation = evaluate(plan, status)
    status = status.with_changes(fit=fit_of(evaluation, status, ended_by))
    choice = choose(choose_input(plan, status, evaluation))
    if not isinstance(choice, Chosen):
        return RunDecision(ended(status, choice.reason, choice.reason, choice.message))
    entry = Choice(
        attempt=len(status.choices) + 1,
        setting=choice.setting,
        sustainable_requests_per_second=choice.sustainable,
        bound_by=choice.bound_by,
        message=choice.message[:512],
    )
    status = status.with_changes(choices=[*status.choices, entry])
    if is_in_place(plan) and entry.setting != plan.present:
        told = f"Predicts {entry.setting}; the present setting is compared."
        return RunDecision(going_on(status, RunStep.BASELINE, told), next_tick_s=0.5)
    return RunDecision(going_on(status, RunStep.CERTIFY, f"Certifies {entry.setting}."), next_tick_s=0.5)


def certify(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Prove the choice under the declared load on an engine that was started with it, or as production's are."""
    spec = _plan(status).profile_spec
    engine, started = _certified_engine(obs, status)
    if isinstance(engine, RunDecision):
        return engine
    engine = replace(engine, status=with_own_cache(engine.status))
    choice = engine.status.choices[-1]
    offer = certified_offer(_plan(status), engine.status, choice)
    decided = offered_stage(obs, engine, StageKind.CERTIFY, f"certify-{choice.attempt}", offer)
    if isinstance(decided, RunDecision):
        return decided
    status, stage = decided.status, decided.summary
    if asks_for_throughput(spec):
        certification = certification_of_throughput(choice, stage, status.stages)
    else:
        certification = _certification(choice, offer, stage)
    certification = changed(certification, started_with=started)
    status = status.with_changes(certifications=[*status.certifications, certification])
    if certification.verdict == Verdict.PASS:
        status = going_on(status, RunStep.BASELINE, "The choice is certified; the present setting is compared.")
    elif len(status.certifications) < MAX_CERTIFICATIONS:
        status = going_on(status, RunStep.CHOOSE, f"Certification {choice.attempt}: {certification.verdict}.")
    else:
        status = ended(
            status,
            RunOutcome.INCONCLUSIVE,
            "NotCertified",
            f"No setting was certified in {MAX_CERTIFICATIONS} attempts: {certification.message} Look for other work "
            f"on the node{'' if asks_for_throughput(spec) else ', or raise the targets in spec.slo'}.",
        )
    return decided.then(status)


def _certified_engine(obs: RunObservation, status: TuningRunStatus) -> tuple[CloneReady | RunDecision, Setting | None]:
    """The engine with the choice, and what it was started with where that is set live."""
    setting = status.choices[-1].setting
    over = over_budget(status, obs)
    if over is None and is_as_production(status):
        live = tune_live(obs, status, setting)
        if not isinstance(live, NotLive):
            return live, status.clone.setting if status.clone is not None else None
        status = live.status
    return serving(obs, status, setting), None


def _certification(choice: Choice, offer: Offer, stage: StageSummary) -> Certification:
    # A closed loop offers users: its rate is what they made of it, and a fifth fewer make no less than a fifth less.
    offered = stage.requests_per_second if offer.users is not None else offer.rate
    return Certification(
        attempt=choice.attempt,
        setting=choice.setting,
        offered_requests_per_second=offered,
        promised_requests_per_second=offered / SAFETY,
        offered_users=offer.users,
        promised_users=offer.promised_users,
        verdict=stage.verdict or Verdict.INCONCLUSIVE,
        requests=stage.requests,
        misses=stage.misses or 0,
        message=stage.message,
    )


def baseline(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Offer the present setting what the choice has carried, less the improvement that is asked for.

    If it fails there, the choice's promise is higher by at least that much.
    """
    plan, proven = _plan(status), status.certifications[-1]
    if proven.setting == plan.present:
        message = f"The present setting {plan.present} is the best that was found."
        return RunDecision(ended(status, RunOutcome.NO_IMPROVEMENT, "PresentIsBest", message))
    engine, status = _present_engine(obs, status)
    if engine is None:
        message = "Certified; no restart was left to compare the present setting."
        return RunDecision(ended(status, RunOutcome.CERTIFIED, "PresentNotMeasured", message))
    asked_percent = plan.profile_spec.update_policy.min_improvement_percent
    wanted = 1 + asked_percent / 100
    if isinstance(engine, RunDecision):
        if engine.status.cause == CRASHES_UNDER_LOAD:
            return RunDecision(
                ended(
                    with_improvement(status, Improvement(True, asked_percent, None)),
                    RunOutcome.CERTIFIED,
                    "Certified",
                    f"The present setting fails: {engine.status.message}",
                )
            )
        return engine
    offer = baseline_offer(plan, status, proven, wanted)
    decided = offered_stage(obs, engine, StageKind.BASELINE, "baseline-1", offer)
    if isinstance(decided, RunDecision):
        return decided
    status, stage = decided.status, decided.summary
    if asks_for_throughput(plan.profile_spec) and not is_void(stage):
        return decided.then(compared(plan, status, proven, stage))
    shown = shown_improvement(proven.offered_requests_per_second, offer.rate, stage, asked_percent)
    rate = f"{offer.rate:.3g} requests/s"
    if stage.verdict == Verdict.FAIL:
        status = ended(
            with_improvement(status, shown),
            RunOutcome.CERTIFIED,
            "Certified",
            f"{proven.setting} holds the SLO at {proven.offered_requests_per_second:.3g} requests/s; "
            f"the present {plan.present} breaks it at {rate}: at least {shown.percent}% more.",
        )
    elif is_void(stage):
        status = cut_short(status, RunOutcome.INCONCLUSIVE, "NotMeasurable", stage.message)
    elif stage.verdict == Verdict.PASS:
        status = ended(
            with_improvement(status, shown),
            RunOutcome.NO_IMPROVEMENT,
            "ImprovementNotShown",
            f"The present {plan.present} holds the SLO at {rate} too, so {proven.setting} is not shown to be better by "
            "spec.updatePolicy.minImprovementPercent.",
        )
    else:
        status = ended(
            with_improvement(status, shown),
            RunOutcome.NO_IMPROVEMENT,
            "ImprovementNotShown",
            f"Whether the present {plan.present} holds the SLO at {rate} could not be told, so {proven.setting} is not "
            "shown to be better by spec.updatePolicy.minImprovementPercent.",
        )
    return decided.then(status)


def _runs(status: TuningRunStatus, setting: Setting) -> bool:
    return status.clone is not None and status.clone.setting == setting


def _present_engine(
    obs: RunObservation, status: TuningRunStatus
) -> tuple[CloneReady | RunDecision | None, TuningRunStatus]:
    """The engine with the present setting: the one that runs, where it can be tuned live, else one that is started
    for it; None where no restart is left. The status says whether live tuning works, where it is allowed."""
    plan = _plan(status)
    over = over_budget(status, obs)
    if over is not None:
        return RunDecision(over), status
    live = tune_live(obs, status, plan.present)
    if not isinstance(live, NotLive):
        return live, live.status
    status = live.status
    if status.cost.engine_starts - 1 >= plan.profile_spec.probe.budget.max_restarts and not _runs(status, plan.present):
        return None, status
    return serving(obs, status, plan.present), status


def offered_stage(
    obs: RunObservation, engine: CloneReady, kind: StageKind, name: str, offer: Offer
) -> StageDecided | RunDecision:
    """A stage under the declared load on this engine, warmed up; repeated when it was void."""
    plan, status = _plan(engine.status), engine.status
    assert status.clone is not None  # a ready clone is stored
    settings = ladder_settings(plan, status)
    warm_up = next_warm_up(settings, status.stages, status.clone.start)
    if isinstance(warm_up, StageOrder):
        warmed = run_stage(obs, engine, warm_up)
        if isinstance(warmed, RunDecision):
            return warmed
        return warmed.then(warmed.status)
    tries = sum(1 for s in status.stages if s.name == name or s.name.startswith(f"{name}-retry-"))
    traffic = traffic_of(plan.profile_spec, plan.max_model_len, status.sources)
    floor = least_requests(plan, status, offer.arrivals, engine.setting)
    weights = [each.weight for each in traffic.kinds.classes]
    requests = min(MOST_REQUESTS, certify_requests(weights, planned_requests(floor)))
    limits = Limits(min_requests=requests, max_requests=requests, max_duration_s=max(60.0, 1.5 * requests / offer.rate))
    if offer.users is not None and asks_for_throughput(plan.profile_spec):
        limits = full_limits(offer.users, offer.rate)
    order = StageOrder(
        name=name if tries == 0 else f"{name}-retry-{tries}",
        kind=kind,
        arrivals=offer.arrivals,
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        limits=limits,
        kinds=traffic.kinds,
        min_pass_requests=floor,
    )
    decided = run_stage(obs, engine, order)
    if isinstance(decided, StageDecided) and is_void(decided.summary) and tries < MAX_VOID_STAGES:
        return decided.then(decided.status)
    return decided


def serving(obs: RunObservation, status: TuningRunStatus, setting: Setting) -> CloneReady | RunDecision:
    """The engine with `setting`; budgets hold, and a crash is counted. In place it has the present one alone."""
    over = over_budget(status, obs)
    if over is not None:
        return RunDecision(over)
    if is_in_place(_plan(status)):
        return want_serving_pod(obs, status)
    engine = want_clone(obs, status, setting)
    if not isinstance(engine, CloneDown):
        return engine
    status = note_failure(status, setting, engine.failure)
    crashes = sum(1 for f in status.clone_failures if f.setting == setting)
    message = f"The engine with {setting} does not hold: {engine.failure.message}"
    if not engine.was_ready:
        return RunDecision(cut_short(status, RunOutcome.FAILED, engine.failure.kind, message))
    if crashes >= MAX_CRASHES:
        return RunDecision(ended(status, RunOutcome.FAILED, CRASHES_UNDER_LOAD, message))
    return start_clone(obs, status, setting)


def _plan(status: TuningRunStatus) -> RunPlan:
    assert status.plan is not None  # frozen by Preflight
    return status.plan
