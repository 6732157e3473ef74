"""The operator, its API server or its watches go away, and come back."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import pytest

from kneekeeper.domain.names import FINALIZER
from kneekeeper.kube.client import REQUEST_TIMEOUT_S
from kneekeeper.kube.errors import DEFAULT_RETRY_AFTER_S
from kneekeeper.kube.resources import SERVING_PROFILES
from tests.integration.operator_place import quiet
from tests.integration.serving import eventually
from tests.integration.silent_proxy import silent_proxy

# Some wait for minutes, on machines that may be busy.
pytestmark = pytest.mark.timeout(600)


async def test_a_profile_that_was_deleted_while_the_operator_was_down_is_released(place, serve, kube):
    away = await serve("away")
    await away.deploy("chat")
    with place.operator():
        await away.profile("chat")
        await away.run_waits_for("chat", "NoSpareGPU")
    await kube.delete(SERVING_PROFILES, "away", "chat")
    waits = await kube.get(SERVING_PROFILES, "away", "chat")
    assert waits["metadata"]["finalizers"] == [FINALIZER]
    with place.operator():
        await eventually("the profile is gone", lambda: away.is_gone("chat"))
    assert await away.runs("chat") == []


async def test_an_operator_that_loses_its_api_server_for_ten_seconds_goes_on(place, serve):
    lost = await serve("lost")
    await lost.deploy("chat")
    with place.operator() as operator:
        await lost.profile("chat")
        await lost.run_waits_for("chat", "NoSpareGPU")
        api_server = place.api_server_process()
        api_server.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(10)
            assert operator.is_healthy()
        finally:
            api_server.send(signal.SIGCONT)
        await lost.seen("chat", await lost.patch("chat", "/spec/runHistoryLimit", 7))
        assert operator.is_running()
        assert len(await lost.runs("chat")) == 1


SILENCE_S = 20.0
# After the silence the look that the event asks for may be sent on a connection that was cut too, and once more.
DEAF_S = SILENCE_S + REQUEST_TIMEOUT_S + DEFAULT_RETRY_AFTER_S + 15.0


async def test_watches_that_are_cut_without_a_word_leave_the_operator_deaf_for_a_bounded_time_only(
    place, serve, tmp_path, capsys
):
    deaf = await serve("deaf")
    await deaf.deploy("chat")
    async with silent_proxy(place.server_port) as proxy:
        kubeconfig = tmp_path / "through-the-proxy"
        kubeconfig.write_text(place.kubeconfig.read_text().replace(f":{place.server_port}", f":{proxy.port}"))
        with place.operator(kubeconfig, watch_silence_s=str(SILENCE_S)) as operator:
            await deaf.profile("chat", suspend=True)
            await deaf.seen("chat", 1)
            await quiet(place, "deaf")
            assert proxy.cut() >= len(("profiles", "runs", "deployments"))
            generation, begin = await deaf.patch("chat", "/spec/runHistoryLimit", 7), time.monotonic()
            await asyncio.sleep(3)
            assert (await deaf.status("chat"))["observedGeneration"] < generation, "the cut was not silent"
            await deaf.seen("chat", generation, within_s=DEAF_S)
            told = {"silence_s": SILENCE_S, "deaf_s": round(time.monotonic() - begin, 1), "bound_s": DEAF_S}
            with capsys.disabled():
                print("\n" + json.dumps({"deafness": told}))
            assert operator.is_healthy()
