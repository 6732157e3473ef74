"""Where a setting is written, and whose will stands against it."""

from __future__ import annotations

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import Recommendation
from kneekeeper.api.rollout import FieldChange
from kneekeeper.api.serving_profile import UpdateMethod, UpdateMode
from kneekeeper.domain.names import ANNOTATION_APPROVE
from kneekeeper.domain.observation import Owner, ProfileObservation
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.target import Target
from kneekeeper.domain.targets.config_map import config_map_changes
from kneekeeper.domain.targets.fields import NotWritable, field_changes, variable_changes
from kneekeeper.domain.targets.model import Asked
from kneekeeper.domain.targets.ownership import RELEASE_TOOLS


def fields_with(target: Target, setting: Setting, method: UpdateMethod) -> tuple[FieldChange, ...] | NotWritable:
    """The fields that are written instead of the words; none where the words are written themselves."""
    source = target.workload.source
    if source is not None and target.workload.made_by_controller:
        return field_changes(source, Asked(setting, None))
    if source is not None and method == UpdateMethod.ENV:
        return variable_changes(source, Asked(setting, target.container.name))
    if source is not None and method == UpdateMethod.CONFIG_MAP:
        asked, shared = Asked(setting, target.container.name), target.workload.shared_config_maps
        return config_map_changes(source, target.workload.template_path, asked, shared)
    return ()


def may_write_for(owner: Owner | None, method: UpdateMethod) -> bool:
    """Never into what a controller makes; over a release or GitOps tool only where a method is asked for by name."""
    return owner is None or (owner.kind in RELEASE_TOOLS and method != UpdateMethod.AUTO)


def tell_contested(
    obs: ProfileObservation, conditions: ProfileConditions, target: Target, recommendation: Recommendation | None
) -> None:
    """A warning for as long as a tool that was overruled by name may put its own values back."""
    policy, owner = obs.profile.spec.update_policy, target.workload.owner
    approved = recommendation is not None and approved_by_user(obs, recommendation)
    writes = policy.mode == UpdateMode.APPLY or approved
    if writes and owner is not None and may_write_for(owner, policy.method):
        conditions.true(
            ConditionType.CONTESTED,
            f"WritesOver{owner.kind}",
            f"spec.updatePolicy.method is {policy.method}, so the limits are written although {owner.kind} "
            f"{owner.name} manages this workload. Its next upgrade or sync restores its own values unless it ignores "
            "the field: see docs/gitops.md.",
        )
    elif conditions.get(ConditionType.CONTESTED) is not None:
        conditions.false(ConditionType.CONTESTED, "NotContested", "")


def approved_by_user(obs: ProfileObservation, recommendation: Recommendation) -> bool:
    """By the annotation with the recommendation's own hash."""
    annotations = obs.profile.metadata.get("annotations", {})
    return bool(annotations.get(ANNOTATION_APPROVE) == recommendation.hash)
