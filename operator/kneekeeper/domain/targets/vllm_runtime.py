"""VLLMRuntime of the vLLM production stack: `spec.model.maxNumSeqs` is a field, the rest stands in `extraArgs`.

Source: production-stack, operator/api/v1alpha1/vllmruntime_types.go; extraArgs come last and win.
"""

from __future__ import annotations

from collections.abc import Sequence

from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.arguments.flags import MAX_NUM_SEQS
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.targets.flags_of_owner import engine_of, with_limits
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, rewriting
from kneekeeper.domain.targets.warnings import warnings_of_engine

_SEQUENCES: Path = ("spec", "model", "maxNumSeqs")
_EXTRA: Path = ("spec", "vllmConfig", "extraArgs")


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [engine_of(None, [*_fields(target), *_extra(target)])]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    engine = engine_of(None, [*_fields(target), *_extra(target)])
    if isinstance(engine, Refusal):
        return Answer.refused(engine)
    extra = with_limits(_extra(target), asked.setting, before=_fields(target), elsewhere=[MAX_NUM_SEQS])
    if isinstance(extra, Refusal):
        return Answer.refused(extra, None, engine)
    edits = [Edit(target, _SEQUENCES, asked.setting.max_num_seqs), Edit(target, _EXTRA, extra)]
    warnings = [
        *warnings_of_engine(engine, asked.setting),
        "the controller writes replicas all the time: nothing else can change them",
    ]
    if value_at(target.value, ("spec", "deploymentConfig", "deploymentStrategy")) == "Recreate":
        warnings.append("Recreate: all replicas go down at once")
    return rewriting(engine, edits, warnings)


def _extra(target: ManifestObject) -> list[str]:
    return [str(word) for word in value_at(target.value, _EXTRA) or []]


def _fields(target: ManifestObject) -> list[str]:
    """The flags that the controller makes of fields."""
    length = value_at(target.value, ("spec", "model", "maxModelLen"))
    sequences = value_at(target.value, _SEQUENCES)
    chunked = value_at(target.value, ("spec", "vllmConfig", "enableChunkedPrefill"))
    return [
        *([f"--max-model-len={length}"] if length else []),
        *([f"{MAX_NUM_SEQS}={sequences}"] if sequences else []),
        *(["--no-enable-chunked-prefill"] if chunked is False else []),
    ]
