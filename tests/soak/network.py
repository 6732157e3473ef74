"""Clients of the API server that tell of every write, remember what was read since, and lead through a proxy with
faults where these are on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from kneekeeper.kube.client import Call, Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import Resource
from tests.integration.patient import PatientKube

CRASH_LOG = "torch.OutOfMemoryError: CUDA out of memory."

Told = Callable[[str, str, Resource | None], None]
"""Method and path of a write, and the answer, None where none came."""


@dataclass
class Memory:
    """What reads were answered, until somebody writes to that kind in that namespace: all who write share it, so that
    no read is older than it would be from the server."""

    _answers: dict[tuple[str, str], dict[str, bytes | str]] = field(default_factory=dict)

    def of(self, call: Call) -> dict[str, bytes | str]:
        """By what was asked; of what is not there, the refusal."""
        return self._answers.setdefault(place_of(call.path), {})

    def forget(self, path: str) -> None:
        """Something was written there."""
        namespace, plural = place_of(path)
        self._answers.pop((namespace, plural), None)
        self._answers.pop(("", plural), None)

    def forget_all(self) -> None:
        self._answers.clear()


def place_of(path: str) -> tuple[str, str]:
    """Namespace, empty where it is in none, and plural."""
    parts = path.strip("/").split("/")
    kinds = parts[2:] if parts[0] == "api" else parts[3:]
    return (kinds[1], kinds[2]) if len(kinds) > 2 and kinds[0] == "namespaces" else ("", kinds[0])


class TellingKube(Kube):
    """`Kube`, whose watches are played."""

    told: Told = staticmethod(lambda method, path, answer: None)
    memory: Memory

    async def _object(self, call: Call) -> Resource:
        if call.method == "GET":
            return await super()._object(call)
        answer = None
        try:
            answer = await super()._object(call)
            return answer
        finally:
            self.memory.forget(call.path)
            self.told(call.method, call.path, answer)

    async def _bytes(self, call: Call) -> bytes:
        if call.method != "GET":
            return await super()._bytes(call)
        known, asked = self.memory.of(call), f"{call.path}?{call.query}"
        if asked not in known:
            try:
                known[asked] = await super()._bytes(call)
            except NotFound as error:
                known[asked] = str(error)
        answer = known[asked]
        if isinstance(answer, str):
            raise NotFound(answer)
        return answer


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
