"""KServe InferenceService (serving.kserve.io/v1beta1): the runtime's args come first, the predictor's are appended.

Source: KServe, "Serving Runtimes" and pkg/controller/v1beta1/inferenceservice. With `predictor.containers`
the predictor is a pod spec of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kneekeeper.domain.arguments import Refusal, RefusalReason, entrypoint_of_image, read_engine_arguments
from kneekeeper.domain.arguments import read_written_limits as read_limits
from kneekeeper.domain.engines import limit_conflict
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.targets.containers import environment_of_container, is_no_engine
from kneekeeper.domain.targets.flags_of_owner import with_limits
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, Outcome, rewriting
from kneekeeper.domain.targets.pod_template import found_in, propose_in
from kneekeeper.domain.targets.shapes import shape_problem
from kneekeeper.domain.targets.warnings import warnings_of_engine

_PREDICTOR: Path = ("spec", "predictor")
_MODEL: Path = (*_PREDICTOR, "model")
_ARGS: Path = (*_MODEL, "args")


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    if value_at(target.value, (*_PREDICTOR, "containers")):
        found = found_in(target, objects, (_PREDICTOR,))
        return [f.engine for f in found if not is_no_engine(f.engine)]
    runtime = _runtime(target, objects)
    return [_engine(target, runtime, objects)] if runtime is not None else []


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    if value_at(target.value, (*_PREDICTOR, "containers")):
        return propose_in(target, objects, asked, (_PREDICTOR,))
    own = value_at(target.value, _ARGS) or []
    runtime = _runtime(target, objects)
    if runtime is None:
        return _without_runtime(target, own, asked)
    engine = _engine(target, runtime, objects)
    if isinstance(engine, Refusal):
        return Answer.refused(engine, asked.part)
    result = with_limits(own, asked.setting)
    if isinstance(result, Refusal):
        return Answer.refused(result, asked.part, engine)
    conflict = limit_conflict(engine.arguments, asked.setting)
    if conflict is not None:
        return Answer(Outcome.REFUSE, RefusalReason.LIMITS_REJECTED, conflict, asked.part, engine)
    warnings = warnings_of_engine(engine, asked.setting)
    if any(isinstance(word, str) and word != word.rstrip() for word in own):
        warnings.append("trailing blanks in args are harmless and stay")
    return rewriting(engine, [Edit(target, _ARGS, result)], warnings)


def _engine(target: ManifestObject, runtime: Mapping[str, Any], objects: Objects) -> Engine | Refusal:
    own = [str(word) for word in value_at(target.value, _ARGS) or []]
    command = runtime.get("command") or None
    args = [*(runtime.get("args") or []), *own]
    env = environment_of_container(runtime, target.namespace, objects)
    entrypoint = entrypoint_of_image(str(runtime.get("image") or ""))
    arguments = read_engine_arguments(command, args, env, entrypoint=entrypoint)
    limits = read_limits(command, args, env, entrypoint=entrypoint)
    if isinstance(arguments, Refusal):
        return arguments
    assert not isinstance(limits, Refusal)  # read with the same words above
    return Engine(str(runtime.get("name", "")), arguments, limits, str(runtime.get("image") or ""))


def _runtime(target: ManifestObject, objects: Objects) -> Mapping[str, Any] | None:
    """The runtime's container `kserve-container`, if the runtime is named and at hand."""
    name = value_at(target.value, (*_MODEL, "runtime"))
    if not isinstance(name, str):
        return None
    found = objects.find("ServingRuntime", name, target.namespace) or objects.find("ClusterServingRuntime", name, "")
    if found is None or shape_problem(found) is not None:
        return None
    containers = value_at(found.value, ("spec", "containers"))
    listed = containers if isinstance(containers, list) else []
    return next((c for c in listed if c.get("name") == "kserve-container"), None)


def _without_runtime(target: ManifestObject, own: Sequence[str], asked: Asked) -> Answer:
    result = with_limits(own, asked.setting)
    if isinstance(result, Refusal):
        return Answer.refused(result, asked.part)
    message = (
        "The runtime that gives the first part of the command line is not at hand, so it is not certain that it runs "
        "vLLM. Add the ServingRuntime to the file, or set the args yourself."
    )
    edits = (Edit(target, _ARGS, result),)
    return Answer(Outcome.RECOMMEND_ONLY, RefusalReason.ENTRYPOINT_UNKNOWN, message, asked.part, edits=edits)
