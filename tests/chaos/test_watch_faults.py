"""The operator as a process, whose watches end, stall, expire, repeat themselves and come late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from kneekeeper.kube.client import Kube
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.faults import AtRandom
from tests.chaos.watches import WatchesAtRandom
from tests.integration.operator_process import running_operator
from tests.integration.place import make_place
from tests.integration.scenarios import a_clone_fails_and_is_cleaned_up, a_replica_is_borrowed_and_returned
from tests.integration.serving import Serving, add_node, busy_engine

pytestmark = pytest.mark.timeout(900)

SILENCE_S = 5.0
LONG_S = 200.0
"""Whoever is refused waits for seconds, and most looks are of a dozen calls."""


@pytest.fixture
async def serving(kube: Kube) -> AsyncIterator[Serving]:
    await make_place(kube)
    await add_node(kube, "watched", "GPU-of-the-watched", gpus=64)
    with busy_engine() as port:
        yield await Serving.create(kube, "watched", "watched", port)


@asynccontextmanager
async def kept_running(kubeconfig: Path, log: Path, **settings: str) -> AsyncIterator[None]:
    """As the kubelet keeps it: kopf ends the process when the server refuses to open a watch with 410."""

    async def keep() -> None:
        while True:
            with ExitStack() as process:
                operator = await asyncio.to_thread(process.enter_context, running_operator(kubeconfig, log, **settings))
                await asyncio.to_thread(operator.process.wait)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_lives_go_on_through_bad_watches_and_bad_answers(api_server, serving, tmp_path):
    await serving.deploy("chat")
    await serving.deploy("lend", replicas=2)
    calls, watches = AtRandom(seed=2), WatchesAtRandom(seed=1)
    calls.share = 0.01
    proxy = FaultProxy(Path(api_server), plan=calls, watch_plan=watches)
    async with proxy.running():
        kubeconfig, log = proxy.written_kubeconfig(tmp_path), tmp_path / "operator.log"
        settings = {"watch_silence_s": str(SILENCE_S), "priority_class": "kneekeeper-test"}
        async with kept_running(kubeconfig, log, **settings):
            await a_clone_fails_and_is_cleaned_up(serving, LONG_S)
            await a_replica_is_borrowed_and_returned(serving, LONG_S)
    assert len(set(watches.hit)) >= 4
    assert calls.hit > 0
    assert "a bug" not in log.read_text()
