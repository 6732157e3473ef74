"""A certified run as a recommendation: the setting, its evidence, and the change as a command."""

from __future__ import annotations

import hashlib

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import Recommendation, ServingProfileStatus
from kneekeeper.api.tuning_run import StageKind, TuningRun, Verdict
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.target import Target, words_with
from kneekeeper.domain.targets.patches import patches_of


def recommendation_of(
    run: TuningRun, obs: ProfileObservation, target: Target, status: ServingProfileStatus
) -> Recommendation | None:
    """What the run recommends; None where the engine has changed so that it cannot be written any more."""
    plan = run.status.plan
    proven = next((c for c in reversed(run.status.certifications) if c.verdict == Verdict.PASS), None)
    if plan is None or proven is None or not run.status.choices:
        return None
    words = words_with(target.container, proven.setting)
    if isinstance(words, Refusal):
        return None
    name = str(run.metadata["name"])
    shown = run.status.present_breaks_slo is True
    stage = next((s for s in reversed(run.status.stages) if s.kind == StageKind.CERTIFY), None)
    digest = hashlib.sha256(f"{name}/{proven.setting}/{plan.fingerprint}".encode()).hexdigest()[:10]
    before = status.recommendation
    if before is not None and before.hash == digest and target.present == proven.setting:
        return before  # in force: there is nothing to patch any more
    patches = patches_of(target.workload, target.container, words, proven.setting)
    return Recommendation(
        setting=proven.setting,
        hash=digest,
        run=name,
        fingerprint=plan.fingerprint,
        sustainable_requests_per_second=run.status.choices[-1].sustainable_requests_per_second,
        promised_requests_per_second=proven.promised_requests_per_second,
        bound_by=run.status.choices[-1].bound_by,
        p99_ttft=stage.p99_ttft if stage else None,
        p99_tpot=stage.p99_tpot if stage else None,
        improvement=run.status.message[:256],
        improvement_percent=run.status.improvement_percent if shown else None,
        present_breaks_slo=shown,
        raises_capacity=_raises_capacity(run, plan.present, proven.setting),
        patch=patches.kubectl,
        kustomize=patches.kustomize,
        helm_values=patches.helm_values,
    )


def _raises_capacity(run: TuningRun, present: Setting, chosen: Setting) -> bool:
    """Whether the choice carries more than the present setting, SLO or not: it lowers neither limit, or the
    present one could not even keep up with what the choice was compared at."""
    if chosen.max_num_seqs >= present.max_num_seqs and chosen.max_num_batched_tokens >= present.max_num_batched_tokens:
        return True
    compared = [s for s in run.status.stages if s.kind == StageKind.BASELINE]
    return compared[-1].saturated if compared else run.status.present_breaks_slo is True
