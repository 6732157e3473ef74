"""One engine at a URL, watched for a while and diagnosed, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

import httpx

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Diagnosis, DiagnosisObservation, EngineReading, EngineSettings, diagnose
from kneekeeper.domain.diagnose.window import WindowError, window_of
from kneekeeper.local.served import BaseUrl, ServerAbsent, ServerError
from kneekeeper.observe.engine_metrics import parse_samples
from kneekeeper.observe.engine_readings import reading_of

READINGS = 13
"""Enough for the intervals of the rules: twelve gaps."""


@dataclass(frozen=True)
class WatchRequest:
    """What is watched, for how long, and against what it is held."""

    base: BaseUrl
    settings: EngineSettings
    slo: Slo | None
    window_s: float


async def explain_engine(
    http: httpx.AsyncClient,
    request: WatchRequest,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = monotonic,
) -> Diagnosis:
    """Reads /metrics thirteen times over the window and sends nothing else.

    Raises ServerAbsent and ServerError, the latter also where the engine restarts all the time.
    """
    readings: list[EngineReading] = []
    for index in range(READINGS):
        if index:
            await sleep(request.window_s / (READINGS - 1))
        readings.append(await _read(http, request.base, clock))
    try:
        now = window_of(readings)
    except WindowError as error:
        raise ServerError(f"{request.base.url}: {error}") from error
    return diagnose(DiagnosisObservation(now=now, settings=request.settings, slo=request.slo))


async def _read(http: httpx.AsyncClient, base: BaseUrl, clock: Callable[[], float]) -> EngineReading:
    url = f"{base.url}/metrics"
    try:
        answer = await http.get(url, headers=base.headers)
    except httpx.HTTPError as error:
        raise ServerAbsent(f"{url} does not answer ({type(error).__name__}); check --url") from None
    try:
        samples = parse_samples(answer.text) if answer.status_code == httpx.codes.OK else ()
    except ValueError:
        samples = ()
    if not samples:
        raise ServerError(
            f"{url} has no metrics of vLLM (HTTP {answer.status_code}); run it without --disable-log-stats"
        )
    return reading_of(clock(), samples)
