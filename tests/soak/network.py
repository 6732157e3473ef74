"""Clients of the API server that tell of every write, and lead through a proxy with faults where these are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp

from kneekeeper.kube.client import Call, Kube
from kneekeeper.kube.resources import Resource
from tests.integration.patient import PatientKube

CRASH_LOG = "torch.OutOfMemoryError: CUDA out of memory."

Told = Callable[[str, str, Resource | None], None]
"""Method and path of a write, and the answer, None where none came."""


class TellingKube(Kube):
    """`Kube`, whose watches are played."""

    told: Told = staticmethod(lambda method, path, answer: None)

    async def _object(self, call: Call) -> Resource:
        if call.method == "GET":
            return await super()._object(call)
        answer = None
        try:
            answer = await super()._object(call)
            return answer
        finally:
            self.told(call.method, call.path, answer)


class PlayersKube(TellingKube, PatientKube):
    """Of everybody but the operator: no fault is meant for them."""


class OperatorsKube(TellingKube):
    """Through a proxy while it `is_detoured`; the kubelet is played."""

    detour: Kube | None = None
    is_detoured: Callable[[], bool] = staticmethod(lambda: False)
    calls: int = 0

    async def _call(self, call: Call, limits: aiohttp.ClientTimeout) -> Any:
        self.calls += 1
        if self.detour is not None and self.is_detoured():
            return await self.detour._call(call, limits)
        return await super()._call(call, limits)

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, tail_lines: int, previous: bool = False
    ) -> str:
        """Only pods that crash are asked for it."""
        return CRASH_LOG
