"""AIBrix StormService (orchestration.aibrix.ai): a pod template for each role, such as prefill and decode.

Source: AIBrix, "StormService", `spec.template.spec.roles[]`. Each role is an engine with limits of its own; roles may
give their containers the same name, so that a part is named by its role.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.targets.containers import is_no_engine
from kneekeeper.domain.targets.model import Answer, Asked, Engine, Objects, Outcome
from kneekeeper.domain.targets.pod_template import found_in, propose_in

_ROLES: Path = ("spec", "template", "spec", "roles")


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    found = [(role, f.engine) for role, path in _roles(target) for f in found_in(target, objects, (path,))]
    return [
        replace(engine, part=role) if isinstance(engine, Engine) else engine
        for role, engine in found
        if not is_no_engine(engine)
    ]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`; `part` is a role."""
    roles = [(role, path) for role, path in _roles(target) if _runs_vllm(target, objects, path)]
    chosen = [path for role, path in roles if asked.part in (None, role)]
    names = ", ".join(role for role, _ in roles) or "none"
    if len(chosen) != 1:
        problem = "Several roles run vLLM" if len(chosen) > 1 else "There is no such role that runs vLLM"
        reason = "SeveralEngineContainers" if len(chosen) > 1 else "ContainerNotFound"
        return Answer(Outcome.REFUSE, reason, f"{problem}: {names}. Name one of them as the container.", asked.part)
    answer = propose_in(target, objects, replace(asked, part=None), (chosen[0],))
    return replace(answer, part=next(role for role, path in roles if path == chosen[0]))


def _roles(target: ManifestObject) -> Iterator[tuple[str, Path]]:
    """Name and pod spec of each role."""
    roles = value_at(target.value, _ROLES)
    for index, role in enumerate(roles if isinstance(roles, list) else []):
        path = (*_ROLES, index, "template", "spec")
        if isinstance(value_at(target.value, (*path, "containers")), list):
            yield str(value_at(role, ("name",)) or index), path


def _runs_vllm(target: ManifestObject, objects: Objects, path: Path) -> bool:
    return any(not is_no_engine(found.engine) for found in found_in(target, objects, (path,)))
