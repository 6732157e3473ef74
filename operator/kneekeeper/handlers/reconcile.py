"""The kopf handlers. They tell the beats what watches tell, and hold the finalizers."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import Any

import kopf

from kneekeeper import __version__
from kneekeeper.api.model import GROUP, VERSION
from kneekeeper.domain.names import FINALIZER
from kneekeeper.handlers import heap, telemetry
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.beats import Beats
from kneekeeper.handlers.connect import connections
from kneekeeper.handlers.hearing import LONGEST_UNHEARD_S
from kneekeeper.handlers.settings import Settings
from kneekeeper.handlers.ticks import PROFILE, RUN
from kneekeeper.kube.client import Kube

# Watches that are not silent are opened anew after these all the same; for silent ones see Settings.watch_silence_s.
SERVER_TIMEOUT_S = 300
CLIENT_TIMEOUT_S = 330


class Operator:
    """What all handlers share in this process; nothing of it outlives a restart."""

    def __init__(self) -> None:
        self.beats = Beats(time.monotonic)
        self.open = AsyncExitStack()
        self.running: asyncio.Task[None] | None = None
        self.trimming: asyncio.Task[None] | None = None


_operator = Operator()


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Connect, and tell kopf what the design says of watches, finalizers and annotations."""
    ours = Settings.from_environment()
    _operator.beats.queue.most = ours.most_runs
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
    # With a Role in each namespace, neither namespaces nor CRDs may be listed; nor need they be.
    settings.scanning.disabled = bool(ours.watch_namespaces)
    kube = await _operator.open.enter_async_context(await Kube.connect(__version__, on_answer=telemetry.answered))
    _operator.beats.connections = await _operator.open.enter_async_context(connections(ours, kube))
    telemetry.serve(ours.metrics_port)
    _operator.running = asyncio.create_task(_operator.beats.run())
    _operator.trimming = asyncio.create_task(heap.keep_small())


@kopf.on.cleanup()
async def stop(**_: Any) -> None:
    """Close what was opened."""
    for task in (_operator.running, _operator.trimming):
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    _operator.beats.connections = None
    await _operator.open.aclose()


@kopf.on.probe(id="watches")
async def hears(**_: Any) -> str:
    """The liveness probe fails when events are missing for long; a restart opens every watch anew."""
    if _operator.beats.hearing.is_deaf():
        raise kopf.PermanentError(f"a change was read {LONGEST_UNHEARD_S:.0f} s ago and no watch has told of it")
    return "told"


@kopf.on.probe(id="beats")
async def looks(**_: Any) -> str:
    """The liveness probe fails when nothing is looked at any more."""
    if _operator.running is None or _operator.running.done():
        raise kopf.PermanentError("no object is looked at any more")
    return "runs"


@kopf.on.event(GROUP, VERSION, "servingprofiles")
async def profile_changed(type: str | None, name: str, namespace: str | None, spec: Any, meta: Any, **_: Any) -> None:
    """A profile is there, changed, or went away."""
    key = _key(PROFILE, namespace, name)
    if type == "DELETED":
        _operator.beats.forget(key)
    else:
        _operator.beats.profile_told(key, spec, meta)


@kopf.on.event(GROUP, VERSION, "tuningruns")
async def run_changed(
    type: str | None, name: str, namespace: str | None, spec: Any, status: Any, meta: Any, **_: Any
) -> None:
    """A run is there, changed, or went away."""
    key = _key(RUN, namespace, name)
    if type == "DELETED":
        _operator.beats.run_gone(key, spec)
    else:
        _operator.beats.run_told(key, spec, status, meta)


@kopf.on.event("apps", "v1", "deployments")
@kopf.on.event("apps", "v1", "statefulsets")
async def workload_changed(
    type: str | None, name: str, namespace: str | None, meta: Any, status: Any, resource: Any, **_: Any
) -> None:
    """A workload changed; most are no profile's."""
    key = _key(str(resource.kind), namespace, name)
    _operator.beats.workload_told(key, meta, status, is_gone=type == "DELETED")


@kopf.on.delete(GROUP, VERSION, "servingprofiles")
async def release_profile(name: str, namespace: str | None, **_: Any) -> None:
    """Clean up until nothing of ours is left; only then kopf takes the finalizer away."""
    await _release(_key(PROFILE, namespace, name))


@kopf.on.delete(GROUP, VERSION, "tuningruns")
async def release_run(name: str, namespace: str | None, **_: Any) -> None:
    """Clean up until nothing of ours is left; only then kopf takes the finalizer away."""
    await _release(_key(RUN, namespace, name))


async def _release(key: Key) -> None:
    kept = await _operator.beats.release(key)
    if kept is not None:
        raise kopf.TemporaryError(kept.why, delay=kept.retry_s)


def _key(kind: str, namespace: str | None, name: str) -> Key:
    return Key(kind, namespace or "", name)
