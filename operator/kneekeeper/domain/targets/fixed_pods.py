"""Pods, ReplicaSets and Jobs, whose pod template cannot be changed, or whose change reaches no pod."""

from __future__ import annotations

from collections.abc import Sequence

from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.manifests import ManifestObject, Path
from kneekeeper.domain.targets.containers import is_no_engine
from kneekeeper.domain.targets.model import Answer, Asked, Engine, Objects, Outcome
from kneekeeper.domain.targets.pod_template import found_in, propose_in


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [f.engine for f in found_in(target, objects, _paths(target)) if not is_no_engine(f.engine)]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    answer = propose_in(target, objects, asked, _paths(target))
    if answer.outcome is not Outcome.REWRITE:
        return answer
    message = (
        f"The arguments of a {target.kind} that exists cannot be changed in it. Delete and recreate it with the "
        "suggested arguments, or let a Deployment own the pods."
    )
    return Answer(Outcome.REFUSE, "ImmutablePods", message, answer.part, answer.engine, answer.edits)


def _paths(target: ManifestObject) -> tuple[Path, ...]:
    return (("spec",),) if target.kind == "Pod" else (("spec", "template", "spec"),)
