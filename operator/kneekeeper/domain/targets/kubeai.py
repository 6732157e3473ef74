"""KubeAI Model (kubeai.org/v1) with engine VLLM: `spec.args` is the command line behind the model.

Source: KubeAI, api/k8s/v1/model_types.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from kneekeeper.domain.arguments import Refusal, RefusalReason
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.targets.flags_of_owner import engine_of, with_limits
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, rewriting
from kneekeeper.domain.targets.warnings import requests_above, warnings_of_engine

_ARGS: Path = ("spec", "args")


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [_engine(target)]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    engine = _engine(target)
    if isinstance(engine, Refusal):
        return Answer.refused(engine)
    args = with_limits(_args(target), asked.setting)
    if isinstance(args, Refusal):
        return Answer.refused(args, None, engine)
    per_replica = value_at(target.value, ("spec", "targetRequests"))
    warnings = [
        *warnings_of_engine(engine, asked.setting),
        *requests_above(per_replica, "targetRequests", asked.setting),
    ]
    return rewriting(engine, [Edit(target, _ARGS, args)], warnings)


def _engine(target: ManifestObject) -> Engine | Refusal:
    engine = value_at(target.value, ("spec", "engine"))
    if engine != "VLLM":
        message = f"The model is served by {engine or 'an engine that is not named'}, not by VLLM. Name another target."
        return Refusal(RefusalReason.NOT_VLLM, str(engine), message)
    return engine_of(None, _args(target))


def _args(target: ManifestObject) -> list[str]:
    return [str(word) for word in value_at(target.value, _ARGS) or []]
