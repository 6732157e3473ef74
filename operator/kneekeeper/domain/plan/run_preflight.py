"""Before anything is started: is there something to measure, and where may it be measured?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.run_plan import RunPlan, SettingBounds
from kneekeeper.api.serving_profile import ProbeTarget, ServingProfileSpec
from kneekeeper.api.tuning_run import RunOutcome, RunStep, TuningRunStatus
from kneekeeper.api.workload import Workload
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.observation import OBSTACLES_TO_CLONES, Obstacle, RunObservation, WorkloadView
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.decisions import RunDecision
from kneekeeper.domain.plan.live_scope import allows_live_changes, live_start_of, reason_by_rollout, started_of
from kneekeeper.domain.plan.profile_traffic import NOT_LEARNED, NOT_LEARNED_MESSAGE, measured_spec
from kneekeeper.domain.plan.run_borrow import reason_not_to_borrow
from kneekeeper.domain.plan.run_end import blocked, ended, going_on, waiting
from kneekeeper.domain.plan.run_in_place import reason_not_in_place
from kneekeeper.domain.plan.run_passive import RARELY_S, production_evidence
from kneekeeper.domain.plan.run_sources import after_sources, has_sources
from kneekeeper.domain.production_choice import Lack, NotEnough
from kneekeeper.domain.representative import misjudged_parts
from kneekeeper.domain.schedules import spec_in_force
from kneekeeper.domain.target import Target, TargetProblem, bounds_of, resolve, scheme_of, words_with
from kneekeeper.domain.windows import is_open, opens_after

WAIT_TICK_S = 15.0
DEFAULT_PORT = 8000


@dataclass(frozen=True)
class _Nowhere:
    """No allowed place to measure is free now."""

    reason: str
    message: str


_BEGINS = {
    ProbeTarget.PASSIVE: "Reading production's metrics.",
    ProbeTarget.IN_PLACE: "Looking for a serving pod without users.",
}

UNREPRESENTATIVE_PROMPTS = "UnrepresentativePrompts"
FLEET_BUDGET = "FleetBudget"

_SPECULATION = (
    "The engine decodes speculatively. Drawn prompts are random tokens, of which hardly a draft is accepted, so "
    "nothing that is measured with them holds in production. Give prompts of production in spec.workload.prompts."
)


def preflight(obs: RunObservation, status: TuningRunStatus) -> RunDecision:
    """Freeze the plan, or say why not. A reason that may pass is waited for, others end the run."""
    profile, workload = obs.profile, obs.workload
    assert profile is not None  # run.decide ends a run without a profile before it comes here
    problem = spec_problem(profile.spec)
    if problem is not None:
        return RunDecision(ended(status, RunOutcome.FAILED, problem.reason, problem.message))
    asked = spec_in_force(profile.spec, obs.run.spec.schedule)
    if asked is None:
        message = f"The profile has no spec.schedules[{obs.run.spec.schedule}]."
        return RunDecision(ended(status, RunOutcome.FAILED, "ScheduleGone", message))
    whole, profile = profile.spec, changed(profile, spec=asked)
    if workload is None:
        ref = profile.spec.target_ref
        return RunDecision(ended(status, RunOutcome.FAILED, "TargetNotFound", f"{ref.kind} {ref.name} does not exist."))
    if obs.runs_ahead_in_fleet:
        return _wait(status, FLEET_BUDGET, "Waits for one of the places that all runs of the fleet share (mostRuns).")
    target = resolve(workload, profile.spec.target_ref, obs.gpu_product, obs.image_digest)
    if not isinstance(target, Target):
        return RunDecision(ended(status, RunOutcome.FAILED, target.reason, target.message))
    if workload.pods_per_replica > 1:
        return RunDecision(ended(status, RunOutcome.FAILED, "GroupedReplica", _grouped(workload)))
    sends = sends_load(profile.spec.probe.allow)
    if sends and target.arguments.api_key_required and profile.spec.endpoint.api_key_secret_ref is None:
        message = "The engine asks for an API key: name its Secret in spec.endpoint.apiKeySecretRef."
        return RunDecision(ended(status, RunOutcome.FAILED, "APIKeyMissing", message))
    window = profile.spec.probe.window
    if window is not None and not is_open(window, obs.now):
        opens = opens_after(window, obs.now)
        return _wait(
            status, "OutsideWindow", f"Waits for spec.probe.window, which opens at {opens:%Y-%m-%d %H:%M} UTC."
        )
    if obs.obstacle is not None and not _without_a_clone(profile.spec.probe.allow, obs.obstacle):
        return RunDecision(blocked(status, obs.obstacle))
    if obs.other_active_runs:
        return _wait(status, "AnotherRun", f"Waits for {obs.other_active_runs[0]} on the same workload.")
    if workload.replicas == 0:
        message = "Waits until the workload has a pod: it is not known yet on which GPU it runs."
        return _wait(status, "TargetScaledToZero", message)
    if not workload.rolled_out:
        return _wait(status, "TargetRollingOut", "Waits until the workload has rolled out and is ready.")
    bounds = bounds_of(profile.spec.parameters, target.present, target.arguments, started_of(target))
    if isinstance(bounds, TargetProblem):
        return RunDecision(ended(status, RunOutcome.FAILED, bounds.reason, bounds.message))
    refusal = words_with(target.container, bounds.highest)
    if isinstance(refusal, Refusal):
        return RunDecision(ended(status, RunOutcome.FAILED, refusal.reason, refusal.message))
    spec = measured_spec(profile)
    if spec is None:
        return _wait(status, NOT_LEARNED, NOT_LEARNED_MESSAGE)
    declared = spec.workload
    if target.arguments.speculative is not None and (declared is None or declared.prompts is None):
        return RunDecision(ended(status, RunOutcome.INCONCLUSIVE, UNREPRESENTATIVE_PROMPTS, _SPECULATION))
    where = _probe_target(obs, workload, target, bounds)
    if isinstance(where, _Nowhere):
        tick_s = RARELY_S if ProbeTarget.PASSIVE in profile.spec.probe.allow else WAIT_TICK_S
        return RunDecision(waiting(status, where.reason, where.message), next_tick_s=tick_s)
    plan = RunPlan(
        profile_generation=int(profile.metadata.get("generation", 0)),
        profile_spec=spec,
        workload_learned=profile.spec.workload is None,
        fingerprint=target.fingerprint,
        image=target.container.image,
        image_digest=obs.image_digest,
        engine_model=target.arguments.model,
        gpu_product=obs.gpu_product,
        container=target.container.name,
        model=profile.spec.endpoint.model or target.arguments.served_model_names[0],
        port=profile.spec.endpoint.port or target.arguments.port or DEFAULT_PORT,
        scheme=scheme_of(profile.spec.endpoint, target.arguments),
        root_path=profile.spec.endpoint.root_path or target.arguments.root_path or "",
        max_model_len=target.arguments.max_model_len,
        gpus_per_replica=target.container.gpus,
        present=target.present,
        bounds=bounds,
        live_start=_live_start(whole, target, where),
        probe_target=where,
        unrepresentative=_unrepresentative(target, declared),
        draft_acceptance_percent=None if obs.draft_acceptance is None else 100 * obs.draft_acceptance,
        token=_token(obs),
    )
    status = status.with_changes(plan=plan)
    if has_sources(declared):
        return RunDecision(going_on(status, RunStep.SOURCES, "The load agent reads the trace and the prompts."))
    return RunDecision(going_on(status, after_sources(plan), _BEGINS.get(where, "Starting the engine under test.")))


def _live_start(spec: ServingProfileSpec, target: Target, where: ProbeTarget) -> Setting | None:
    """None where the run certifies nothing that would be switched live."""
    clones = where in (ProbeTarget.CLONE, ProbeTarget.BORROW_REPLICA)
    if not clones or not allows_live_changes(spec) or reason_by_rollout(spec, target) is not None:
        return None
    return live_start_of(spec, target)


def _grouped(workload: WorkloadView) -> str:
    return (
        f"A replica of {workload.kind} {workload.name} is a group of {workload.pods_per_replica} pods, and a clone of "
        "one of them is no engine. Measure a group of your own with kneekeeper probe, and set the limits by kneekeeper "
        "patch."
    )


def _unrepresentative(target: Target, workload: Workload | None) -> str:
    """What of this engine drawn prompts misjudge, for people; empty where real ones are given."""
    words = target.container.words
    parts = misjudged_parts(target.arguments, [*(words.command or []), *(words.args or [])])
    if not parts or (workload is not None and workload.prompts is not None):
        return ""
    return (
        f"Drawn prompts use {' and '.join(parts)} as no real prompt does; give prompts of production in "
        "spec.workload.prompts."
    )


def _token(obs: RunObservation) -> str:
    return hashlib.sha256(str(obs.run.metadata["uid"]).encode()).hexdigest()[:8]


def _wait(status: TuningRunStatus, reason: str, message: str) -> RunDecision:
    return RunDecision(waiting(status, reason, message), next_tick_s=WAIT_TICK_S)


def _without_a_clone(allowed: Sequence[ProbeTarget], obstacle: Obstacle) -> bool:
    """Whether one of these ways may go on all the same: it needs no clone, or no load agent either."""
    return ProbeTarget.PASSIVE in allowed or (
        ProbeTarget.IN_PLACE in allowed and obstacle.reason in OBSTACLES_TO_CLONES
    )


def _probe_target(
    obs: RunObservation, workload: WorkloadView, target: Target, bounds: SettingBounds
) -> ProbeTarget | _Nowhere:
    """Where to measure, or why nowhere now. Only what the user lists, in the user's order."""
    probe = obs.profile.spec.probe if obs.profile else None
    allowed = probe.allow if probe else []
    needed = target.container.gpus
    room, obstacle = obs.gpu_room, obs.obstacle
    has_room = needed == 0 or (probe is not None and probe.allow_scale_up)
    if room is not None and room.largest_free_on_a_node >= needed:
        has_room = True
    reason: str = "NoSpareGPU"
    why = []
    for option in allowed:
        if option == ProbeTarget.PASSIVE:
            lack = _reason_not_to_predict(obs, target)
            if lack is None:
                return option
            why.append(lack.message.rstrip("."))
            reason = lack.reason
        elif option is ProbeTarget.IN_PLACE and (obstacle is None or obstacle.reason in OBSTACLES_TO_CLONES):
            unfit = reason_not_in_place(target.present, bounds)
            if unfit is None:
                return option
            why.append(unfit.message)
            reason = unfit.reason
        elif obstacle is not None:
            why.append(obstacle.message.rstrip("."))
            reason = obstacle.reason
        elif option == ProbeTarget.CLONE:
            if has_room:
                return option
            product = obs.gpu_product or "the serving pods' kind"
            why.append(f"no node has {needed} spare GPU of {product} for a clone")
        elif option == ProbeTarget.BORROW_REPLICA:
            refusal = reason_not_to_borrow(obs, workload, target.present)
            if refusal is None:
                return option
            why.append(refusal.message)
            reason = refusal.reason
    if not sends_load(allowed):
        choices = "wait for more traffic, or add Clone or BorrowReplica to spec.probe.allow to have it measured"
        return _Nowhere(reason, f"Nothing was touched: {'; '.join(why)}. Choices: {choices}.")
    choices = (
        "free a GPU, set spec.probe.allowScaleUp to let a node be added, add BorrowReplica to spec.probe.allow and "
        "run at least two replicas, or add InPlace and a spec.probe.window in which the workload has no users"
    )
    return _Nowhere(reason, f"Nothing was touched: {'; '.join(why)}. Choices: {choices}.")


def sends_load(allowed: Sequence[ProbeTarget]) -> bool:
    """Whether any of these ways needs a load agent."""
    return any(option is not ProbeTarget.PASSIVE for option in allowed)


def _reason_not_to_predict(obs: RunObservation, target: Target) -> NotEnough | None:
    if target.arguments.speculative is not None:
        return NotEnough(
            Lack.NOT_OBSERVED,
            "the engine decodes speculatively, which no step law from production's counters describes",
        )
    found = production_evidence(obs)
    return found if isinstance(found, NotEnough) else None
