"""A run without any load: what production's metrics show of the engine, and what the twin makes of it.

It starts nothing and sends nothing, so nothing that it finds is proven: its recommendation is never written.
"""

from __future__ import annotations

from kneekeeper.api.profile_status import KneeEstimate
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.tuning_run import Choice, Fit, RunOutcome, TuningRunStatus
from kneekeeper.domain.engines import valid_sequence_grid, valid_token_grid
from kneekeeper.domain.observation import RunObservation, Unreachable
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.evaluate import twin_traffic_of
from kneekeeper.domain.plan.requests import slos_of
from kneekeeper.domain.plan.run_end import ended
from kneekeeper.domain.production_choice import Evidence, Lack, NotEnough, Prediction, evidence_of, predict

PREDICTED = "Predicted"
"""Reason of conditions: chosen by the twin from production's metrics, and not proven under load."""

RARELY_S = 600.0
"""Until production's history is read again for a run that waits for it: a few dozen queries over a day."""

_NO_HISTORY = (
    "Production's metrics are read from the pods themselves, which keep no history: name a Prometheus server in "
    "spec.metrics.prometheusRef."
)


def production_evidence(obs: RunObservation) -> Evidence | NotEnough:
    """What production tells of the engine now, or why it is not enough to choose by."""
    if isinstance(obs.records, Unreachable):
        return NotEnough(Lack.METRICS_MISSING, obs.records.why)
    return NotEnough(Lack.METRICS_MISSING, _NO_HISTORY) if obs.records is None else evidence_of(obs.records)


def choose_from_production(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """The end of a passive run: a prediction, or why there is none."""
    plan = status.plan
    assert plan is not None  # frozen by Preflight
    evidence = production_evidence(obs)
    if isinstance(evidence, NotEnough):
        return RunDecision(ended(status, RunOutcome.INCONCLUSIVE, evidence.reason, evidence.message))
    status = status.with_changes(fit=_fit_of(evidence))
    traffic = twin_traffic_of(plan, status.sources, evidence.kv_cache_tokens)
    prediction = predict(
        evidence,
        traffic,
        slos_of(plan.profile_spec),
        plan.bounds,
        plan.present,
        valid_sequence_grid(plan.bounds.highest.max_num_seqs),
        valid_token_grid(plan.bounds.highest.max_num_batched_tokens),
    )
    if isinstance(prediction, NotEnough):
        return RunDecision(ended(status, RunOutcome.INCONCLUSIVE, prediction.reason, prediction.message))
    return RunDecision(_told(status, plan, prediction, evidence))


def _told(status: TuningRunStatus, plan: RunPlan, found: Prediction, evidence: Evidence) -> TuningRunStatus:
    chosen, present = found.chosen, found.present_per_s
    entry = Choice(
        attempt=1,
        setting=chosen.setting,
        sustainable_requests_per_second=chosen.sustainable,
        bound_by=chosen.bound_by,
        message=chosen.message[:512],
    )
    status = status.with_changes(choices=[entry])
    rests = f"Predicted, not proven: from production's metrics of {evidence.pod} alone, without load."
    asked_percent = plan.profile_spec.update_policy.min_improvement_percent
    if chosen.setting == plan.present or chosen.sustainable < (1 + asked_percent / 100) * present:
        message = (
            f"No setting is predicted to carry {asked_percent}% more than the present {plan.present} "
            f"({present:.3g} requests/s a replica). {rests}"
        )
        return ended(status, RunOutcome.NO_IMPROVEMENT, "ImprovementNotPredicted", message)
    against = f"{present:.3g} requests/s" if present > 0 else "no rate inside the SLO"
    message = f"{chosen.message} The present {plan.present}: {against}. {rests}"
    return ended(status, RunOutcome.PREDICTED, PREDICTED, message)


def _fit_of(evidence: Evidence) -> Fit:
    law, knee = evidence.law.law, evidence.knee
    weak = ", ".join(evidence.law.weak)
    return Fit(
        verdict="Knee",
        knee=KneeEstimate(concurrency=knee.estimate, lower=knee.lower, upper=knee.upper),
        step_base=law.base_s,
        step_per_sequence=law.per_sequence_s,
        step_per_prefill_token=law.per_prefill_token_s,
        kv_cache_tokens=evidence.kv_cache_tokens,
        message=(
            f"From {evidence.windows} windows of pod {evidence.pod}, the weakest of {evidence.replicas} whose knee is "
            f"known. Hardly told by production: {weak}."
        )[:512],
    )
