"""Where production may be switched live at all: what the profile allows, and what its target is."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import LiveChanges, ServingProfileSpec, UpdateMethod
from kneekeeper.domain.live_environment import unknown_variables
from kneekeeper.domain.plan.writing import may_write_for
from kneekeeper.domain.schedules import specs_asked
from kneekeeper.domain.target import Target, TargetProblem, bounds_of

_KINDS = ("Deployment", "StatefulSet")
_METHODS = (UpdateMethod.AUTO, UpdateMethod.ARGS)

OWNED_BY_OTHER = "OwnedByOther"


@dataclass(frozen=True)
class ByRollout:
    """Why switches go by rollout; `reason` is a condition's reason, `message` has the next step."""

    reason: str
    message: str


def allows_live_changes(spec: ServingProfileSpec) -> bool:
    """Whether the profile's user does."""
    return spec.update_policy.live_changes is LiveChanges.ALLOWED


def reason_by_rollout(spec: ServingProfileSpec, target: Target) -> ByRollout | None:
    """What of the target keeps the plugin out of its pods; None where nothing does."""
    workload, method = target.workload, spec.update_policy.method
    if workload.made_by_controller or workload.kind not in _KINDS or workload.source is None:
        return ByRollout(
            "KindNotLive",
            f"The plugin is delivered into the pod template of a {' or a '.join(_KINDS)} alone: {workload.kind} is "
            "switched by rollout.",
        )
    if method not in _METHODS:
        return ByRollout(
            "MethodNotLive",
            f"spec.updatePolicy.method {method} writes the limits elsewhere: set it to Args to switch them live.",
        )
    if workload.owner is not None and not may_write_for(workload.owner, method):
        return ByRollout(
            OWNED_BY_OTHER,
            f"The workload belongs to {workload.owner.kind} {workload.owner.name}, which would take the plugin out.",
        )
    unknown = unknown_variables(target.container.env)
    if unknown:
        return ByRollout(
            "NotDelivered",
            f"{' and '.join(unknown)} may be set by a source that is not read; adding the plugin would replace it. "
            "Set it in the container's env.",
        )
    return None


def live_start_of(spec: ServingProfileSpec, target: Target) -> Setting:
    """The pair that production's engines and those of all runs are started with: the largest of both limits inside the
    bounds of any hour. What production is started with already stands where no bound was declared, so that the
    default bounds, which follow the present setting, do not move it."""
    started = started_of(target)
    bounds = [bounds_of(asked.parameters, target.present, target.arguments, started) for asked in specs_asked(spec)]
    highest = [each.highest for each in bounds if not isinstance(each, TargetProblem)]
    return Setting(
        max_num_seqs=max(each.max_num_seqs for each in highest),
        max_num_batched_tokens=max(each.max_num_batched_tokens for each in highest),
    )


def started_of(target: Target) -> Setting | None:
    """What production's engines are started with, where that is not what is in force."""
    live = target.workload.live
    return live.delivery.started if live is not None and live.stands else None


def is_tuned_live(plan: RunPlan) -> bool:
    """Whether a run's engines get the plugin."""
    return plan.live_start is not None or plan.profile_spec.probe.live_tuning is LiveTuning.ALLOWED
