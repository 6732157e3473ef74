"""Kinds without an adapter: an engine is found where a pod's containers stand, and its change only recommended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.manifests import ManifestObject, Path
from kneekeeper.domain.targets.containers import is_no_engine
from kneekeeper.domain.targets.model import Answer, Asked, Engine, Objects, Outcome
from kneekeeper.domain.targets.pod_template import found_in, propose_in
from kneekeeper.domain.targets.shapes import pod_specs_in


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [f.engine for f in found_in(target, objects, _pod_specs(target)) if not is_no_engine(f.engine)]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    answer = propose_in(target, objects, asked, _pod_specs(target))
    what = f"{target.api_version} {target.kind} is not known here, so nothing is written"
    if answer.outcome is not Outcome.REWRITE:
        return replace(answer, message=f"{what}. {answer.message}")
    message = f"{what}. Make the suggested change where the object is kept."
    return replace(answer, outcome=Outcome.RECOMMEND_ONLY, reason="UnknownKind", message=message)


def _pod_specs(target: ManifestObject) -> tuple[Path, ...]:
    return tuple(pod_specs_in(target.value))
