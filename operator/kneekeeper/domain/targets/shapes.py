"""The shapes that the API server guarantees, and a file does not: checked before an adapter looks inside.

Only the fields that are read here, as Kubernetes and the kinds' own schemas define them; all others are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kneekeeper.domain.manifests import ManifestObject, Path, path_text, value_at

Texts = list[str] | None
Fields = dict[str, Any] | None


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Owner(_Shape):
    kind: str
    name: str
    controller: bool | None = None


class _Metadata(_Shape):
    name: str
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = Field(None, alias="ownerReferences")


class _Reference(_Shape):
    name: str | None = None
    key: str | None = None


class _ValueFrom(_Shape):
    config_map_key_ref: _Reference | None = Field(None, alias="configMapKeyRef")


class _Variable(_Shape):
    name: str
    value: str | None = None
    value_from: _ValueFrom | None = Field(None, alias="valueFrom")


class _EnvFrom(_Shape):
    prefix: str | None = None
    config_map_ref: _Reference | None = Field(None, alias="configMapRef")


class _Mount(_Shape):
    name: str
    mount_path: str = Field(alias="mountPath")
    sub_path: str | None = Field(None, alias="subPath")


class _HttpGet(_Shape):
    scheme: str | None = None


class _Probe(_Shape):
    http_get: _HttpGet | None = Field(None, alias="httpGet")
    timeout_s: int = Field(1, alias="timeoutSeconds")
    period_s: int = Field(10, alias="periodSeconds")
    failure_threshold: int = Field(3, alias="failureThreshold")


class _Resources(_Shape):
    limits: Fields = None


class _Container(_Shape):
    name: str
    image: str | None = None
    command: Texts = None
    args: Texts = None
    env: list[_Variable] | None = None
    env_from: list[_EnvFrom] | None = Field(None, alias="envFrom")
    volume_mounts: list[_Mount] | None = Field(None, alias="volumeMounts")
    resources: _Resources | None = None
    liveness: _Probe | None = Field(None, alias="livenessProbe")
    readiness: _Probe | None = Field(None, alias="readinessProbe")
    startup: _Probe | None = Field(None, alias="startupProbe")


class _KeyPath(_Shape):
    key: str
    path: str


class _ConfigMapVolume(_Shape):
    name: str | None = None
    items: list[_KeyPath] | None = None


class _Volume(_Shape):
    name: str
    config_map: _ConfigMapVolume | None = Field(None, alias="configMap")


class _PodSpec(_Shape):
    containers: list[_Container]
    volumes: list[_Volume] | None = None


class _Strategy(_Shape):
    type: str | None = None
    rolling_update: Fields = Field(None, alias="rollingUpdate")


class _WorkloadSpec(_Shape):
    replicas: int | None = None
    strategy: _Strategy | None = None
    update_strategy: _Strategy | None = Field(None, alias="updateStrategy")


class _Model(_Shape):
    """Of an InferenceService or a VLLMRuntime."""

    args: Texts = None
    runtime: str | None = None
    max_num_seqs: int | None = Field(None, alias="maxNumSeqs")
    max_model_len: int | None = Field(None, alias="maxModelLen")


class _Predictor(_Shape):
    model: _Model | None = None


class _InferenceServiceSpec(_Shape):
    predictor: _Predictor


class _VllmConfig(_Shape):
    extra_args: Texts = Field(None, alias="extraArgs")
    enable_chunked_prefill: bool | None = Field(None, alias="enableChunkedPrefill")


class _VllmRuntimeSpec(_Shape):
    model: _Model
    vllm_config: _VllmConfig = Field(alias="vllmConfig")


class _KubeAiSpec(_Shape):
    engine: str | None = None
    args: Texts = None


class _RayServiceSpec(_Shape):
    config: str | None = Field(None, alias="serveConfigV2")


SPECS: Mapping[str, type[_Shape]] = {
    "Deployment": _WorkloadSpec,
    "StatefulSet": _WorkloadSpec,
    "DaemonSet": _WorkloadSpec,
    "InferenceService": _InferenceServiceSpec,
    "VLLMRuntime": _VllmRuntimeSpec,
    "Model": _KubeAiSpec,
    "RayService": _RayServiceSpec,
}


def shape_problem(found: ManifestObject) -> str | None:
    """The first field with a value that its kind cannot have, with the next step; None where all fit."""
    checks: list[tuple[type[_Shape], Path]] = [(_Metadata, ("metadata",))]
    if found.kind in SPECS:
        checks.append((SPECS[found.kind], ("spec",)))
    checks += [(_PodSpec, path) for path in pod_specs_in(found.value)]
    for shape, path in checks:
        try:
            shape.model_validate(value_at(found.value, path))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = path_text((*path, *first["loc"]))
            return f"{place} of {found.kind} {found.name} is not valid: {first['msg']}. Correct it, or quote the text."
    return None


_DEEPEST = 12  # levels below the object


def pod_specs_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where lists of containers stand."""
    if len(path) > _DEEPEST:
        return
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield path
        for key, item in value.items():
            yield from pod_specs_in(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from pod_specs_in(item, (*path, index))
