"""A proxy before a real API server that answers as API servers, and networks, do on bad days."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from tests.chaos.faults import DEATHS, Call, Fault, Plan, quiet
from tests.chaos.watches import WatchPlan, forward_watch, well

RETRY_AFTER_S = 1
_SILENCE_S = 0.02
_PIECES = 8
_PIECE_S = 0.002
_REMEMBERED = 3
_LATE_WRITES = 2
"""A late call is carried out behind so many of those that came after it."""
_SPOKEN = {
    Fault.UNAUTHORIZED: (401, "Unauthorized"),
    Fault.CONFLICT: (409, "Conflict"),
    Fault.GONE: (410, "Expired"),
    Fault.INVALID: (422, "Invalid"),
    Fault.THROTTLED: (429, "TooManyRequests"),
    Fault.INTERNAL: (500, "InternalError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
}
_PASSED_ON = ("Accept", "Content-Type", "User-Agent")


@dataclass(frozen=True)
class _Answer:
    status: int
    content_type: str
    body: bytes


async def _nobody(fault: Fault) -> None:
    """Nobody dies."""


@dataclass
class _Late:
    method: str
    url: URL
    headers: dict[str, str]
    body: bytes
    writes: int = 0
    """Since it was held back."""


@dataclass
class FaultProxy:
    """Passes calls on as the identity of `kubeconfig`; `plan` says what befalls each."""

    kubeconfig: Path
    plan: Plan = quiet
    watch_plan: WatchPlan = well
    killed: Callable[[], None] = lambda: None
    """Called when the plan kills the operator."""
    dies: Callable[[Fault], Awaitable[None]] = _nobody
    """Called when the plan has pods die."""
    told: Callable[[Call], None] = lambda call: None
    """Called with every call that comes in."""
    carried_out: Callable[[str], None] = lambda path: None
    """Called with the path of every write that the server has answered."""
    port: int = 0
    faults: int = 0
    _earlier: dict[str, deque[_Answer]] = field(default_factory=dict)
    _late: _Late | None = None

    def forget(self) -> None:
        """What stale reads would answer, and what is held back."""
        self._earlier.clear()
        self._late = None

    def written_kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads through this proxy."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "proxy", "user": {}}],
        }
        target = folder / "through-the-fault-proxy"
        target.write_text(yaml.safe_dump(config))
        return target

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        """It listens on a free port of the loopback address while the block runs."""
        server, identity = _identity(self.kubeconfig)
        async with aiohttp.ClientSession(
            server, connector=aiohttp.TCPConnector(ssl=identity, limit=0), auto_decompress=True
        ) as self._session:
            application = web.Application(client_max_size=64 * 1024 * 1024)
            application.router.add_route("*", "/{path:.*}", self._serve)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.method, request.path, dict(request.query), await request.read())
        self.told(call)
        fault = self.plan(call)
        if fault is not None:
            self.faults += 1
        if fault is not None and fault in _SPOKEN:
            return _refusal(*_SPOKEN[fault])
        if fault in DEATHS:
            await self.dies(fault)
        if fault is Fault.KILLED_LATE:
            self._late = _Late(call.method, request.rel_url, self._headers(request), call.body)
        if fault in (Fault.SILENT, Fault.KILLED_BEFORE, Fault.KILLED_LATE):
            if fault is not Fault.SILENT:
                self.killed()
            await asyncio.sleep(_SILENCE_S)
            return _aborted(request)
        if call.watches:
            return await self._watched(request)
        if fault is Fault.STALE and not call.writes and (known := self._earlier.get(request.path_qs)):
            return _spoken(known[0])
        if fault is Fault.TWICE:
            await self._passed_on(request, call)
        answer = await self._passed_on(request, call)
        if fault is Fault.KILLED_AFTER:
            self.killed()
        if fault in (Fault.LOST, Fault.KILLED_AFTER):
            return _aborted(request)
        if fault is Fault.CUT:
            return await _in_pieces(request, answer, _PIECES // 2)
        if fault is Fault.SLOW:
            return await _in_pieces(request, answer, _PIECES)
        return _spoken(answer)

    async def _watched(self, request: web.Request) -> web.StreamResponse:
        limits = aiohttp.ClientTimeout(total=None)
        headers = {"Accept": "application/json"}
        async with self._session.get(request.rel_url, headers=headers, timeout=limits) as upstream:
            return await forward_watch(request, upstream, self.watch_plan())

    async def _passed_on(self, request: web.Request, call: Call) -> _Answer:
        if call.writes:
            await self._catch_up()
        async with self._session.request(
            call.method, request.rel_url, data=call.body or None, headers=self._headers(request)
        ) as response:
            answer = _Answer(response.status, response.content_type, await response.read())
        if call.writes:
            self.carried_out(call.path)
        else:
            known = self._earlier.setdefault(request.path_qs, deque(maxlen=_REMEMBERED))
            if not known or known[-1] != answer:
                known.append(answer)
        return answer

    async def _catch_up(self) -> None:
        """What was held back is carried out, whatever has been written meanwhile."""
        late = self._late
        if late is None:
            return
        late.writes += 1
        if late.writes > _LATE_WRITES:
            self._late = None
            async with self._session.request(late.method, late.url, data=late.body or None, headers=late.headers):
                self.carried_out(late.url.path)

    @staticmethod
    def _headers(request: web.Request) -> dict[str, str]:
        return {name: request.headers[name] for name in _PASSED_ON if name in request.headers}


def _identity(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """The server's URL, and a context with the kubeconfig's authority and client certificate."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile(suffix=".pem") as both:
        both.write(base64.b64decode(user["client-certificate-data"]))
        both.write(base64.b64decode(user["client-key-data"]))
        both.flush()
        context.load_cert_chain(both.name)
    return cluster["server"], context


def _refusal(status: int, reason: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 429 else {}
    return web.Response(
        status=status,
        text=json.dumps(body | {"message": f"{reason}, by the fault proxy"}),
        content_type="application/json",
        headers=headers,
    )


def _spoken(answer: _Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type)


def _aborted(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _in_pieces(request: web.Request, answer: _Answer, pieces: int) -> web.StreamResponse:
    """The first of eight pieces of the answer, one after another; the connection ends where some are missing."""
    response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
    response.content_length = len(answer.body)
    await response.prepare(request)
    size = -(-len(answer.body) // _PIECES)
    for piece in range(pieces):
        await response.write(answer.body[piece * size : (piece + 1) * size])
        await asyncio.sleep(_PIECE_S)
    if pieces < _PIECES and request.transport is not None:
        request.transport.abort()
    return response
