"""A probe: load levels against a server that has a URL, one after the other, and what the server says of them."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from kneekeeper.api.offered_load import Arrivals, Closed, Open
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.stage import Endpoint, Limits, Slo, StageSpec, StageState, StageStatus, Target, Tls
from kneekeeper.domain.certify import pass_floor
from kneekeeper.domain.contradictions import Contradiction, ServerTotals, contradictions
from kneekeeper.domain.load_level import Delivered, LoadLevel, delivered, load_level
from kneekeeper.domain.plan.requests import Traffic, traffic_of
from kneekeeper.domain.stage_orders import MOST_REQUESTS
from kneekeeper.load.sources import Sources
from kneekeeper.load.stage_runner import StageRunner
from kneekeeper.local.counters import read_totals
from kneekeeper.local.next_step import ROOM_TO_PASS, next_step
from kneekeeper.local.served import BaseUrl, ServedModel, ServerAbsent, ServerError, read_models
from kneekeeper.local.wording import for_probe

_LOOK_EVERY_S = 0.2
_SETTLE_S = 3.0
"""A server counts a request a moment after its last token; longer, and it is a contradiction."""

_AFTER_IT_IS_GONE = "Look in its log why it ended, such as out of memory, start it again, and measure again."
_READ_LOG = "Correct what it says, or look in the server's log, and measure again."

_MIN_REQUESTS, _REQUESTS_PER_USER = 30, 5
_ROOM_FOR_WARM_UP = 4
_REQUESTS, _DURATION_S = 3000, 120.0


@dataclass(frozen=True)
class ProbeRequest:
    """What is offered. `levels` in their order; `slo` without a target judges nothing."""

    url: str
    model: str | None
    endpoint: Endpoint
    levels: tuple[Arrivals, ...]
    profile: ServingProfileSpec  # of which the workload is sent
    prompts: Path | None
    ca_file: Path | None  # certificates to trust instead of the system's
    slo: Slo
    max_requests: int | None  # of a level; None: as many as a verdict takes
    max_duration_s: float | None  # of a level; None: as long as those requests take
    seed: int

    @property
    def judged(self) -> bool:
        return any(target is not None for target in (self.slo.ttft_s, self.slo.tpot_s, self.slo.e2e_s))


@dataclass
class ProbeResult:
    """What was measured so far; it grows while the probe runs, so that nothing is lost when it is interrupted."""

    url: str
    model: str = ""
    has_metrics: bool = False
    levels: list[LoadLevel] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    interrupted: bool = False


class Watcher(Protocol):
    """Who is told how the probe stands."""

    def begins(self, result: ProbeResult) -> None:
        """The server was found."""

    def progress(self, name: str, spec: StageSpec, status: StageStatus) -> None:
        """A level runs; called several times a second."""

    def ended(self, level: LoadLevel) -> None:
        """A level has ended."""


async def probe(
    request: ProbeRequest,
    result: ProbeResult,
    http: httpx.AsyncClient,
    base: BaseUrl,
    key: str | None,
    watcher: Watcher,
) -> None:
    """Measure all levels into `result`. Raises ServerError when the server cannot be measured.

    Cancelled, the level in flight is broken off and what it had so far is kept, then CancelledError is raised.
    """
    served = _choose(await read_models(http, base), request.model)
    target = await asyncio.to_thread(_target, request, served.id)
    result.model = served.id
    before = await read_totals(http, base)
    result.has_metrics = before is not None
    watcher.begins(result)
    traffic, sources = traffic_of(request.profile, served.max_model_len), Sources(None, request.prompts)
    for arrivals in request.levels:
        name = _name(arrivals)
        spec = _spec(request, target, traffic, arrivals, name)
        runner = StageRunner(spec, key, sources)
        gone = ""
        try:
            await _run(runner, name, watcher)
            if runner.status().failed:
                gone = await _gone(http, base)
        finally:
            result.interrupted = not runner.over or runner.status().state is StageState.CANCELLED
            status = runner.status()
            if gone:
                status = status.model_copy(update={"state": StageState.FAILED, "message": gone})
            level = _with_next_step(load_level(name, spec, status, runner.samples()), spec.limits)
            result.levels.append(level)
            watcher.ended(level)
        if gone:
            raise ServerError(f"With {name}: {gone} {_AFTER_IT_IS_GONE}")
        if level.state is StageState.FAILED:
            raise ServerError(f"The server could not be measured with {name}: {level.message.rstrip('.')}. {_READ_LOG}")
        if before is not None:
            client = delivered(runner.samples())
            after = await _settled(http, base, before, client)
            if after is not None:
                found = contradictions(name, client, after.since(before))
                result.contradictions.extend(found)
                before = after


async def _gone(http: httpx.AsyncClient, base: BaseUrl) -> str:
    """What to say of a server that was there and to which no connection can be made any more; else empty."""
    try:
        await read_models(http, base)
    except ServerAbsent as error:
        if isinstance(error.__cause__, httpx.ConnectError):
            return f"the server is gone: nothing listens at {base.url} any more."
    except ServerError:
        pass
    return ""


async def _run(runner: StageRunner, name: str, watcher: Watcher) -> None:
    """To the stage's end; cancelled, the stage is ended first."""
    running = asyncio.create_task(runner.run())
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=_LOOK_EVERY_S)
            watcher.progress(name, runner.spec, runner.status())
        running.result()
    except asyncio.CancelledError:
        runner.cancel()
        await running
        raise


def _with_next_step(level: LoadLevel, limits: Limits) -> LoadLevel:
    """Its message in the words of this command, and what to type where it could not be told."""
    return replace(level, message=f"{for_probe(level.message)} {next_step(level, limits)}".strip())


async def _settled(
    http: httpx.AsyncClient, base: BaseUrl, before: ServerTotals, client: Delivered
) -> ServerTotals | None:
    """The counters once they have caught up with the client, or after a few seconds as they are."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _SETTLE_S
    while True:
        after = await read_totals(http, base)
        requests = None if after is None else after.since(before).requests
        if requests is None or requests >= client.succeeded or loop.time() >= end:
            return after
        await asyncio.sleep(_LOOK_EVERY_S)


def _choose(models: Sequence[ServedModel], wanted: str | None) -> ServedModel:
    names = ", ".join(model.id for model in models)
    if wanted is not None:
        for model in models:
            if model.id == wanted:
                return model
        raise ServerError(f"The server has no model {wanted!r}; it has: {names}. Correct --model.")
    if len(models) > 1:
        raise ServerError(f"The server has several models: {names}. Name one by --model.")
    return models[0]


def _target(request: ProbeRequest, model: str) -> Target:
    """Resolved once: the load goes to one address. Raises ServerError."""
    parts = urlsplit(request.url)
    secure = parts.scheme == "https"
    host = name = parts.hostname or ""
    port = parts.port or (443 if secure else 80)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        try:
            host = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise ServerError(f"The name {host} cannot be resolved: {error}. Correct --url.") from error
    tls = Tls(server_name=name, ca_file=str(request.ca_file or "")) if secure else None
    return Target(
        host=host, port=port, tls=tls, root_path=parts.path.rstrip("/"), model=model, endpoint=request.endpoint
    )


def _spec(request: ProbeRequest, target: Target, traffic: Traffic, arrivals: Arrivals, name: str) -> StageSpec:
    digest = hashlib.sha256(f"{request.seed}/{name}".encode()).digest()
    return StageSpec(
        id=name,
        target=target,
        prompt_tokens=traffic.prompt_tokens,
        output_tokens=traffic.output_tokens,
        arrivals=arrivals,
        limits=_limits(request, arrivals),
        slo=request.slo,
        sequential=request.judged,
        min_pass_requests=pass_floor(arrivals, request.slo) if request.judged else None,
        seed=int.from_bytes(digest[:6], "big"),
        prompts=traffic.kinds.prompts,
    )


def _limits(request: ProbeRequest, arrivals: Arrivals) -> Limits:
    """Judged levels go on until the targets are decided, others until they are steady."""
    if request.judged:
        floor = math.ceil(ROOM_TO_PASS * pass_floor(arrivals, request.slo))
        least = most = request.max_requests or min(MOST_REQUESTS, max(_REQUESTS, floor))
    else:
        users = arrivals.users if isinstance(arrivals, Closed) else 0
        least = max(_MIN_REQUESTS, _REQUESTS_PER_USER * users)
        most = min(request.max_requests or _REQUESTS, _ROOM_FOR_WARM_UP * (least + users))
        least = min(least, most)
    needed_s = ROOM_TO_PASS * most / arrivals.rate if isinstance(arrivals, Open) else 0.0
    return Limits(
        min_requests=least, max_requests=most, max_duration_s=request.max_duration_s or max(_DURATION_S, needed_s)
    )


def _name(arrivals: Arrivals) -> str:
    if isinstance(arrivals, Closed):
        return f"users-{arrivals.users}"
    return f"rate-{arrivals.rate:g}".replace(".", "-").replace("+", "")
