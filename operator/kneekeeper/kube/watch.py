"""Lists with the version that a watch goes on from, and watches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum

import orjson

from kneekeeper.kube.client import PAGE_SIZE, Kube, path_of
from kneekeeper.kube.errors import DEFAULT_RETRY_AFTER_S, ServerTrouble, error_of_response
from kneekeeper.kube.resources import Kind, Resource

LASTS_S = 240
"""The server ends the watch after this; then the caller lists anew or watches on."""

SILENCE_S = 90.0
"""Servers send a bookmark a minute: a longer silence is a connection that was cut without a word."""


@dataclass(frozen=True)
class WatchEvent:
    """One change."""

    class Type(StrEnum):
        ADDED = "ADDED"
        MODIFIED = "MODIFIED"
        DELETED = "DELETED"
        BOOKMARK = "BOOKMARK"

    type: Type
    object: Resource


async def list_page(kube: Kube, kind: Kind, namespace: str, *, fields: str = "") -> tuple[list[Resource], str]:
    """All objects (read page by page) and the version to watch from. Raises KubeError."""
    items: list[Resource] = []
    query = {"limit": str(PAGE_SIZE)} | ({"fieldSelector": fields} if fields else {})
    while True:
        page = await kube.read_json(path_of(kind, namespace), query)
        items.extend(page.get("items") or [])
        metadata = page.get("metadata") or {}
        token = metadata.get("continue") or ""
        if not token:
            return items, str(metadata.get("resourceVersion", ""))
        query["continue"] = token


async def watch(kube: Kube, kind: Kind, namespace: str, version: str, *, fields: str = "") -> AsyncIterator[WatchEvent]:
    """Changes after `version`, until the server ends the watch. Bookmarks are not told.

    Raises KubeError; a version that is too old is a ServerTrouble with no time to wait.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(LASTS_S),
    } | ({"fieldSelector": fields} if fields else {})
    path = path_of(kind, namespace)
    async for line in kube.lines(path, query, silence_s=SILENCE_S):
        try:
            event = orjson.loads(line)
            content = event["object"]
            told = event["type"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise ServerTrouble(f"GET {path}: the watch told what is no event", DEFAULT_RETRY_AFTER_S) from None
        if told == "ERROR":
            raise error_of_response(f"GET {path} (watch)", int(content.get("code") or 500), content, None)
        if told != WatchEvent.Type.BOOKMARK:
            yield WatchEvent(WatchEvent.Type(told), content)
