"""Small controllers of the shapes that kneekeeper meets: one that reverts, one that makes what another object says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from e2e.lab import Lab, Object
from e2e.simulated import Simulated

EVERY_S = 1.0
ARGO = "argocd-controller"
KSERVE = "kserve-controller-manager"
INFERENCE_SERVICE = "inferenceservices.serving.kserve.io"


@contextmanager
def controller(reconcile: Callable[[], object]) -> Iterator[None]:
    """Reconciles every second in a thread of its own; its first error is raised at the end of the block."""
    over = threading.Event()
    errors: list[Exception] = []

    def loop() -> None:
        while not over.wait(EVERY_S):
            try:
                reconcile()
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=loop, name="controller", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=60)
    if errors:
        raise errors[0]


def keep_as(lab: Lab, manifest: Object, manager: str = ARGO) -> None:
    """The object as its source has it, as a GitOps controller with self-healing keeps it: fields of others go."""
    text = yaml.safe_dump(manifest)
    lab.kubectl("apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", "-", text=text)


def make_predictor(lab: Lab, namespace: str, name: str, runtime: Simulated) -> None:
    """The Deployment of an InferenceService: the runtime's words first, then those of `predictor.model.args`."""
    service = lab.get(INFERENCE_SERVICE, name, namespace)
    deployment = runtime.deployment(namespace)
    deployment["metadata"]["ownerReferences"] = [controlled_by(service)]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [*container["args"][:4], *service["spec"]["predictor"]["model"]["args"]]
    keep_as(lab, deployment, KSERVE)


def controlled_by(owner: Object) -> dict[str, Any]:
    """An owner reference to the object whose controller makes another one."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def holds(what: str, seen: Callable[[], object], *, for_s: float) -> None:
    """Raises AssertionError as soon as it does not hold, within this time."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        assert seen(), f"{what} did not last {for_s:.0f} s"
        time.sleep(EVERY_S)
