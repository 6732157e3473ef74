"""Clients of the API server that tell of every write, remember what was read since, and lead through a proxy with
faults where these are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp

from kneekeeper.kube.client import Call, Kube
from kneekeeper.kube.resources import Resource
from tests.chaos.memory import RememberingKube
from tests.integration.patient import PatientKube

CRASH_LOG = "torch.OutOfMemoryError: CUDA out of memory."

Told = Callable[[str, str, Resource | None], None]
"""Method and path of a write, and the answer, None where none came."""


class TellingKube(RememberingKube):
    """Tells of every write."""

    told: Told = staticmethod(lambda method, path, answer: None)

    def _has_written(self, call: Call, answer: Resource | None) -> None:
        self.told(call.method, call.path, answer)


class PlayersKube(TellingKube, PatientKube):
    """Of everybody but the operator: no fault is meant for them."""


class OperatorsKube(TellingKube):
    """Through a proxy while it `is_detoured`; the kubelet is played."""

    detour: Kube | None = None
    is_detoured: Callable[[], bool] = staticmethod(lambda: False)
    calls: int = 0
    """Those that the memory answered are among them."""

    async def _bytes(self, call: Call) -> bytes:
        self.calls += 1
        if not self.is_detoured():
            return await super()._bytes(call)
        self.memory.forget_all()
        return await Kube._bytes(self, call)

    async def _call(self, call: Call, limits: aiohttp.ClientTimeout) -> Any:
        if self.detour is not None and self.is_detoured():
            return await self.detour._call(call, limits)
        return await super()._call(call, limits)

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, tail_lines: int, previous: bool = False
    ) -> str:
        """Only pods that crash are asked for it."""
        return CRASH_LOG
