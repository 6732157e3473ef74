"""The dashboard's shared watches: lists, changes, deletions and errors become the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from kneekeeper.dashboard.store import Store
from kneekeeper.dashboard.watches import KINDS, follow, list_and_watch
from kneekeeper.domain.views.key import Key
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import ServerTrouble

RECORDED = Path(__file__).parents[1] / "dashboard" / "recorded"
PROFILES, RUNS, EVENTS = KINDS
CHAT = Key("prod", "chat")


class Server:
    """Answers every list with `items` and every watch with `lines`."""

    def __init__(self, items: list[dict[str, Any]], lines: list[dict[str, Any]]) -> None:
        self.items, self.told = items, lines
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []

    async def read_json(self, _: str, query: dict[str, str]) -> dict[str, Any]:
        self.lists.append(dict(query))
        if "continue" not in query and len(self.items) > 1:
            return {"items": self.items[:1], "metadata": {"continue": "more", "resourceVersion": "7"}}
        rest = self.items[1:] if "continue" in query else self.items
        return {"items": rest, "metadata": {"resourceVersion": "7"}}

    async def lines(self, _: str, query: dict[str, str], *, silence_s: float) -> AsyncIterator[bytes]:
        assert silence_s > 60
        self.watches.append(dict(query))
        for line in self.told:
            yield json.dumps(line).encode()


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((RECORDED / "applied.yaml").read_text()))


async def look(store: Store, server: Server, watched: Any = PROFILES, namespace: str = "") -> None:
    await list_and_watch(cast(Kube, server), store, watched, namespace)


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """As it stands in a list: without kind."""
    return {name: part for name, part in item.items() if name not in ("kind", "apiVersion")}


async def test_a_list_is_read_page_by_page_and_watched_from_its_version(objects: list[dict[str, Any]]):
    other = {**objects[0], "metadata": {**objects[0]["metadata"], "name": "other"}}
    store, server = Store(), Server([bare(objects[0]), bare(other)], [])
    await look(store, server)
    assert [profile.metadata["name"] for profile in store.profiles()] == ["chat", "other"]
    assert server.watches[0]["resourceVersion"] == "7"
    assert server.lists[1]["continue"] == "more"


async def test_changes_and_deletions_are_followed(objects: list[dict[str, Any]]):
    changed = {**objects[0], "status": {**objects[0]["status"], "stage": "Elsewhere"}}
    store = Store()
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
    await look(store, Server([bare(objects[0])], [bookmark, {"type": "MODIFIED", "object": changed}]))
    profile = store.profile(CHAT)
    assert profile is not None
    assert profile.status.stage == "Elsewhere"
    await look(store, Server([bare(objects[0])], [{"type": "DELETED", "object": objects[0]}]))
    assert store.profile(CHAT) is None


async def test_what_went_away_between_two_watches_is_gone(objects: list[dict[str, Any]]):
    store = Store()
    await look(store, Server([bare(objects[0])], []))
    await look(store, Server([bare(objects[1])], []), RUNS)
    await look(store, Server([], []), namespace="elsewhere")
    assert store.profile(CHAT) is not None
    await look(store, Server([], []))
    await look(store, Server([], []), RUNS)
    assert store.profiles() == []
    assert store.runs_of(CHAT) == []


async def test_events_of_this_operator_alone_are_asked_for():
    server = Server([], [])
    await look(Store(), server, EVENTS)
    assert server.lists[0]["fieldSelector"] == "reportingController=kneekeeper.io/kneekeeper"
    assert server.watches[0]["fieldSelector"] == server.lists[0]["fieldSelector"]


async def test_a_version_that_is_too_old_is_a_reason_to_list_anew():
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old", "reason": "Expired"}}
    with pytest.raises(ServerTrouble) as trouble:
        await look(Store(), Server([], [gone]))
    assert trouble.value.retry_after_s == 0


async def test_an_answer_that_is_no_event_is_trouble_not_silence():
    with pytest.raises(ServerTrouble):
        await look(Store(), Server([], [{"no": "event"}]))


async def test_viewers_cost_the_api_server_nothing(objects: list[dict[str, Any]]):
    all_watch = asyncio.Event()

    class Quiet(Server):
        async def lines(self, _: str, query: dict[str, str], *, silence_s: float) -> AsyncIterator[bytes]:
            self.watches.append(dict(query))
            if len(self.watches) == len(KINDS):
                all_watch.set()
            await asyncio.Event().wait()
            yield b""

    store, server = Store(), Quiet([bare(objects[0])], [])
    following = asyncio.create_task(follow(cast(Kube, server), store, ()))
    await all_watch.wait()
    with store.subscribed(), store.subscribed():
        await asyncio.sleep(0)
    assert len(server.lists) == len(server.watches) == len(KINDS)
    following.cancel()
