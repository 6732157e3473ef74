"""What is written to put production's live-tuning plugin into a workload's template, to switch by it, and to take it
out: changes of fields, each of which may be taken back exactly.

Of a list only the entries that are kneekeeper's are in them, so that no variable of the user's gets into a status.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords, FieldChange
from kneekeeper.domain.live_delivery import (
    LIMITS_KEY,
    PLUGIN_CONTAINER,
    Delivery,
    PluginImage,
    with_production_plugin,
    without_plugin,
)
from kneekeeper.domain.live_settings import limits_of
from kneekeeper.domain.manifests import ManifestObject, Path, value_at
from kneekeeper.domain.observation import WorkloadView
from kneekeeper.domain.targets.fields import LONGEST_VALUE, NotWritable, pointer, reversed_changes, stand_as
from kneekeeper.livetune.messages import write_limits

_CONFIG_MAP = "ConfigMap"
_OF_THE_POD = ("initContainers", "volumes", "imagePullSecrets")
_OF_THE_ENGINE = ("env", "volumeMounts")
_WORDS = ("command", "args")


def limits_as_text(setting: Setting) -> str:
    """As the ConfigMap holds it and the plugin reads it."""
    return write_limits(limits_of(setting)).decode()


def switch_fields(config_map: str, before: str, setting: Setting) -> tuple[FieldChange, ...]:
    """The one change that switches every pod: of the ConfigMap whose text is `before`. Nothing where it says so."""
    after = limits_as_text(setting)
    if before == after:
        return ()
    return (
        FieldChange(
            api_version="v1",
            kind=_CONFIG_MAP,
            name=config_map,
            path=f"/data/{LIMITS_KEY}",
            before=json.dumps(before),
            after=json.dumps(after),
        ),
    )


def delivery_fields(
    workload: WorkloadView, env: Mapping[str, str], words: ContainerWords, delivery: Delivery, image: PluginImage
) -> tuple[FieldChange, ...] | NotWritable:
    """The template with the plugin, and with the words that start the engine with the delivery's pair.

    A ConfigMap that an earlier delivery left behind is set before.
    """
    declared, spec = _template(workload)
    left = _limits_map_text(workload, delivery.config_map)
    first = switch_fields(delivery.config_map, left, delivery.approved) if left is not None else ()
    new = with_production_plugin(spec, env, image, delivery)
    changes = (*first, *_changes(declared, workload, spec, _with_words(new, delivery.container, words), delivery))
    if any(len(text) > LONGEST_VALUE for change in changes for text in (change.before, change.after) if text):
        return NotWritable("FieldTooLong", "The words are too long to be kept for a rollback. Set the limits by hand.")
    return changes


def removal_fields(
    workload: WorkloadView, words: ContainerWords, delivered: Sequence[FieldChange]
) -> tuple[FieldChange, ...]:
    """The template without the plugin and with these words. `delivered` is what was written when it came: taken back
    as it was where it still stands, else what is kneekeeper's is taken out of what others have made of it."""
    assert workload.live is not None  # the caller asks only then
    delivery = workload.live.delivery
    declared, spec = _template(workload)
    of_template = [c for c in delivered if c.kind != _CONFIG_MAP and not _is_of_words(c)]
    if of_template and stand_as(declared.value, of_template):
        bare: Mapping[str, Any] = spec
        back: tuple[FieldChange, ...] = reversed_changes(of_template)
    else:
        bare, back = without_plugin(spec), ()
    changes = tuple(_changes(declared, workload, spec, _with_words(bare, delivery.container, words), delivery))
    return (*back, *changes)


def takes_plugin_out(changes: Sequence[FieldChange]) -> bool:
    """Whether these changes end a delivery."""
    return any(
        PLUGIN_CONTAINER in (change.before or "") and PLUGIN_CONTAINER not in (change.after or "") for change in changes
    )


def only_switches(changes: Sequence[FieldChange]) -> bool:
    """Whether these changes restart nothing: they are of the ConfigMap alone."""
    key = f"/data/{LIMITS_KEY}"
    return bool(changes) and all(change.kind == _CONFIG_MAP and change.path == key for change in changes)


def concerns_plugin(changes: Sequence[FieldChange]) -> bool:
    """Whether the changes bring the plugin, switch by it or take it out."""
    return only_switches(changes) or any(
        PLUGIN_CONTAINER in text for change in changes for text in (change.before, change.after) if text
    )


def _template(workload: WorkloadView) -> tuple[ManifestObject, Mapping[str, Any]]:
    """The object as it stands, and the spec of its pods."""
    assert workload.source is not None  # of every workload that is not made by a controller
    declared = workload.source.items[0]
    spec: Mapping[str, Any] = value_at(declared.value, (*workload.template_path, "spec"))
    return declared, spec


def _limits_map_text(workload: WorkloadView, name: str) -> str | None:
    assert workload.source is not None
    return (workload.source.texts_of_config_map(name, workload.namespace) or {}).get(LIMITS_KEY)


def _is_of_words(change: FieldChange) -> bool:
    return change.path.rpartition("/")[2] in _WORDS


def _with_words(spec: Mapping[str, Any], container: str, words: ContainerWords) -> dict[str, Any]:
    new = {"command": words.command or None, "args": words.args or None}
    return {
        **spec,
        "containers": [{**each, **new} if each["name"] == container else each for each in spec["containers"]],
    }


def _changes(
    declared: ManifestObject, workload: WorkloadView, old: Mapping[str, Any], new: Mapping[str, Any], delivery: Delivery
) -> Iterator[FieldChange]:
    """From one pod spec to the other, as far as a delivery concerns it."""
    at: Path = (*workload.template_path, "spec")
    index = next(i for i, each in enumerate(old["containers"]) if each["name"] == delivery.container)
    engine, was, becomes = (*at, "containers", index), old["containers"][index], new["containers"][index]
    pairs: list[tuple[Path, Any, Any]] = []
    for path, holder, changed, fields in (
        (at, old, new, _OF_THE_POD),
        (engine, was, becomes, _OF_THE_ENGINE),
    ):
        for field in fields:
            pairs += _list_changes((*path, field), holder.get(field) or [], changed.get(field) or [])
    pairs += [((*engine, field), was.get(field), becomes.get(field)) for field in _WORDS]
    for place, before, after in pairs:
        if before != after:
            yield FieldChange(
                api_version=declared.api_version,
                kind=declared.kind,
                name=declared.name,
                path=pointer(place),
                before=None if before is None else json.dumps(before),
                after=None if after is None else json.dumps(after),
            )


def _list_changes(path: Path, old: Sequence[Any], new: Sequence[Any]) -> Iterator[tuple[Path, Any, Any]]:
    """Entry by entry, where `new` has the entries of `old` in their order, some changed, some left out, and others
    behind them. A list that is empty does not exist."""
    if not old or not new:
        if old or new:
            yield path, list(old) or None, list(new) or None
        return
    taken = 0
    for index, entry in enumerate(old):
        if taken < len(new) and new[taken]["name"] == entry["name"]:
            yield (*path, index), entry, new[taken]
            taken += 1
        else:
            yield (*path, index), entry, None
    for offset, entry in enumerate(new[taken:]):
        yield (*path, len(old) + offset), None, entry
