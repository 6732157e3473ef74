"""The kopf handlers. A timer beats for every object; the agenda decides which beats count.

Events only wake the agenda. All state is in the objects' status, so that any handler may be cut off anywhere.
"""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack
from typing import Any

import kopf

from kneekeeper import __version__
from kneekeeper.actuate.apply import ActionsFailed
from kneekeeper.api.model import GROUP, VERSION
from kneekeeper.domain.names import ANNOTATION_APPROVE, ANNOTATION_RETUNE, FINALIZER
from kneekeeper.handlers import telemetry
from kneekeeper.handlers.agenda import Agenda, Key
from kneekeeper.handlers.connect import connections
from kneekeeper.handlers.hearing import LONGEST_UNHEARD_S, Hearing
from kneekeeper.handlers.settings import Settings
from kneekeeper.handlers.ticks import PROFILE, RUN, Connections, tick
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Conflict, KubeError
from kneekeeper.load.client import AgentError
from kneekeeper.observe.own_resources import UnreadableResource

log = logging.getLogger(__name__)

# What may go wrong outside: the tick is done again later. Anything else is a bug and says so in the log.
_TROUBLE = (KubeError, ActionsFailed, AgentError, UnreadableResource, TimeoutError)

BEAT_S = 0.5
# A delete handler is tried again after this; kopf keeps the finalizer meanwhile.
RELEASE_RETRY_S = 2.0
# Somebody else wrote between our read and our write: that is no trouble, only a reason to look again.
CONFLICT_RETRY_S = 1.0
# Watches that are not silent are opened anew after these all the same; for silent ones see Settings.watch_silence_s.
SERVER_TIMEOUT_S = 300
CLIENT_TIMEOUT_S = 330
# A timer that is to stop may be within a tick. Waiting for that is quick; else kopf patches the object to be
# reminded of it, by default a minute later, and a deletion waits as long.
TICK_ENDS_S = 1.0
STOP_POLL_S = 5.0


_ROLLOUT_FIELDS = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas")


class Operator:
    """What all handlers share in this process; nothing of it outlives a restart."""

    def __init__(self) -> None:
        self.agenda = Agenda(time.monotonic)
        self.hearing = Hearing(time.monotonic)
        self.open = AsyncExitStack()
        self.connections: Connections | None = None
        self.busy: set[Key] = set()


_operator = Operator()


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Connect, and tell kopf what the design says of watches, finalizers and annotations."""
    ours = Settings.from_environment()
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=GROUP, key="last-handled-configuration"
    )
    settings.posting.enabled = False  # our own events have stable reasons
    settings.watching.server_timeout = SERVER_TIMEOUT_S
    settings.watching.client_timeout = CLIENT_TIMEOUT_S
    settings.watching.inactivity_timeout = ours.watch_silence_s
    settings.watching.connect_timeout = 30
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.background.instant_exit_timeout = TICK_ENDS_S
    settings.background.cancellation_polling = STOP_POLL_S
    # With a Role in each namespace, neither namespaces nor CRDs may be listed; nor need they be.
    settings.scanning.disabled = bool(ours.watch_namespaces)
    kube = await _operator.open.enter_async_context(await Kube.connect(__version__, on_answer=telemetry.answered))
    _operator.connections = await _operator.open.enter_async_context(connections(ours, kube))
    telemetry.serve(ours.metrics_port)


@kopf.on.cleanup()
async def stop(**_: Any) -> None:
    """Close what was opened."""
    _operator.connections = None
    await _operator.open.aclose()


@kopf.on.probe(id="watches")
async def hears(**_: Any) -> str:
    """The liveness probe fails when events are missing for long; a restart opens every watch anew."""
    if _operator.hearing.is_deaf():
        raise kopf.PermanentError(f"a change was read {LONGEST_UNHEARD_S:.0f} s ago and no watch has told of it")
    return "told"


@kopf.timer(GROUP, VERSION, "servingprofiles", interval=BEAT_S, id="profile")
async def beat_profile(name: str, namespace: str | None, **_: Any) -> None:
    """One beat of a profile."""
    await _beat(_key(PROFILE, namespace, name))


@kopf.timer(GROUP, VERSION, "tuningruns", interval=BEAT_S, id="run", when=lambda status, **_: not _is_over(status))
async def beat_run(name: str, namespace: str | None, **_: Any) -> None:
    """One beat of a run that is not over; one that is needs nothing until it is deleted."""
    await _beat(_key(RUN, namespace, name))


@kopf.on.event(GROUP, VERSION, "servingprofiles")
async def profile_changed(
    type: str | None, name: str, namespace: str | None, spec: Any, meta: Any, annotations: Any, **_: Any
) -> None:
    """Look at a profile soon when its user changed it, and from now on whenever its workload changes."""
    key = _key(PROFILE, namespace, name)
    if type == "DELETED":
        _forget(key)
        return
    _operator.hearing.told(key, int(meta.get("generation", 0)))
    target = spec.get("targetRef", {})
    _operator.agenda.depends(key, on=_key(str(target.get("kind")), namespace, str(target.get("name"))))
    wishes = annotations.get(ANNOTATION_APPROVE), annotations.get(ANNOTATION_RETUNE)
    if _operator.agenda.is_news(key, (meta.get("uid"), meta.get("generation"), wishes)):
        _operator.agenda.wake(key)


@kopf.on.event(GROUP, VERSION, "tuningruns")
async def run_changed(
    type: str | None, name: str, namespace: str | None, spec: Any, status: Any, meta: Any, **_: Any
) -> None:
    """A run that waits, goes on, ended or went away concerns its profile at once."""
    key = _key(RUN, namespace, name)
    if type == "DELETED":
        _forget(key)
    else:
        _operator.hearing.told(key, int(meta.get("generation", 0)))
    facts = status.get("step"), status.get("waitingFor"), _is_over(status)
    if type == "DELETED" or _operator.agenda.is_news(key, facts):
        _operator.agenda.wake(_key(PROFILE, namespace, str(spec.get("profileName"))))


@kopf.on.event("apps", "v1", "deployments")
@kopf.on.event("apps", "v1", "statefulsets")
async def workload_changed(
    type: str | None, name: str, namespace: str | None, meta: Any, status: Any, resource: Any, **_: Any
) -> None:
    """Wake the profiles of this workload when its spec or its rollout changed."""
    key = _key(str(resource.kind), namespace, name)
    if not _operator.agenda.has_dependents(key):
        return
    rollout = tuple(status.get(name) for name in _ROLLOUT_FIELDS)
    if _operator.agenda.is_news(key, (type == "DELETED", meta.get("uid"), meta.get("generation"), rollout)):
        _operator.agenda.wake_dependents(key)


@kopf.on.delete(GROUP, VERSION, "servingprofiles")
async def release_profile(name: str, namespace: str | None, **_: Any) -> None:
    """Clean up until nothing of ours is left; only then kopf takes the finalizer away."""
    await _release(_key(PROFILE, namespace, name))


@kopf.on.delete(GROUP, VERSION, "tuningruns")
async def release_run(name: str, namespace: str | None, **_: Any) -> None:
    """Clean up until nothing of ours is left; only then kopf takes the finalizer away."""
    await _release(_key(RUN, namespace, name))


def _is_over(status: Any) -> bool:
    return bool(status.get("finishedAt"))


def _key(kind: str, namespace: str | None, name: str) -> Key:
    return Key(kind, namespace or "", name)


def _forget(key: Key) -> None:
    _operator.agenda.forget(key)
    _operator.hearing.forget(key)
    telemetry.FLEET.forget(key)


async def _beat(key: Key) -> None:
    to = _operator.connections
    if to is None or not _operator.agenda.is_due(key) or key in _operator.busy:
        return
    _operator.busy.add(key)
    _operator.agenda.begins(key)
    try:
        with telemetry.timed(key.kind):
            result = await tick(to, key)
        _operator.agenda.done(key, result.next_tick_s)
        _operator.hearing.read(key, result.generation)
    except Conflict:
        _operator.agenda.done(key, CONFLICT_RETRY_S)
    except _TROUBLE as error:
        wait_s = _operator.agenda.failed(key, getattr(error, "retry_after_s", None))
        telemetry.failed(key.kind)
        log.warning("%s; again in %.0f s", error, wait_s, extra=telemetry.fields(key))
    except Exception:
        if _operator.connections is None:
            return  # they were closed under this tick, since the operator ends; the next operator does it again
        wait_s = _operator.agenda.failed(key)
        telemetry.failed(key.kind)
        log.exception("a bug; again in %.0f s", wait_s, extra=telemetry.fields(key))
    finally:
        _operator.busy.discard(key)


async def _release(key: Key) -> None:
    to = _operator.connections
    if to is None or key in _operator.busy:
        raise kopf.TemporaryError("not connected yet, or a beat is still acting", delay=RELEASE_RETRY_S)
    _operator.busy.add(key)
    try:
        result = await tick(to, key)
    except _TROUBLE as error:
        raise kopf.TemporaryError(str(error), delay=RELEASE_RETRY_S) from error
    finally:
        _operator.busy.discard(key)
    if not result.release:
        raise kopf.TemporaryError("cleaning up", delay=min(RELEASE_RETRY_S, result.next_tick_s))
    _forget(key)
