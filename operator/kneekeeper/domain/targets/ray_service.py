"""RayService (ray.io/v1) with Ray Serve LLM: `engine_kwargs` of each model in the YAML text `serveConfigV2`.

Source: Ray, "Serving LLMs", `LLMConfig`. Names are Python's. Serve updates the model in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from kneekeeper.domain.arguments import Refusal, RefusalReason
from kneekeeper.domain.engines import limit_conflict
from kneekeeper.domain.manifests import Change, EditRefusedError, ManifestObject, Path, edit_text, value_at
from kneekeeper.domain.targets.flags_of_owner import engine_of, words_of_settings
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, Outcome, rewriting
from kneekeeper.domain.targets.warnings import requests_above, warnings_of_engine

_CONFIG: Path = ("spec", "serveConfigV2")
_ONGOING: Path = ("deployment_config", "autoscaling_config", "target_ongoing_requests")


@dataclass(frozen=True)
class _Model:
    path: Path
    name: str
    settings: Mapping[str, Any]
    config: Mapping[str, Any]

    @property
    def engine(self) -> Engine | Refusal:
        return engine_of(self.name, words_of_settings(self.settings))


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [model.engine for model in _models(target)]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`; `part` is a model_id."""
    models = [model for model in _models(target) if asked.part in (None, model.name)]
    if len(models) != 1:
        names = ", ".join(model.name for model in _models(target))
        message = f"The service holds these models: {names or 'none that is known'}. Name one as the container."
        return Answer(Outcome.RECOMMEND_ONLY, "ModelNotNamed", message, asked.part)
    model = models[0]
    engine = model.engine
    if isinstance(engine, Refusal):
        return Answer.refused(engine, model.name)
    conflict = limit_conflict(engine.arguments, asked.setting)
    if conflict is not None:
        return Answer(Outcome.REFUSE, RefusalReason.LIMITS_REJECTED, conflict, model.name, engine)
    limits = {
        "max_num_seqs": asked.setting.max_num_seqs,
        "max_num_batched_tokens": asked.setting.max_num_batched_tokens,
    }
    changes = [Change((*model.path, "engine_kwargs", name), number) for name, number in limits.items()]
    if "engine_kwargs" not in model.config:
        changes = [Change((*model.path, "engine_kwargs"), limits)]
    try:
        text = edit_text(str(value_at(target.value, _CONFIG)), changes)
    except EditRefusedError as error:
        return Answer(Outcome.REFUSE, RefusalReason.NOT_UNDERSTOOD, str(error), model.name, engine)
    warnings = [
        *warnings_of_engine(engine, asked.setting),
        *requests_above(value_at(model.config, _ONGOING), "target_ongoing_requests", asked.setting),
    ]
    return rewriting(engine, [Edit(target, _CONFIG, text)], warnings)


def _models(target: ManifestObject) -> Iterator[_Model]:
    text = value_at(target.value, _CONFIG)
    try:
        config = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return
    for at, application in enumerate(value_at(config, ("applications",)) or []):
        for index, model in enumerate(value_at(application, ("args", "llm_configs")) or []):
            name = value_at(model, ("model_loading_config", "model_id"))
            settings = value_at(model, ("engine_kwargs",)) or {}
            if isinstance(name, str) and isinstance(settings, Mapping):
                yield _Model(("applications", at, "args", "llm_configs", index), name, settings, model)
