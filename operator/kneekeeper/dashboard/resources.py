"""From objects as the API server or a file has them to the store. What cannot be read is left out and logged."""

from __future__ import annotations

import logging
from typing import Any

from kneekeeper.dashboard.store import About, Store
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.profile import EventNote
from kneekeeper.kube.resources import EVENTS, SERVING_PROFILES, TUNING_RUNS, Resource
from kneekeeper.observe.own_resources import UnreadableResource, parse_profile, parse_run

log = logging.getLogger(__name__)


def put(store: Store, resource: Resource) -> Key | None:
    """Take an object of the kinds that the page shows into the store; returns its own key, None for others.

    An object that this version does not understand, as of a newer operator, is logged and left out.
    """
    kind = resource.get("kind")
    metadata: dict[str, Any] = resource.get("metadata") or {}
    try:
        if kind == SERVING_PROFILES.name:
            store.put_profile(parse_profile(resource))
        elif kind == TUNING_RUNS.name:
            store.put_run(parse_run(resource))
        elif kind == EVENTS.name:
            _put_event(store, resource)
        else:
            return None
    except UnreadableResource as error:
        log.warning("left out: %s", error)
    except KeyError as error:
        log.warning("%s %s cannot be shown: %s", kind, metadata.get("name"), error)
    return Key.of(metadata) if "name" in metadata else None


def drop(store: Store, resource: Resource) -> None:
    """The object is gone. Events stay: they are history."""
    key = Key.of(resource["metadata"])
    if resource.get("kind") == SERVING_PROFILES.name:
        store.drop_profile(key)
    elif resource.get("kind") == TUNING_RUNS.name:
        store.drop_run(key)


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
