"""One shared list-and-watch for each kind: however many viewers there are, the API server is asked once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.api.model import GROUP
from kneekeeper.dashboard.resources import drop, put
from kneekeeper.dashboard.store import Store
from kneekeeper.domain.names import FIELD_MANAGER
from kneekeeper.domain.views.key import Key
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import KubeError, ServerTrouble
from kneekeeper.kube.resources import EVENTS, SERVING_PROFILES, TUNING_RUNS, Kind
from kneekeeper.kube.watch import WatchEvent, list_page, watch

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""After an error; a server in trouble may ask for longer."""


@dataclass(frozen=True)
class Watched:
    """A kind, and which of its objects."""

    kind: Kind
    fields: str = ""


KINDS = (
    Watched(SERVING_PROFILES),
    Watched(TUNING_RUNS),
    Watched(EVENTS, f"reportingController={GROUP}/{FIELD_MANAGER}"),
)


async def follow(kube: Kube, store: Store, namespaces: Sequence[str]) -> None:
    """Keep the store as the cluster is, for ever; no namespaces is the whole cluster."""
    async with asyncio.TaskGroup() as tasks:
        for namespace in namespaces or [""]:
            for watched in KINDS:
                tasks.create_task(_follow(kube, store, watched, namespace))


async def _follow(kube: Kube, store: Store, watched: Watched, namespace: str) -> None:
    while True:
        try:
            await list_and_watch(kube, store, watched, namespace)
        except ServerTrouble as error:
            log.warning("%s", error)
            await asyncio.sleep(max(error.retry_after_s, 1.0))
        except KubeError as error:
            log.warning("%s", error)
            await asyncio.sleep(AGAIN_S)


async def list_and_watch(kube: Kube, store: Store, watched: Watched, namespace: str) -> None:
    """Until the watch ends; then all is listed anew, which finds what was deleted meanwhile."""
    items, version = await list_page(kube, watched.kind, namespace, fields=watched.fields)
    for item in items:
        put(store, {**item, "kind": watched.kind.name})
    keys = {Key.of(item["metadata"]) for item in items}
    if watched.kind is SERVING_PROFILES:
        store.keep_profiles(keys, namespace)
    elif watched.kind is TUNING_RUNS:
        store.keep_runs(keys, namespace)
    async for event in watch(kube, watched.kind, namespace, version, fields=watched.fields):
        if event.type is WatchEvent.Type.DELETED:
            drop(store, {**event.object, "kind": watched.kind.name})
        else:
            put(store, event.object)
