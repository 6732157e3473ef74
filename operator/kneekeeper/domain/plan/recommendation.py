"""A certified or passive run as a recommendation: the setting, its evidence, and the change as a command."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import Recommendation, RecommendationConfidence, ServingProfileStatus
from kneekeeper.api.tuning_run import RunOutcome, StageKind, TuningRun, Verdict
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.certify import OFFERED_SHARE, SAFETY
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.target import Target, words_with
from kneekeeper.domain.targets.patches import patches_of


def recommendation_of(
    run: TuningRun, obs: ProfileObservation, target: Target, status: ServingProfileStatus
) -> Recommendation | None:
    """What the run recommends; None where the engine has changed so that it cannot be written any more."""
    plan = run.status.plan
    best = _best_of(run)
    if plan is None or best is None:
        return None
    words = words_with(target.container, best.setting)
    if isinstance(words, Refusal):
        return None
    name = str(run.metadata["name"])
    tokens = best.promised_tokens_per_s
    stage = next((s for s in reversed(run.status.stages) if s.kind == StageKind.CERTIFY), None)
    digest = hashlib.sha256(f"{name}/{best.setting}/{plan.fingerprint}".encode()).hexdigest()[:10]
    before = status.recommendation
    if before is not None and before.hash == digest and target.present == best.setting:
        return before  # in force: there is nothing to patch any more
    patches = patches_of(target.workload, target.container, words, best.setting)
    return Recommendation(
        setting=best.setting,
        started_with=best.started_with,
        hash=digest,
        run=name,
        fingerprint=plan.fingerprint,
        confidence=best.confidence,
        sustainable_requests_per_second=run.status.choices[-1].sustainable_requests_per_second,
        promised_requests_per_second=best.promised_per_s,
        promised_output_tokens_per_second=tokens,
        bound_by=run.status.choices[-1].bound_by,
        # Of a full engine they say how long the queue was made.
        p99_ttft=stage.p99_ttft if stage and tokens is None else None,
        p99_tpot=stage.p99_tpot if stage and tokens is None else None,
        p99_e2e=stage.p99_e2e if stage and tokens is None else None,
        improvement=run.status.message[:256],
        improvement_percent=run.status.improvement_percent,
        present_breaks_slo=run.status.present_breaks_slo is True,
        raises_capacity=_raises_capacity(run, plan.present, best.setting),
        patch=patches.kubectl,
        kustomize=patches.kustomize,
        helm_values=patches.helm_values,
    )


@dataclass(frozen=True)
class _Best:
    """What a run found best, and what one replica of it may be promised."""

    setting: Setting
    confidence: RecommendationConfidence
    promised_per_s: float
    promised_tokens_per_s: float | None = None
    """Output tokens/s of an engine that is kept full."""
    started_with: Setting | None = None


def _best_of(run: TuningRun) -> _Best | None:
    """What was proven last; of a run that proves nothing what it predicts, less what a certification keeps in hand."""
    status = run.status
    proven = next((c for c in reversed(status.certifications) if c.verdict == Verdict.PASS), None)
    if not status.choices:
        return None
    if proven is not None:
        return _Best(
            proven.setting,
            RecommendationConfidence.CERTIFIED,
            proven.promised_requests_per_second,
            proven.promised_output_tokens_per_second,
            proven.started_with,
        )
    if status.outcome is not RunOutcome.PREDICTED:
        return None
    choice = status.choices[-1]
    promised = OFFERED_SHARE * choice.sustainable_requests_per_second / SAFETY
    return _Best(choice.setting, RecommendationConfidence.PREDICTED, promised)


def promise_of(recommendation: Recommendation) -> str:
    """What one replica promises, for people."""
    requests, tokens = recommendation.promised_requests_per_second, recommendation.promised_output_tokens_per_second
    if tokens is None:
        return f"{requests:.3g} requests/s a replica"
    return f"{tokens:.4g} output tokens/s ({requests:.3g} requests/s) a replica"


def _raises_capacity(run: TuningRun, present: Setting, chosen: Setting) -> bool:
    """Whether the choice carries more than the present setting, SLO or not: it lowers neither limit, it was measured
    to make more tokens, or the present one could not even keep up with what the choice was compared at."""
    if run.status.present_breaks_slo is False and run.status.improvement_percent is not None:
        return True
    if chosen.max_num_seqs >= present.max_num_seqs and chosen.max_num_batched_tokens >= present.max_num_batched_tokens:
        return True
    compared = [s for s in run.status.stages if s.kind == StageKind.BASELINE]
    return compared[-1].saturated if compared else run.status.present_breaks_slo is True
