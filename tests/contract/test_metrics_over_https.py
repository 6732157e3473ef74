"""The operator reads the metrics of an engine that speaks HTTPS, whatever its certificate is for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from kneekeeper.api.serving_profile import Scheme
from kneekeeper.domain.observation import EngineMetrics, Unreachable
from kneekeeper.load.http_server import Request, Response, serve_connection
from kneekeeper.observe.direct import DirectSource
from kneekeeper.observe.engine_http import open_http
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.pods import parse_pod
from tests.contract.certificates import self_signed
from tests.unit.kube_objects import pod

METRICS = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"
METRICS += b"vllm:num_preemptions_total 0\nvllm:generation_tokens_total 7\n"


@pytest_asyncio.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    async def answer(request: Request) -> Response:
        assert "authorization" not in request.headers
        return Response(HTTPStatus.OK, METRICS)

    certificate = self_signed(tmp_path, "chat.prod.svc")
    server = await asyncio.start_server(partial(serve_connection, answer), "127.0.0.1", 0, ssl=certificate.server)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with open_http() as opened:
        yield opened


@pytest.mark.parametrize(("scheme", "running"), [(Scheme.HTTPS, 3), (Scheme.HTTP, None)])
async def test_metrics_are_read_as_the_engine_speaks(
    port: int, http: httpx.AsyncClient, scheme: Scheme, running: int | None
):
    view = replace(parse_pod(pod("chat-1"), "vllm"), ip="127.0.0.1")
    found = (await DirectSource(http).engine_metrics(ServingPods("prod", (view,), port, scheme)))["chat-1"]
    if running is None:
        assert isinstance(found, Unreachable)
    else:
        assert isinstance(found, EngineMetrics)
        assert found.running == running
