"""The operator on a virtual clock, without kopf: who plays the watches tells it of objects, and it may be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from kneekeeper.domain.names import FINALIZER
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.beats import Beats
from kneekeeper.handlers.ticks import PROFILE, RUN, Connections
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Resource

_KINDS = {PROFILE: SERVING_PROFILES, RUN: TUNING_RUNS}


@dataclass
class Clock:
    """Seconds since the life began; only who lives it moves it."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class PlayedOperator:
    """`start` makes a new one that carries nothing over from the one before."""

    kube: Kube
    """Of the watches, not of the operator's own calls."""
    clock: Clock
    connect: Callable[[], Connections]
    wrote: Callable[[str], None] = lambda namespace: None
    """Told of the namespace of each finalizer that was written."""
    beats: Beats = field(init=False)
    kills: int = 0
    _step: asyncio.Task[None] | None = None
    _releases_s: dict[Key, float] = field(default_factory=dict)

    def start(self) -> None:
        self.beats = Beats(self.clock)
        self.beats.connections = self.connect()

    def kill(self) -> None:
        """In the middle of what it does; only that calls the API server."""
        self.kills += 1
        assert self._step is not None
        self._step.cancel()

    @property
    def is_due(self) -> bool:
        """Whether it has something to do."""
        return bool(self.beats.agenda.due()) or any(self.clock.now_s >= due_s for due_s in self._releases_s.values())

    @property
    def due_releases(self) -> list[Key]:
        """Objects that are being deleted, and wait for the operator to let go."""
        return [key for key, due_s in self._releases_s.items() if self.clock.now_s >= due_s]

    async def told(self, kind: str, each: Resource) -> None:
        """What a watch tells of a profile or a run, and kopf's keeping of its finalizer."""
        metadata, spec = each["metadata"], each["spec"]
        key = Key(kind, metadata["namespace"], metadata["name"])
        if kind == PROFILE:
            self.beats.profile_told(key, spec, metadata)
        else:
            self.beats.run_told(key, spec, each.get("status") or {}, metadata)
        finalizers = metadata.get("finalizers") or []
        if "deletionTimestamp" in metadata:
            if self.clock.now_s >= self._releases_s.setdefault(key, self.clock.now_s):
                await self._survive(self._release(key, finalizers, spec))
        elif FINALIZER not in finalizers:
            await self._hold(key, [*finalizers, FINALIZER])

    def gone(self, key: Key) -> None:
        """What a watch tells last of an object."""
        self._releases_s.pop(key, None)
        self.beats.forget(key)

    async def look(self, keys: Iterable[Key]) -> None:
        """One look at each, all at the same time; a kill ends them all."""
        looks = [self.beats.look(key) for key in keys]

        async def all_looks() -> None:
            await asyncio.gather(*looks)

        await self._survive(all_looks())

    async def _release(self, key: Key, finalizers: list[str], spec: Resource) -> None:
        kept = await self.beats.release(key)
        if kept is not None:
            self._releases_s[key] = self.clock.now_s + kept.retry_s
            return
        del self._releases_s[key]
        await self._hold(key, [name for name in finalizers if name != FINALIZER])
        if key.kind == RUN:
            self.beats.run_gone(key, spec)

    async def _hold(self, key: Key, finalizers: list[str]) -> None:
        patch = [{"op": "add", "path": "/metadata/finalizers", "value": finalizers}]
        self.wrote(key.namespace)
        try:
            await self.kube.json_patch(_KINDS[key.kind], key.namespace, key.name, patch)
        except NotFound:
            return  # it went away meanwhile, and kopf does not mind either

    async def _survive(self, step: Coroutine[Any, Any, None]) -> None:
        """The step, and a new operator where it was killed in it."""
        kills = self.kills
        self._step = asyncio.create_task(step)
        try:
            await self._step
        except asyncio.CancelledError:
            if not self._step.cancelled() or self.kills == kills:
                raise
            self.start()
        finally:
            self._step = None
