"""Before an uninstall: no object may wait for an operator that is gone.

Unfinished runs are deleted while the operator still works, so that clones go and borrowed replicas come back.
Then the operator is stopped, since it would put its finalizers back, and they are taken off. What was applied
to workloads stays: profiles are not deleted here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from kneekeeper import __version__
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.domain.names import FINALIZER
from kneekeeper.domain.user_actions import RESUME, SUSPEND, Operations
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Invalid, NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, PODS, SERVING_PROFILES, TUNING_RUNS, Resource

log = logging.getLogger(__name__)

CLEAN_UP_S = 90.0
STOP_S = 60.0
POLL_S = 1.0
_SUSPEND_NOW: Operations = [{"op": "test", "path": "/spec/suspend", "value": False}, *SUSPEND]
"""Refused where the profile is suspended already, so that it stays so."""


async def release(namespace: str, deployment: str, watched: tuple[str, ...]) -> None:
    """Raises KubeErrors, and TimeoutError when the operator does not stop."""
    async with await Kube.connect(__version__) as kube:
        namespaces = watched or ("",)
        suspended = await _end_runs(kube, namespaces)
        await _stop(kube, namespace, deployment)
        for where, profile in suspended:
            await _suspend(kube, where, profile, RESUME)
        for kind in (TUNING_RUNS, SERVING_PROFILES):
            for where in namespaces:
                for found in await kube.list(kind, where):
                    await _release(kube, found)


async def _end_runs(kube: Kube, namespaces: tuple[str, ...]) -> list[tuple[str, str]]:
    """The profiles that were suspended for it, so that they start no new run meanwhile.

    An operator that is dead already cannot clean up; that is told, and waited for no longer.
    """

    async def unfinished() -> list[Resource]:
        runs = [run for where in namespaces for run in await kube.list(TUNING_RUNS, where)]
        return [run for run in runs if run.get("status", {}).get("step") != RunStep.DONE]

    suspended: list[tuple[str, str]] = []
    for run in await unfinished():
        metadata = run["metadata"]
        profile = (metadata["namespace"], run["spec"]["profileName"])
        if await _suspend(kube, *profile, _SUSPEND_NOW):
            suspended.append(profile)
        try:
            await kube.delete(TUNING_RUNS, metadata["namespace"], metadata["name"])
        except NotFound:
            continue
    try:
        await _until(lambda: _none(unfinished), CLEAN_UP_S, "runs to end")
    except TimeoutError as error:
        log.warning("%s; their pods end by their own deadlines", error)
    return suspended


async def _suspend(kube: Kube, namespace: str, profile: str, patch: Operations) -> bool:
    """False where the profile is gone or stands so already."""
    try:
        await kube.json_patch(SERVING_PROFILES, namespace, profile, patch)
    except (NotFound, Invalid):
        return False
    return True


async def _stop(kube: Kube, namespace: str, deployment: str) -> None:
    try:
        scale = await kube.get_scale(DEPLOYMENTS, namespace, deployment)
    except NotFound:
        return
    scale["spec"]["replicas"] = 0
    await kube.replace_scale(DEPLOYMENTS, namespace, deployment, scale)
    selector = scale["status"]["selector"]

    async def pods() -> list[Resource]:
        return await kube.list(PODS, namespace, labels=selector)

    await _until(lambda: _none(pods), STOP_S, f"the pods of {deployment} to stop")


async def _release(kube: Kube, found: Resource) -> None:
    metadata = found["metadata"]
    finalizers = metadata.get("finalizers") or []
    if FINALIZER not in finalizers:
        return
    path = f"/metadata/finalizers/{finalizers.index(FINALIZER)}"
    patch = [{"op": "test", "path": path, "value": FINALIZER}, {"op": "remove", "path": path}]
    kind = TUNING_RUNS if found["kind"] == TUNING_RUNS.name else SERVING_PROFILES
    try:
        await kube.json_patch(kind, metadata["namespace"], metadata["name"], patch)
    except (NotFound, Invalid):
        return  # gone, or changed by somebody meanwhile


async def _none(found: Callable[[], Awaitable[list[Resource]]]) -> bool:
    return not await found()


async def _until(done: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if await done():
            return
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
