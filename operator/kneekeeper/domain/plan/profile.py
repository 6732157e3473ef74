"""One profile: is it accepted, what is its engine, is a run needed, is a change under way, is all well?"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from kneekeeper.api.model import ConditionStatus
from kneekeeper.api.profile_status import EngineFacts, ServingProfileStatus
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.domain.actions import DeleteRun, ProfileAction
from kneekeeper.domain.images import last_image, running_image
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan import (
    events,
    profile_apply,
    profile_live,
    profile_rollout,
    profile_runs,
    profile_upgrade,
    profile_watch,
)
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.decisions import ProfileDecision
from kneekeeper.domain.plan.probe_traffic import without_probe_traffic
from kneekeeper.domain.plan.profile_schedule import with_schedule
from kneekeeper.domain.plan.profile_traffic import NOT_LEARNED, with_traffic_drift
from kneekeeper.domain.plan.questions import questions_of
from kneekeeper.domain.target import Target, resolve

IDLE_TICK_S = 300.0
ACTIVE_TICK_S = 5.0
SHORTEST_TICK_S = 1.0
RUN_WAITS_TICK_S = 30.0
MEASURING_TICK_S = 15.0
"""The status then only tells how far the run is."""
TARGET_MISSING_TICK_S = 60.0


def decide(obs: ProfileObservation) -> ProfileDecision:
    """The next status and actions of this profile."""
    if obs.deleting:
        return _delete(obs)
    obs = without_probe_traffic(obs)
    generation = int(obs.profile.metadata.get("generation", 0))
    before = obs.profile.status
    conditions = ProfileConditions(before.conditions, generation, obs.now)
    status, actions = _advance(obs, before, conditions)
    status = changed(status, conditions=conditions.all, observed_generation=generation)
    actions = (*actions, *events.of_change(before, status))
    return ProfileDecision(status, actions, _next_tick_s(obs, status, conditions))


def not_understood(before: ServingProfileStatus, generation: int, now: datetime, why: str) -> ServingProfileStatus:
    """The status of a profile that a later version may have written: until it is understood, nothing is done."""
    conditions = ProfileConditions(before.conditions, generation, now)
    conditions.false(ConditionType.ACCEPTED, "NotUnderstood", why)
    profile_watch.not_ready(conditions)
    return changed(before, conditions=conditions.all, observed_generation=generation)


def _next_tick_s(obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions) -> float:
    """Seconds; a run that ends and a workload that changes wake the profile by themselves."""
    wait_s = _tick_s(obs, status, conditions)
    if status.schedule is None:
        return wait_s
    return min(wait_s, max(SHORTEST_TICK_S, (status.schedule.until - obs.now).total_seconds()))


def _tick_s(obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions) -> float:
    if status.rollout is not None:
        return ACTIVE_TICK_S
    target = conditions.get(ConditionType.TARGET_FOUND)
    if target is not None and target.status == ConditionStatus.FALSE:
        return TARGET_MISSING_TICK_S
    applied = conditions.get(ConditionType.APPLIED)
    if status.active_run is None:
        waits_for_room = applied is not None and applied.reason == profile_apply.NO_SURGE_ROOM
        # The first new pod may fail while the old ones still serve.
        rolls = obs.workload is not None and not obs.workload.rolled_out
        if _learned_just_now(status, conditions):
            return ACTIVE_TICK_S
        waits = waits_for_room or rolls or profile_live.is_under_way(obs, status)
        return RUN_WAITS_TICK_S if waits else IDLE_TICK_S
    if all(run.metadata["name"] != status.active_run for run in obs.runs):
        return ACTIVE_TICK_S  # it is made now
    waits = any(run.status.step == RunStep.PREFLIGHT and run.status.waiting_for for run in obs.runs)
    return RUN_WAITS_TICK_S if waits else MEASURING_TICK_S


def _learned_just_now(status: ServingProfileStatus, conditions: ProfileConditions) -> bool:
    """What a run waited for is there, since the end of this tick."""
    probing = conditions.get(ConditionType.PROBING)
    return probing is not None and probing.reason == NOT_LEARNED and status.observed_workload is not None


def _advance(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    problem = spec_problem(obs.profile.spec)
    taken = obs.older_profiles_on_target
    if problem is not None:
        conditions.false(ConditionType.ACCEPTED, problem.reason, problem.message)
    elif taken:
        conditions.false(
            ConditionType.ACCEPTED,
            "TargetTaken",
            f"ServingProfile {taken[0]} is older and tunes the same workload. Delete one of them.",
        )
    else:
        conditions.true(ConditionType.ACCEPTED, "Accepted", "")
    status = with_schedule(obs, status, conditions)
    target = _target(obs, status, conditions)
    if isinstance(target, Target):
        status = changed(status, engine=_facts(obs, status, target))
        if conditions.is_true(ConditionType.ACCEPTED):
            status = profile_live.follow(obs, status, conditions, target)
    if status.rollout is not None:
        # A change under way is brought to its end, whatever became of the profile meanwhile.
        status, actions = profile_rollout.advance(obs, status, conditions, target)
        return profile_watch.sum_up(obs, status, conditions, target), actions
    if not conditions.is_true(ConditionType.ACCEPTED) or target is None:
        profile_watch.not_ready(conditions)
        return changed(status, stage="", active_run=_active(obs)), ()
    in_force = status.schedule.entry if status.schedule is not None else None
    questions = questions_of(obs.profile.spec, target.fingerprint, in_force)
    status = with_traffic_drift(obs, status, target, questions)
    status, run_actions = profile_runs.advance(obs, status, conditions, target, questions)
    status, rollout_actions = profile_upgrade.mend(obs, status, conditions, target)
    if status.rollout is None:
        status, rollout_actions = profile_rollout.watch_on(obs, status, conditions, target)
    if status.rollout is None:
        status, rollout_actions = profile_live.take_out_if_due(obs, status, conditions, target)
    if status.rollout is None:
        status, rollout_actions = profile_apply.start_if_due(obs, status, conditions, target)
    if status.rollout is None:
        rollout_actions = (*rollout_actions, *profile_live.ensure_limits(obs, status, target))
        status, ahead = profile_runs.measure_ahead(obs, status, conditions, target, questions)
        run_actions = (*run_actions, *ahead)
    return profile_watch.sum_up(obs, status, conditions, target), (*run_actions, *rollout_actions)


def _active(obs: ProfileObservation) -> str | None:
    return next((r.metadata["name"] for r in obs.runs if r.status.step != RunStep.DONE), None)


def _target(obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions) -> Target | None:
    ref = obs.profile.spec.target_ref
    if obs.workload is None:
        reason = "TargetUnreadable" if obs.workload_problem else "TargetNotFound"
        message = obs.workload_problem or (
            f"{ref.kind} {ref.name} does not exist in namespace {obs.profile.metadata['namespace']}. "
            "Create it, or correct spec.targetRef in a new profile."
        )
        conditions.false(ConditionType.TARGET_FOUND, reason, message)
        return None
    gpu_product = profile_watch.gpu_product(obs, status)
    target = resolve(obs.workload, ref, gpu_product)
    if not isinstance(target, Target):
        conditions.false(ConditionType.TARGET_FOUND, target.reason, target.message)
        return None
    image = running_image(target.container.image, obs.workload, obs.pods, last_image(status))
    conditions.true(
        ConditionType.TARGET_FOUND,
        "TargetFound",
        f"Container {target.container.name} runs vLLM with {target.present}.",
    )
    return replace(target, image=image.identity)


def _facts(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> EngineFacts:
    image = running_image(target.container.image, target.workload, obs.pods, last_image(status))
    return EngineFacts(
        container=target.container.name,
        image=image.reference,
        image_digest=image.digest,
        model=target.arguments.model,
        gpu_product=profile_watch.gpu_product(obs, status),
        replicas=target.workload.replicas,
        max_num_seqs=target.arguments.max_num_seqs,
        max_num_batched_tokens=target.arguments.max_num_batched_tokens,
        fingerprint=target.fingerprint,
    )


def _delete(obs: ProfileObservation) -> ProfileDecision:
    """End what runs, restore what was asked to be restored, then let go."""
    actions: list[ProfileAction] = [DeleteRun(run.metadata["name"]) for run in obs.runs]
    restore = profile_apply.restoring(obs)
    if restore is not None:
        actions.append(restore)
    return ProfileDecision(obs.profile.status, tuple(actions), next_tick_s=2.0, release=not actions)
