"""KAITO Workspace: the flags stand under `vllm:` in a ConfigMap that `inference.config` names.

Source: KAITO, docs "Inference": the controller decides when a change of the ConfigMap takes effect, so the change
is only recommended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from kneekeeper.domain.arguments import Refusal, RefusalReason
from kneekeeper.domain.engines import limit_conflict
from kneekeeper.domain.manifests import Change, EditRefusedError, ManifestObject, Path, edit_text, value_at
from kneekeeper.domain.targets.flags_of_owner import engine_of, words_of_settings
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, Outcome

_TEXT: Path = ("data", "inference_config.yaml")
_LIMITS = ("max-num-seqs", "max-num-batched-tokens")


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    found = _config_map(target, objects)
    return [] if found is None else [engine_of(None, words_of_settings(_settings(found)))]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    found = _config_map(target, objects)
    if found is None:
        message = "Set both limits under `vllm:` in the ConfigMap that inference.config names; it is not at hand."
        return Answer(Outcome.RECOMMEND_ONLY, "ConfigMapNotFound", message)
    settings = _settings(found)
    engine = engine_of(None, words_of_settings(settings))
    if isinstance(engine, Refusal):
        return Answer.refused(engine)
    conflict = limit_conflict(engine.arguments, asked.setting)
    if conflict is not None:
        return Answer(Outcome.REFUSE, RefusalReason.LIMITS_REJECTED, conflict, None, engine)
    numbers = (asked.setting.max_num_seqs, asked.setting.max_num_batched_tokens)
    spelled = [next((key for key in settings if key.replace("_", "-") == name), name) for name in _LIMITS]
    try:
        changes = [Change(("vllm", key), number) for key, number in zip(spelled, numbers, strict=True)]
        text = edit_text(str(value_at(found.value, _TEXT)), changes)
    except EditRefusedError as error:
        return Answer(Outcome.REFUSE, RefusalReason.NOT_UNDERSTOOD, str(error), None, engine)
    message = (
        f"The flags are keys of ConfigMap {found.name}, and KAITO's controller decides when it takes effect. Change "
        "it, then restart the workspace's pods."
    )
    edits = (Edit(found, _TEXT, text),)
    return Answer(Outcome.RECOMMEND_ONLY, "FlagsInConfigMap", message, None, engine, edits)


def _config_map(target: ManifestObject, objects: Objects) -> ManifestObject | None:
    # The preset API has `inference` beside `spec`.
    name = value_at(target.value, ("inference", "config"))
    found = objects.find("ConfigMap", name, target.namespace) if isinstance(name, str) else None
    return found if found is not None and isinstance(value_at(found.value, _TEXT), str) else None


def _settings(config_map: ManifestObject) -> Mapping[str, Any]:
    try:
        settings = value_at(yaml.safe_load(value_at(config_map.value, _TEXT)), ("vllm",))
    except yaml.YAMLError:
        settings = None
    return settings if isinstance(settings, Mapping) else {}
