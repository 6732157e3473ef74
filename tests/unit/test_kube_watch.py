"""Watches over a real socket: events in any chunks, errors in words, and the token that a client was given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, ServerTrouble
from kneekeeper.kube.resources import SERVING_PROFILES
from kneekeeper.kube.watch import WatchEvent, list_page, watch

LARGE = "x" * 300_000  # beyond what a line of a stream reader may have


def event(type_: str, name: str, **more: Any) -> bytes:
    return json.dumps({"type": type_, "object": {"metadata": {"name": name}, **more}}).encode() + b"\n"


class Api:
    """Answers one path; `chunks` are what a watch sends."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.silent = False
        self.status = 200
        self.tokens: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.status != 200:
            return web.json_response({"reason": "Forbidden", "message": "not you"}, status=self.status)
        if "watch" not in request.query:
            return web.json_response({"items": [], "metadata": {"resourceVersion": "7"}})
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in self.chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if self.silent:
            await asyncio.sleep(3600)
        return response


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def server(api: Api) -> AsyncIterator[TestServer]:
    app = web.Application()
    app.add_routes([web.get("/{path:.*}", api.answer)])
    found = TestServer(app)
    await found.start_server()
    yield found
    await found.close()


@pytest.fixture
async def kube(server: TestServer) -> AsyncIterator[Kube]:
    async with Kube(Configuration(host=str(server.make_url("")).rstrip("/")), "test") as found:
        yield found


async def names(kube: Kube) -> list[tuple[str, str]]:
    found = watch(kube, SERVING_PROFILES, "prod", "7")
    return [(each.type.value, each.object["metadata"]["name"]) async for each in found]


async def test_events_are_told_whatever_chunks_they_come_in(api: Api, kube: Kube):
    whole = event("ADDED", "a") + event("MODIFIED", "b", spec={"text": LARGE}) + event("BOOKMARK", "no")
    whole += event("DELETED", "c")
    for size in (1 << 20, 70_000):
        api.chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert await names(kube) == [("ADDED", "a"), ("MODIFIED", "b"), ("DELETED", "c")]


async def test_a_list_tells_the_version_to_go_on_from(kube: Kube):
    assert await list_page(kube, SERVING_PROFILES, "prod") == ([], "7")


async def test_a_refused_watch_says_why(api: Api, kube: Kube):
    api.status = 403
    with pytest.raises(Forbidden, match="not you"):
        await names(kube)


async def test_a_connection_that_fell_silent_is_trouble(api: Api, kube: Kube):
    api.chunks, api.silent = [event("ADDED", "a")], True
    lines = kube.lines("/apis", {"watch": "true"}, silence_s=0.2)
    assert json.loads(await anext(lines))["type"] == WatchEvent.Type.ADDED
    with pytest.raises(ServerTrouble):
        await anext(lines)


async def test_a_viewers_client_carries_the_viewers_token_and_nothing_of_ones_own(
    api: Api, server: TestServer, tmp_path: Path
):
    kubeconfig = tmp_path / "config"
    own = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": str(server.make_url("")).rstrip("/")}}],
        "users": [{"name": "x", "user": {"token": "the-servers-own"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(own))
    async with await Kube.connect("test", str(kubeconfig)) as mine:
        await list_page(mine, SERVING_PROFILES, "prod")
    async with await Kube.connect_as("ada", "test", str(kubeconfig)) as viewers:
        await list_page(viewers, SERVING_PROFILES, "prod")
    assert api.tokens == ["Bearer the-servers-own", "Bearer ada"]
