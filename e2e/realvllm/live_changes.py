"""Random changes of both limits under load on a real engine, and what became of the requests and of the changes."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from e2e.realvllm.environment import RealVllm
from e2e.realvllm.server import SERVED_MODEL_NAME, EngineSettings, LocalServer, free_port, running
from kneekeeper.livetune.deliver import deliver
from kneekeeper.livetune.environment import HOST, PORT, TOKEN
from kneekeeper.livetune.limits import ABOVE_START, Limits, Refusal
from kneekeeper.livetune.limits_file import LOOK_EVERY_S
from kneekeeper.livetune.messages import Report, write_limits
from kneekeeper.load.live_limits import LimitsRefused, LiveLimits

START = Limits(max_num_seqs=16, max_num_batched_tokens=2048)
MODEL_LENGTH_TOKENS = 1024

CLIENTS = 24
"""More than the sequences, so that the limit always binds."""
PROMPT_TOKENS = (10, 700)
OUTPUT_TOKENS = 24
REQUEST_TIMEOUT_S = 120.0

_POLL_S = 0.01
_HELD_S = 0.1
_REFUSAL_EVERY = 10
_RUNNING = re.compile(r"^vllm:num_requests_running\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Change:
    """One change: how long until a step ran with it and no more sequences than it allows, by the engine's own clock
    (what looks from outside is late on a busy machine). `reported_running` is what vLLM's own metric told a moment
    after it had agreed, just before the next change.
    """

    limits: Limits
    in_force_s: float
    reported_running: int


@dataclass(frozen=True)
class LiveChanges:
    """The outcome. `longest_request_s` is the longest time that one request was in the engine, queueing left out."""

    changes: tuple[Change, ...]
    requests: int
    failures: tuple[str, ...]
    longest_request_s: float
    asked_above_start: int
    refused_above_start: int
    report: Report

    @property
    def above_the_limit(self) -> int:
        """Changes after which vLLM's own metrics told more running sequences than are allowed."""
        return sum(1 for change in self.changes if change.reported_running > change.limits.max_num_seqs)


@dataclass
class _Load:
    stop: threading.Event = field(default_factory=threading.Event)
    in_engine_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@contextmanager
def tuned_server(
    engine: RealVllm,
    folder: Path,
    token: str,
    environment: Mapping[str, str] | None = None,
    *,
    start: Limits = START,
    max_model_len_tokens: int = MODEL_LENGTH_TOKENS,
) -> Iterator[tuple[LocalServer, str]]:
    """A real server of `start` with the plugin delivered into `folder`; also yields the channel's base URL."""
    deliver(folder)
    port = free_port()
    settings = EngineSettings(
        max_num_seqs=start.max_num_seqs,
        max_num_batched_tokens=start.max_num_batched_tokens,
        max_model_len_tokens=max_model_len_tokens,
        extra_args=("--enable-per-request-metrics",),
    )
    given = {
        "PYTHONPATH": str(folder),
        TOKEN: token,
        HOST: "127.0.0.1",
        PORT: str(port),
        **(environment or {}),
    }
    with running(engine, settings, environment=given) as server:
        yield server, f"http://127.0.0.1:{port}"


def random_limits(rng: random.Random) -> Limits:
    """Within START, each factor of two as likely as another."""
    seqs = round(2 ** rng.uniform(0, 4))
    tokens = round(2 ** rng.uniform(4, 11))
    return Limits(seqs, max(seqs, tokens))


class FileLimits(LiveLimits):
    """Limits that are changed by a file, as production's, and read from the channel."""

    def __init__(self, base_url: str, path: Path) -> None:
        super().__init__(base_url, "")
        self._path = path

    async def change(self, limits: Limits) -> Report:
        """Raises LimitsRefused when the engine has not taken them by its third look."""
        new = self._path.with_suffix(".new")
        new.write_bytes(write_limits(limits))
        new.rename(self._path)
        end = time.monotonic() + 3 * LOOK_EVERY_S
        while time.monotonic() < end:
            report = await self.read()
            if report.standing is not None and report.standing.wanted == limits:
                return report
            await asyncio.sleep(_POLL_S)
        raise LimitsRefused(Refusal(ABOVE_START, f"{limits} is not taken."))


def change_at_random(server: LocalServer, connect: Callable[[], LiveLimits], *, changes: int, seed: int) -> LiveChanges:
    """Keep CLIENTS requests in flight, change the limits one after another, and let the load end by itself.

    Raises TimeoutError when a change is not in force within REQUEST_TIMEOUT_S.
    """
    load = _Load()
    clients = [threading.Thread(target=_client, args=(server.url, load, seed + n)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        done, refusals, report = asyncio.run(_changes(server, connect, changes, random.Random(seed)))
    finally:
        load.stop.set()
        for client in clients:
            client.join()
    return LiveChanges(
        changes=tuple(done),
        requests=len(load.in_engine_s),
        failures=tuple(load.failures),
        longest_request_s=max(load.in_engine_s, default=0.0),
        asked_above_start=len(refusals),
        refused_above_start=sum(refusals),
        report=report,
    )


async def _changes(
    server: LocalServer, connect: Callable[[], LiveLimits], changes: int, rng: random.Random
) -> tuple[list[Change], list[bool], Report]:
    done: list[Change] = []
    refusals: list[bool] = []
    async with connect() as channel:
        for number in range(changes):
            done.append(await _change(server, channel, random_limits(rng)))
            if number % _REFUSAL_EVERY == 0:
                refusals.append(await _is_refused(channel, rng))
        await channel.change(START)
        return done, refusals, await channel.read()


async def _change(server: LocalServer, channel: LiveLimits, limits: Limits) -> Change:
    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
    report = await channel.change(limits)
    while True:
        standing = report.standing
        assert standing is not None
        assert standing.wanted == limits
        if standing.settled_s is not None and await _running(server) <= limits.max_num_seqs:
            await asyncio.sleep(_HELD_S)
            return Change(limits, standing.settled_s, await _running(server))
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{limits} was not in force after {REQUEST_TIMEOUT_S:.0f} s: {standing}")
        await asyncio.sleep(_POLL_S)
        report = await channel.read()


async def _running(server: LocalServer) -> int:
    found = _RUNNING.search(await asyncio.to_thread(server.metrics_text))
    assert found is not None
    return int(float(found[1]))


async def _is_refused(channel: LiveLimits, rng: random.Random) -> bool:
    """Whether one of the limits above the start value is refused."""
    more = rng.randint(1, 1000)
    above = rng.choice(
        [
            replace(START, max_num_seqs=START.max_num_seqs + more),
            replace(START, max_num_batched_tokens=START.max_num_batched_tokens + more),
        ]
    )
    try:
        await channel.change(above)
    except LimitsRefused as refused:
        return refused.refusal.reason == ABOVE_START
    return False


def _client(url: str, load: _Load, seed: int) -> None:
    rng = random.Random(seed)
    while not load.stop.is_set():
        prompt = [rng.randrange(1, 250) for _ in range(rng.randint(*PROMPT_TOKENS))]
        try:
            load.in_engine_s.append(_request(url, prompt))
        except Exception as error:
            load.failures.append(f"{type(error).__name__}: {error}")
            load.stop.wait(0.1)


def _request(url: str, prompt: list[int]) -> float:
    """Seconds from its first step to its last token. Raises ValueError unless every token came, OSError."""
    body = {"model": SERVED_MODEL_NAME, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
        answer = json.load(response)
    if answer["usage"]["completion_tokens"] != OUTPUT_TOKENS:
        raise ValueError(f"{answer['usage']['completion_tokens']} tokens came of {OUTPUT_TOKENS}")
    metrics = answer["metrics"]
    # vLLM's own times here start when the request is scheduled.
    return float(metrics["time_to_first_token_ms"] + metrics["generation_time_ms"]) / 1000.0
