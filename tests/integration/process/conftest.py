"""The operator as a process against a real API server: what it asks for, what it may do, what it lives through.

It acts as its ServiceAccount under the rules that the chart renders, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kneekeeper.kube.client import Kube
from tests.integration.operator_place import OperatorPlace, operator_place
from tests.integration.serving import Serving, add_node

FULL, FREE = "GPU-without-room", "GPU-with-room"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorPlace]:
    """An API server of this file's own: it is counted, cut off and stopped."""
    with operator_place(tmp_path_factory.mktemp("operator")) as place:
        yield place


@pytest.fixture(scope="module", autouse=True)
def nodes(place: OperatorPlace) -> None:
    """One without a GPU to spare, one with several."""

    async def add() -> None:
        async with await Kube.connect("test", str(place.server.kubeconfig)) as kube:
            await add_node(kube, "full", FULL, gpus=0)
            await add_node(kube, "free", FREE, gpus=64)

    asyncio.run(add())


@pytest.fixture
async def kube(place: OperatorPlace) -> AsyncIterator[Kube]:
    async with await Kube.connect("test", str(place.server.kubeconfig)) as kube:
        yield kube


@pytest.fixture
def serve(place: OperatorPlace, kube: Kube) -> Callable[..., Any]:
    """Makes a namespace of serving pods."""

    async def make(namespace: str, node: str = "full") -> Serving:
        return await Serving.create(kube, namespace, node, place.engine_port)

    return make


@pytest.fixture(autouse=True)
def no_bugs(place: OperatorPlace) -> Iterator[None]:
    """No operator of this file may log an exception that nobody expected."""
    log = place.folder / "operator.log"
    log.touch()
    already = len(log.read_text())
    yield
    lines = log.read_text()[already:].splitlines()
    assert [line for line in lines if '"exception"' in line or "Traceback" in line] == []
