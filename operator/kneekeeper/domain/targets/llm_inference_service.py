"""KServe LLMInferenceService: its script runs `eval "vllm serve … ${VLLM_ADDITIONAL_ARGS}"`, which is the user's part.

Source: KServe, config/llmisvc templates. The variable stands on container `main` of each pod template; all of
them are changed together. `args` is never set: it replaces or bypasses the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import (
    EngineArguments,
    Refusal,
    RefusalReason,
    Rewrite,
    read_engine_arguments,
    read_written_limits,
    rewrite,
)
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, Outcome, rewriting
from kneekeeper.domain.targets.warnings import warnings_of_engine

_TEMPLATES: tuple[Path, ...] = (
    ("spec", "template"),
    ("spec", "worker"),
)
_CONTAINER = "main"
_VARIABLE = "VLLM_ADDITIONAL_ARGS"
_SCRIPT = "vllm serve /mnt/models "
_TWICE_EXPANDED = "$`\\"


def engines(target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
    """See `Adapter`."""
    return [_engine(text) for _, text in _texts(target)][:1]


def propose(target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
    """See `Adapter`."""
    if value_at(target.value, ("spec", "prefill")):
        message = (
            "Prefill and decode have limits of their own, and this object holds both. Set VLLM_ADDITIONAL_ARGS of the "
            "role that you mean."
        )
        return Answer(Outcome.RECOMMEND_ONLY, "SeveralRoles", message, asked.part)
    texts = list(_texts(target))
    overridden = any(c.get("args") or c.get("command") for c in _containers(target))
    if not texts or overridden:
        setting = asked.setting
        message = (
            f"Which script runs is not in this object. Set {_VARIABLE} on container {_CONTAINER} to "
            f"'--max-num-seqs={setting.max_num_seqs} --max-num-batched-tokens={setting.max_num_batched_tokens}'."
        )
        return Answer(Outcome.RECOMMEND_ONLY, "ScriptOfTheController", message, asked.part)
    edits: list[Edit] = []
    for path, text in texts:
        result = _with_limits(text, asked.setting)
        if isinstance(result, Refusal):
            return Answer.refused(result, _CONTAINER)
        edits.append(Edit(target, path, result))
    engine = _engine(texts[0][1])
    if isinstance(engine, Refusal):
        return Answer.refused(engine, _CONTAINER)
    return rewriting(engine, edits, _warnings(target, engine, asked.setting))


def _containers(target: ManifestObject) -> Iterator[Mapping[str, Any]]:
    for template in _TEMPLATES:
        for container in _listed(target, template):
            if container.get("name") == _CONTAINER:
                yield container


def _listed(target: ManifestObject, template: Path) -> list[Mapping[str, Any]]:
    containers = value_at(target.value, (*template, "containers"))
    return containers if isinstance(containers, list) else []


def _texts(target: ManifestObject) -> Iterator[tuple[Path, str]]:
    """Each template's value of the variable."""
    for template in _TEMPLATES:
        for at, container in enumerate(_listed(target, template)):
            for index, variable in enumerate(container.get("env") or []):
                if container.get("name") == _CONTAINER and variable.get("name") == _VARIABLE and "value" in variable:
                    yield (*template, "containers", at, "env", index, "value"), str(variable["value"])


def _engine(text: str) -> Engine | Refusal:
    words = ["sh", "-c", _SCRIPT + text]
    arguments = read_engine_arguments(words, None, {})
    limits = read_written_limits(words, None, {})
    if not isinstance(arguments, EngineArguments):
        return arguments
    assert not isinstance(limits, Refusal)  # read with the same words above
    return Engine(_CONTAINER, arguments, limits)


def _with_limits(text: str, setting: Setting) -> str | Refusal:
    if any(char in text for char in _TWICE_EXPANDED):
        message = f"{_VARIABLE} is expanded twice, by eval; write it without $, ` and backslash."
        return Refusal(RefusalReason.SHELL_COMMAND, _VARIABLE, message)
    result = rewrite(
        ["sh", "-c", _SCRIPT + text],
        None,
        {},
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
    )
    if not isinstance(result, Rewrite):
        return result
    assert result.command is not None  # a list stays a list
    return result.command[2].removeprefix(_SCRIPT)


def _warnings(target: ManifestObject, engine: Engine, setting: Setting) -> list[str]:
    warnings = warnings_of_engine(engine, setting)
    if isinstance(value_at(target.value, ("spec", "parallelism", "data")), int):
        warnings.append("limits count per data-parallel rank")
    if any(value_at(c, ("livenessProbe", "httpGet", "scheme")) == "HTTPS" for c in _containers(target)):
        warnings.append("metrics and health are served over HTTPS")
    return warnings
