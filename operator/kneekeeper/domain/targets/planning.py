"""From an object and two limits to what is written, or told to its owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kneekeeper.domain.arguments import Refusal, RefusalReason
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.observation import Owner
from kneekeeper.domain.targets import (
    anything,
    fixed_pods,
    kaito,
    kserve,
    kubeai,
    llm_inference_service,
    pod_template,
    ray_service,
    storm_service,
    vllm_runtime,
)
from kneekeeper.domain.targets.model import Adapter, Answer, Asked, Edit, Engine, Objects, Outcome
from kneekeeper.domain.targets.ownership import RELEASE_TOOLS, owner_of
from kneekeeper.domain.targets.scaling import scaling_conflict
from kneekeeper.domain.targets.shapes import shape_problem

ADAPTERS: Mapping[tuple[str, str], Adapter] = {
    **dict.fromkeys(pod_template.POD_SPECS, pod_template),
    ("", "Pod"): fixed_pods,
    ("apps", "ReplicaSet"): fixed_pods,
    ("batch", "Job"): fixed_pods,
    ("serving.kserve.io", "InferenceService"): kserve,
    ("serving.kserve.io", "LLMInferenceService"): llm_inference_service,
    ("ray.io", "RayService"): ray_service,
    ("orchestration.aibrix.ai", "StormService"): storm_service,
    ("production-stack.vllm.ai", "VLLMRuntime"): vllm_runtime,
    ("kubeai.org", "Model"): kubeai,
    ("kaito.sh", "Workspace"): kaito,
}
"""By API group and kind."""

_FIELDS_OF_OWNERS = {
    "InferenceService": "spec.predictor.model.args",
    "LLMInferenceService": "VLLM_ADDITIONAL_ARGS of container main",
    "VLLMRuntime": "spec.model.maxNumSeqs and spec.vllmConfig.extraArgs",
    "Model": "spec.args",
    "RayService": "engine_kwargs in spec.serveConfigV2",
    "StormService": "the role's template in spec.template.spec.roles",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate",
}
_PRODUCTION_STACK_CHART = "vllm-stack"


def plan(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """What to do with the target: its adapter's answer, unless somebody else writes the object."""
    problem = shape_problem(target)
    if problem is not None:
        return Answer(Outcome.REFUSE, "MalformedObject", problem, asked.part)
    answer = adapter_of(target).propose(target, objects, asked)
    if answer.outcome is not Outcome.REWRITE:
        return answer
    owner = owner_of(target.metadata)
    if owner is not None:
        return _for_owner(target, objects, asked, answer, owner)
    conflict = scaling_conflict(target, objects, asked.setting)
    if conflict is not None:
        return replace(answer, outcome=Outcome.RECOMMEND_ONLY, reason="AutoscalerBound", message=conflict)
    return answer


def adapter_of(target: ManifestObject) -> Adapter:
    """The adapter of the object's kind, or the one for kinds that are not known."""
    return ADAPTERS.get((target.api_group, target.kind), anything)


def engines_in(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """The engines that an object declares."""
    problem = shape_problem(target)
    if problem is not None:
        known = (target.api_group, target.kind) in ADAPTERS
        return [Refusal(RefusalReason.NOT_UNDERSTOOD, target.name, problem)] if known else ()
    return adapter_of(target).engines(target, objects)


def objects_with_engines(objects: Objects) -> tuple[ManifestObject, ...]:
    """Those of kinds that are known; where there is none, the others: a ServingRuntime alone, a CronJob."""
    found = [item for item in objects.items if engines_in(item, objects)]
    known = [item for item in found if (item.api_group, item.kind) in ADAPTERS]
    return tuple(known or found)


def _for_owner(target: ManifestObject, objects: Objects, asked: Asked, answer: Answer, owner: Owner) -> Answer:
    """The same change, told to who would undo it."""
    told = replace(answer, outcome=Outcome.RECOMMEND_ONLY)
    if owner.kind not in RELEASE_TOOLS:
        above = objects.find(owner.kind, owner.name, target.namespace)
        field = _FIELDS_OF_OWNERS.get(owner.kind, "the field that holds its arguments")
        message = (
            f"{owner.kind} {owner.name} owns this {target.kind} and writes it back. Change {field} of {owner.kind} "
            f"{owner.name}."
        )
        edits = plan(above, objects, replace(asked, part=None)).edits if above is not None else ()
        return replace(told, reason="OwnedByController", message=message, edits=edits)
    release = objects.find("HelmRelease", owner.name, target.namespace) if owner.kind == "Flux" else None
    if release is not None:
        edits = tuple(_in_values(release, target, edit) or edit for edit in answer.edits)
        message = (
            f"HelmRelease {owner.name} and the Git repository behind it write this {target.kind}. Change it there."
        )
        return replace(told, reason="OwnedByFlux", message=message, edits=edits)
    if owner.kind == "Helm":
        message = (
            f"Helm release {owner.name} writes this {target.kind}: the next upgrade puts the old values back. Change "
            "the release's values."
        )
        return replace(told, reason="OwnedByHelm", message=message, warnings=(*told.warnings, *_helm(target, asked)))
    message = (
        f"{owner.kind} keeps this {target.kind} as it stands in {owner.name}'s source: every write here is reverted. "
        "Change it in Git."
    )
    return replace(told, reason=f"OwnedBy{owner.kind}", message=message)


def _in_values(release: ManifestObject, target: ManifestObject, edit: Edit) -> Edit | None:
    """The same edit in a release's values, where they hold exactly what the target holds."""
    old = value_at(target.value, edit.path)
    place = next(iter(_places_of(value_at(release.value, ("spec", "values")), old, ("spec", "values"))), None)
    return Edit(release, place, edit.value) if place is not None else None


def _places_of(values: object, wanted: object, path: Path) -> list[Path]:
    if values == wanted:
        return [path]
    if isinstance(values, dict):
        return [place for key, item in values.items() for place in _places_of(item, wanted, (*path, key))]
    if isinstance(values, list):
        return [place for at, item in enumerate(values) for place in _places_of(item, wanted, (*path, at))]
    return []


def _helm(target: ManifestObject, asked: Asked) -> list[str]:
    chart = str((target.metadata.get("labels") or {}).get("helm.sh/chart", ""))
    if not chart.startswith(_PRODUCTION_STACK_CHART):
        return []
    setting = asked.setting
    return [
        f"in servingEngineSpec.modelSpec[] set vllmConfig.maxNumSeqs: {setting.max_num_seqs} and "
        f"--max-num-batched-tokens={setting.max_num_batched_tokens} in vllmConfig.extraArgs, which come last and win; "
        "leave no second --max-num-seqs there"
    ]
