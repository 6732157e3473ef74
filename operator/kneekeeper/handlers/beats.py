"""Looks at every object when it is due, and takes what watches tell; knows nothing of kopf.

Events only wake the agenda. All state is in the objects' status, so that a look may be cut off anywhere: nothing in
here outlives the process, and nothing that matters is lost with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kneekeeper.actuate.apply import ActionsFailed
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.domain.names import ANNOTATION_APPROVE, ANNOTATION_RETUNE
from kneekeeper.domain.plan.run_preflight import FLEET_BUDGET
from kneekeeper.handlers import telemetry
from kneekeeper.handlers.agenda import Agenda, Key
from kneekeeper.handlers.hearing import Hearing
from kneekeeper.handlers.run_queue import DEFAULT_MOST_RUNS, RunQueue
from kneekeeper.handlers.ticks import GONE, PROFILE, RUN, Connections, tick
from kneekeeper.kube.errors import Conflict, KubeError
from kneekeeper.load.client import AgentError
from kneekeeper.observe.own_resources import UnreadableResource

log = logging.getLogger(__name__)

# What may go wrong outside: the tick is done again later. Anything else is a bug and says so in the log.
_TROUBLE = (KubeError, ActionsFailed, AgentError, UnreadableResource, TimeoutError)

BEAT_S = 0.5
MOST_LOOKS = 32
"""At the same time. After a start every object is due at once: more would only wait in the client's pool, until their
time is up."""

MOST_PROFILE_LOOKS = 24
"""A source of metrics that is slow for many profiles keeps no run, which may hold a replica, from being looked at."""

# An object that is being deleted is tried again after this; its finalizer stays meanwhile.
RELEASE_RETRY_S = 2.0
# Somebody else wrote between our read and our write: that is no trouble, only a reason to look again.
CONFLICT_RETRY_S = 1.0

_ROLLOUT_FIELDS = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas")


@dataclass(frozen=True)
class NotReleased:
    """Why the finalizer has to stay, and when to try again."""

    why: str
    retry_s: float


class Beats:
    """When each object is looked at, on the given clock (seconds, monotonic)."""

    def __init__(self, clock_s: Callable[[], float], most_runs: int = DEFAULT_MOST_RUNS) -> None:
        self.agenda = Agenda(clock_s)
        self.queue = RunQueue(most_runs)
        self.hearing = Hearing(clock_s)
        self.connections: Connections | None = None
        self._busy: set[Key] = set()
        self._went: set[Key] = set()  # while they were looked at
        self._looks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look at what is due, for ever: runs first, since they hold GPUs and replicas of others."""
        try:
            while True:
                for key in self._next():
                    look = asyncio.create_task(self.look(key))
                    self._looks.add(look)
                    look.add_done_callback(self._looks.discard)
                await asyncio.sleep(BEAT_S)
        finally:
            for look in self._looks:
                look.cancel()
            await asyncio.gather(*self._looks, return_exceptions=True)

    def _next(self) -> list[Key]:
        """What is due and has a place."""
        due = [key for key in self.agenda.due() if key not in self._busy]
        runs = [key for key in due if key.kind == RUN]
        places = MOST_PROFILE_LOOKS - sum(key.kind != RUN for key in self._busy)
        profiles = [key for key in due if key.kind != RUN][: max(0, places)]
        return [*runs, *profiles][: MOST_LOOKS - len(self._looks)]

    async def look(self, key: Key) -> None:
        """One look at one object, now; a failure only says when the next one is."""
        to = self.connections
        if to is None or key in self._busy:
            return
        self._busy.add(key)
        self.agenda.begins(key)
        try:
            with telemetry.timed(key.kind):
                result = await tick(to, key, self.queue.ahead(key))
            if result is GONE:
                self.forget(key)  # a watch that was opened anew does not tell of what went away meanwhile
                return
            self.agenda.done(key, max(result.next_tick_s, self.queue.pause_s() if result.waits else 0.0))
            self.hearing.read(key, result.generation)
        except Conflict:
            self.agenda.done(key, CONFLICT_RETRY_S)
        except _TROUBLE as error:
            wait_s = self.agenda.failed(key, getattr(error, "retry_after_s", None))
            telemetry.failed(key.kind)
            log.warning("%s; again in %.0f s", error, wait_s, extra=telemetry.fields(key))
        except Exception:
            if self.connections is None:
                return  # they were closed under this tick, since the operator ends; the next operator does it again
            wait_s = self.agenda.failed(key)
            telemetry.failed(key.kind)
            log.exception("a bug; again in %.0f s", wait_s, extra=telemetry.fields(key))
        finally:
            self._busy.discard(key)
            if key in self._went:
                self.forget(key)

    async def release(self, key: Key) -> NotReleased | None:
        """Clean up after an object that is being deleted; None once nothing of ours is left."""
        to = self.connections
        if to is None or key in self._busy:
            return NotReleased("not connected yet, or a look is still acting", RELEASE_RETRY_S)
        self._busy.add(key)
        try:
            result = await tick(to, key)
        except _TROUBLE as error:
            return NotReleased(str(error), RELEASE_RETRY_S)
        finally:
            self._busy.discard(key)
        if not result.release:
            return NotReleased("cleaning up", min(RELEASE_RETRY_S, result.next_tick_s))
        self.forget(key)
        return None

    def forget(self, key: Key) -> None:
        """The object is gone. A look at it that is under way has read it, and may remember it once more."""
        (self._went.add if key in self._busy else self._went.discard)(key)
        self.agenda.forget(key)
        self.hearing.forget(key)
        self.queue.gone(key)
        telemetry.FLEET.forget(key)

    def profile_told(self, key: Key, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """A profile is there: look at it, soon when its user changed it, and whenever its workload changes."""
        self._told(key, metadata, is_over=False)
        target = spec.get("targetRef", {})
        self.agenda.depends(key, on=Key(str(target.get("kind")), key.namespace, str(target.get("name"))))
        annotations = metadata.get("annotations") or {}
        wishes = annotations.get(ANNOTATION_APPROVE), annotations.get(ANNOTATION_RETUNE)
        if self.agenda.is_news(key, (metadata.get("uid"), metadata.get("generation"), wishes)):
            self.agenda.wake(key)

    def run_told(
        self, key: Key, spec: Mapping[str, Any], status: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        """A run that begins, waits, goes on or ends concerns its profile at once; one that is over needs nothing."""
        is_over = bool(status.get("finishedAt"))
        self._told(key, metadata, is_over=is_over)
        if is_over:
            self.queue.gone(key)
        else:
            begun = status.get("step") not in (None, RunStep.PREFLIGHT)
            held = status.get("waitingFor") not in (None, "", FLEET_BUDGET)
            self.queue.told(key, str(metadata.get("creationTimestamp", "")), begun=begun, held=held)
        if self.agenda.is_news(key, (status.get("step"), status.get("waitingFor"), is_over)):
            self._wake_profile_of(key, spec)
            self._wake_next()

    def run_gone(self, key: Key, spec: Mapping[str, Any]) -> None:
        """Its profile may want another one."""
        self.forget(key)
        self._wake_profile_of(key, spec)
        self._wake_next()

    def workload_told(self, key: Key, metadata: Mapping[str, Any], status: Mapping[str, Any], *, is_gone: bool) -> None:
        """Wake the profiles of this workload when its spec or its rollout changed."""
        if not self.agenda.has_dependents(key):
            return
        rollout = tuple(status.get(name) for name in _ROLLOUT_FIELDS)
        if self.agenda.is_news(key, (is_gone, metadata.get("uid"), metadata.get("generation"), rollout)):
            self.agenda.wake_dependents(key)

    def _told(self, key: Key, metadata: Mapping[str, Any], *, is_over: bool) -> None:
        self._went.discard(key)  # it was made anew
        self.hearing.told(key, int(metadata.get("generation") or 0))
        if is_over or metadata.get("deletionTimestamp"):
            self.agenda.rest(key)  # what is being deleted is released instead
        else:
            self.agenda.keep(key)

    def _wake_next(self) -> None:
        """A run that has waited for its turn may begin."""
        for key in self.queue.next_up():
            self.agenda.wake(key)

    def _wake_profile_of(self, key: Key, spec: Mapping[str, Any]) -> None:
        self.agenda.wake(Key(PROFILE, key.namespace, str(spec.get("profileName"))))
