"""The end of a run that measured a serving pod in place and found another setting better than the one it runs with.

The pod is not started with it, so it is predicted and never written. The present setting's half is measured: whether it
holds the SLO at what the choice should carry, less the improvement that is asked for.
"""

from __future__ import annotations

from kneekeeper.api.model import Setting
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.tuning_run import (
    Certification,
    Choice,
    RunOutcome,
    StageKind,
    StageSummary,
    TuningRunStatus,
    Verdict,
)
from kneekeeper.domain.certify import SAFETY
from kneekeeper.domain.observation import RunObservation
from kneekeeper.domain.plan import run_measure
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.offers import Offer, baseline_offer, certified_offer
from kneekeeper.domain.plan.run_end import ended
from kneekeeper.domain.plan.run_passive import PREDICTED
from kneekeeper.domain.plan.run_stage import is_void


def compare_in_place(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Offer the present setting what the choice should carry, less the improvement that is asked for. Where the choice
    is the present setting it was certified, and is the best that was found."""
    plan, choice = status.plan, status.choices[-1]
    assert plan is not None  # frozen by Preflight
    if choice.setting == plan.present:
        return run_measure.baseline(obs, status)
    engine = run_measure.serving(obs, status, plan.present)
    if isinstance(engine, RunDecision):
        return engine
    asked_percent = plan.profile_spec.update_policy.min_improvement_percent
    offer = baseline_offer(plan, status, _as_if_proven(plan, status, choice), 1 + asked_percent / 100)
    decided = run_measure.offered_stage(obs, engine, StageKind.BASELINE, "baseline-1", offer)
    if isinstance(decided, RunDecision):
        return decided
    status, stage, rate = decided.status, decided.summary, f"{offer.rate:.3g} requests/s"
    if is_void(stage):
        return decided.then(ended(status, RunOutcome.INCONCLUSIVE, "NotMeasurable", stage.message))
    if stage.verdict == Verdict.FAIL:
        message = (
            f"{choice.message} The present {plan.present} was measured and breaks the SLO at {rate}. Predicted, not "
            f"proven: the serving pod was not started with {choice.setting}."
        )
        status = status.with_changes(present_breaks_slo=True)
        return decided.then(ended(status, RunOutcome.PREDICTED, PREDICTED, message))
    holds = "could not be told to break the SLO"
    if stage.verdict == Verdict.PASS:
        holds = "holds the SLO"
        status = status.with_changes(certifications=[*status.certifications, _of_present(plan, choice, offer, stage)])
    message = (
        f"The present {plan.present} {holds} at {rate}, so {choice.setting} is not predicted to carry more by "
        "spec.updatePolicy.minImprovementPercent."
    )
    return decided.then(ended(status, RunOutcome.NO_IMPROVEMENT, "ImprovementNotPredicted", message))


def _as_if_proven(plan: RunPlan, status: TuningRunStatus, choice: Choice) -> Certification:
    """What a certification of the choice would have offered; it is not stored."""
    offer = certified_offer(plan, status, choice)
    return _certification(choice, choice.setting, offer, Verdict.INCONCLUSIVE)


def _of_present(plan: RunPlan, choice: Choice, offer: Offer, stage: StageSummary) -> Certification:
    """A comparison that the present setting passes is a certification of it: its test claims more than that of one,
    the SLO at the offered load itself."""
    certified = _certification(choice, plan.present, offer, Verdict.PASS)
    return certified.with_changes(requests=stage.requests, misses=stage.misses or 0, message=stage.message)


def _certification(choice: Choice, setting: Setting, offer: Offer, verdict: Verdict) -> Certification:
    return Certification(
        attempt=choice.attempt,
        setting=setting,
        offered_requests_per_second=offer.rate,
        promised_requests_per_second=offer.rate / SAFETY,
        offered_users=offer.users,
        promised_users=offer.promised_users,
        verdict=verdict,
        requests=0,
        misses=0,
    )
