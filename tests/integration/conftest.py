"""What the tests against an API server share: the server, and for each test a client, a namespace, its surroundings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from e2e.cluster import control_plane
from kneekeeper.kube.client import Kube
from kneekeeper.observe.clients import Clients
from tests.integration.desk import Desk, furnish, with_kube
from tests.integration.place import NAMESPACES, Place, make_place
from tests.integration.surroundings import Outside


@pytest.fixture(scope="session")
def api_server() -> Iterator[str]:
    """Path of the kubeconfig of a real API server."""
    with control_plane() as server:
        yield str(server.kubeconfig)


@pytest.fixture
async def kube(api_server: str) -> AsyncIterator[Kube]:
    async with await Kube.connect("test", api_server) as kube:
        yield kube


@pytest.fixture
async def place(kube: Kube) -> AsyncIterator[Place]:
    place = await make_place(kube)
    yield place
    await kube.delete(NAMESPACES, "", place.namespace)


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def clients(place: Place, outside: Outside) -> Clients:
    http = httpx.AsyncClient(transport=httpx.MockTransport(outside.answer))
    return Clients(place.kube, http, outside.connect)


@pytest.fixture(scope="module")
def furnished(api_server: str) -> Iterator[str]:
    """A namespace for a `Desk`."""
    namespace = asyncio.run(with_kube(api_server, furnish))
    yield namespace
    asyncio.run(with_kube(api_server, lambda kube: kube.delete(NAMESPACES, "", namespace)))


@pytest.fixture
def desk(api_server: str, furnished: str, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(api_server, furnished, capsys)
