"""Every call of the API server is told once, with what came of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from kubernetes.aio.client import Configuration

from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import KubeError
from kneekeeper.kube.resources import PODS


async def _answer(request: web.Request) -> web.Response:
    return web.json_response({"message": "no"}, status=403 if request.method == "POST" else 200)


@pytest.fixture
async def server() -> AsyncIterator[BaseTestServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", _answer)
    async with TestServer(application) as running:
        yield running


async def test_answers_refusals_and_silence_are_told(server):
    told: list[tuple[str, int | None]] = []

    def kube_told(method: str, code: int | None) -> None:
        told.append((method, code))

    configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
    async with Kube(configuration, "0", kube_told) as kube:
        await kube.get(PODS, "prod", "chat-a")
        with pytest.raises(KubeError):
            await kube.create(PODS, "prod", {})
    async with Kube(Configuration(host="http://127.0.0.1:1"), "0", kube_told) as nobody:
        with pytest.raises(KubeError):
            await nobody.delete(PODS, "prod", "chat-a")
    assert told == [("GET", 200), ("POST", 403), ("DELETE", None)]


async def test_a_proxy_of_the_environment_is_used_unless_the_server_is_exempt(server, monkeypatch):
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", str(server.make_url("")).rstrip("/"))
    async with Kube(Configuration(host="http://kubernetes.invalid"), "0") as through:
        assert await through.get(PODS, "prod", "chat-a") == {"message": "no"}
    monkeypatch.setenv("NO_PROXY", "kubernetes.invalid")
    async with Kube(Configuration(host="http://kubernetes.invalid"), "0") as direct:
        with pytest.raises(KubeError):
            await direct.get(PODS, "prod", "chat-a")
