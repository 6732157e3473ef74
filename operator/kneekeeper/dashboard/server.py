"""The HTTP side: the page's files, the JSON API under /api, and the stream of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError

from kneekeeper import __version__
from kneekeeper.api.model import Setting
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.dashboard.access import Actions
from kneekeeper.dashboard.answers import guarded, json_response, problem
from kneekeeper.dashboard.store import Store
from kneekeeper.dashboard.stream import stream
from kneekeeper.domain.views.curve import band
from kneekeeper.domain.views.fleet import FleetRow, Summary, fleet, summary
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.profile import profile_view
from kneekeeper.domain.views.twin import NoModelError, Question, answer, model_of, surface_of

STATIC = Path(__file__).parent / "static"
MOST_ASKING = 16
"""Questions to the twin that wait; one more is sent away, since each takes seconds of the one worker."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class FleetAnswer:
    """The fleet, and what this server allows."""

    version: str
    source: str
    actions: bool
    summary: Summary
    rows: list[FleetRow]


class Dashboard:
    """The request handlers. The twin works in a thread of its own, so that the page stays quick."""

    def __init__(self, store: Store, source: str, actions: Actions | None) -> None:
        self._store, self._source, self._actions = store, source, actions
        self._twin = ThreadPoolExecutor(max_workers=1, thread_name_prefix="twin")
        self._asking = 0

    def application(self) -> web.Application:
        """Ready to be served."""
        app = web.Application(middlewares=[guarded], client_max_size=16 * 1024)
        profile = "/api/profiles/{namespace}/{name}"
        run = "/api/runs/{namespace}/{name}"
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/healthz", self._health),
                web.get("/api/fleet", self._fleet),
                web.get("/api/changes", self._changes),
                web.get(profile, self._profile),
                web.get(f"{run}/band", self._band),
                web.get(f"{run}/surface", self._surface),
                web.get(f"{run}/what-if", self._what_if),
                web.static("/static", STATIC),
            ]
        )
        if self._actions is not None:
            app.add_routes([web.post(f"{profile}/actions", self._actions.handle)])
        app.on_shutdown.append(self._stop)
        return app

    async def _stop(self, _: web.Application) -> None:
        self._twin.shutdown(wait=False, cancel_futures=True)

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _fleet(self, _: web.Request) -> web.StreamResponse:
        rows = fleet(self._store.profiles())
        may_act = self._actions is not None
        return json_response(FleetAnswer(__version__, self._source, may_act, summary(rows), rows))

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        return await stream(request, self._store)

    async def _profile(self, request: web.Request) -> web.StreamResponse:
        key = _key(request)
        profile, runs, events = self._store.profile(key), self._store.runs_of(key), self._store.events_of(key)
        view = profile_view(profile, runs, events, request.query.get("run")) if profile is not None else None
        if view is None:
            return problem(404, "There is no such profile, or no such run of it (any more).")
        return json_response(view)

    async def _band(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, band)

    async def _surface(self, request: web.Request) -> web.StreamResponse:
        return await self._ask(request, lambda run: surface_of(model_of(run)))

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        try:
            question = _question(request)
        except (KeyError, ValueError, ValidationError) as error:
            return problem(400, f"The question cannot be read: {error}")
        return await self._ask(request, lambda run: answer(model_of(run), question))

    async def _ask(self, request: web.Request, work: Callable[[TuningRun], Value]) -> web.Response:
        run = self._store.run(_key(request))
        if run is None:
            return problem(404, "There is no such run (any more).")
        if self._asking >= MOST_ASKING:
            return problem(503, "The twin has too many questions to answer. Ask again in a few seconds.")
        self._asking += 1
        try:
            return json_response(await asyncio.get_running_loop().run_in_executor(self._twin, work, run))
        except NoModelError as error:
            return problem(409, str(error))
        finally:
            self._asking -= 1


def _key(request: web.Request) -> Key:
    return Key(request.match_info["namespace"], request.match_info["name"])


def _question(request: web.Request) -> Question:
    query = request.query
    rate = float(query["requestsPerSecond"])
    if not 0 < rate <= 10_000:
        raise ValueError("requestsPerSecond must be above 0 and at most 10000")
    return Question(
        setting=Setting(
            max_num_seqs=int(query["maxNumSeqs"]), max_num_batched_tokens=int(query["maxNumBatchedTokens"])
        ),
        requests_per_second=rate,
        ttft_s=_target(query.get("p99TTFTms")),
        tpot_s=_target(query.get("p99TPOTms")),
    )


def _target(text: str | None) -> float | None:
    if text is None or text == "":
        return None
    value = float(text) / 1e3
    if not 0 < value <= 86_400:
        raise ValueError("a target must be above 0 and at most a day")
    return value
