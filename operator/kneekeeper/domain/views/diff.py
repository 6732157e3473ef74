"""A recommendation against the workload as it stands: the fields that would change, without secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kneekeeper.api.profile_status import Recommendation
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.redaction import redact_value
from kneekeeper.domain.target import Target, words_with
from kneekeeper.domain.targets.fields import NotWritable
from kneekeeper.domain.targets.patches import setting_changes
from kneekeeper.domain.views.fleet import Limits


@dataclass(frozen=True)
class FieldDiff:
    """One field. `before` is None where it is absent."""

    object: str
    """Kind and name."""
    path: str
    """As a JSON pointer."""
    before: Any
    after: Any


@dataclass(frozen=True)
class DiffView:
    """`changes` is empty where both are the same. `problem` says why the operator could not write them."""

    namespace: str
    target: str
    hash: str
    live: Limits
    recommended: Limits
    improvement: str
    changes: tuple[FieldDiff, ...]
    owner: str
    """Kind and name of the controller or tool that the workload belongs to; empty where none is known."""
    problem: str


def diff_view(target: Target, recommendation: Recommendation) -> DiffView:
    """What the recommendation changes in the live workload."""
    workload, setting = target.workload, recommendation.setting
    changes: tuple[FieldDiff, ...] = ()
    problem = ""
    words = words_with(target.container, setting)
    if isinstance(words, Refusal):
        problem = words.message
    elif target.present != setting:
        found = setting_changes(workload, target.container, words, setting)
        if isinstance(found, NotWritable):
            problem = found.message
        else:
            changes = tuple(
                FieldDiff(f"{each.kind}/{each.name}", each.path, _shown(each.before), _shown(each.after))
                for each in found
            )
    return DiffView(
        namespace=workload.namespace,
        target=f"{workload.kind}/{workload.name}",
        hash=recommendation.hash,
        live=Limits.of(target.present),
        recommended=Limits.of(setting),
        improvement=recommendation.improvement,
        changes=changes,
        owner=f"{workload.owner.kind} {workload.owner.name}" if workload.owner is not None else "",
        problem=problem,
    )


def _shown(value: str | None) -> Any:
    return None if value is None else redact_value(json.loads(value))
