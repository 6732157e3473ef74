"""What the integration tests share: one API server, a client and a namespace for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from e2e.cluster import control_plane
from kneekeeper.kube.client import Kube
from tests.integration.place import NAMESPACES, Place, make_place


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
