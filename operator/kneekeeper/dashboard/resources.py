"""From objects as the API server or a file has them to the store. What cannot be read is left out and logged."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from pydantic import ValidationError

from kneekeeper.api.model import ApiModel
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.dashboard.store import About, Store
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.profile import EventNote
from kneekeeper.kube.resources import EVENTS, SERVING_PROFILES, TUNING_RUNS, Resource

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=ApiModel)


def put(store: Store, resource: Resource) -> Key | None:
    """Take an object of the kinds that the page shows into the store; returns its own key, None for others.

    An object of a newer operator may have fields that this dashboard does not know: it is logged and left out.
    """
    kind = resource.get("kind")
    metadata: dict[str, Any] = resource.get("metadata") or {}
    try:
        if kind == SERVING_PROFILES.name:
            store.put_profile(_model(ServingProfile, resource))
        elif kind == TUNING_RUNS.name:
            store.put_run(_model(TuningRun, resource))
        elif kind == EVENTS.name:
            _put_event(store, resource)
        else:
            return None
    except (ValidationError, KeyError) as error:
        log.warning("%s %s cannot be shown: %s", kind, metadata.get("name"), error)
    return Key.of(metadata) if "name" in metadata else None


def drop(store: Store, resource: Resource) -> None:
    """The object is gone. Events stay: they are history."""
    key = Key.of(resource["metadata"])
    if resource.get("kind") == SERVING_PROFILES.name:
        store.drop_profile(key)
    elif resource.get("kind") == TUNING_RUNS.name:
        store.drop_run(key)


def _model(model: type[Model], resource: Resource) -> Model:
    return model.model_validate({name: resource[name] for name in ("metadata", "spec", "status") if name in resource})


def _put_event(store: Store, event: Resource) -> None:
    regarding = event.get("regarding") or {}
    kind, key = regarding.get("kind"), Key.of(regarding)
    if kind not in tuple(About):
        return
    note = EventNote(
        at=str(event.get("eventTime") or event.get("deprecatedLastTimestamp") or ""),
        type=event.get("type", ""),
        reason=event.get("reason", ""),
        note=event.get("note", ""),
        about=f"{kind} {key.name}",
    )
    store.put_event(event["metadata"]["name"], About(kind), key, note)
