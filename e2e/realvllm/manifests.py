"""A Deployment of real vLLM: an almost empty image, with the venv and the machine's libraries mounted.

vLLM is too large to pack into an image at each run. Its pods therefore mount host folders, which the
`restricted` pod security level forbids: put them into a namespace without it. In all else the pods keep
to that level: no root, no capabilities, no privilege escalation, the default seccomp profile, and a
read-only root file system.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.realvllm.environment import RealVllm
from e2e.realvllm.server import ENVIRONMENT, EngineSettings

IMAGE = "localhost/hostroot:1"
USER_ID = 10001
PORT = 8000
CONTAINER_NAME = "vllm"
_VENV = Path("/vllm")
_MODEL = Path("/model")
# A start takes 30 s on an idle machine and up to 110 s on a busy one.
_STARTUP_PERIOD_S = 2
_STARTUP_FAILURES = 150


@dataclass(frozen=True)
class PodPlacement:
    """How the Deployment's pods are made, beyond the engine's arguments."""

    replicas: int = 1
    gpus: int = 0
    """`nvidia.com/gpu` per pod: an extended resource that the cluster tool advertises, not a device."""
    enable_service_links: bool = False
    """True lets a Service called `vllm` kill the engine by its VLLM_PORT variable."""


def deployment(
    engine: RealVllm,
    *,
    namespace: str,
    name: str,
    settings: EngineSettings,
    placement: PodPlacement = PodPlacement(),
) -> dict[str, Any]:
    """The apps/v1 Deployment, as the API server takes it. Pods carry the label `app: <name>`.

    The strategy is Recreate: two engines on a test node would disturb each other.
    """
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": placement.replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "enableServiceLinks": placement.enable_service_links,
                    "automountServiceAccountToken": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER_ID,
                        "runAsGroup": USER_ID,
                        "fsGroup": USER_ID,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(engine, settings, placement)],
                    "volumes": _volumes(engine),
                },
            },
        },
    }


def _container(engine: RealVllm, settings: EngineSettings, placement: PodPlacement) -> dict[str, Any]:
    health = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    resources: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "2Gi"}}
    if placement.gpus:
        resources["limits"] = {"nvidia.com/gpu": str(placement.gpus)}
    return {
        "name": CONTAINER_NAME,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [str(_VENV / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"],
        "args": list(settings.arguments(model=_MODEL, port=PORT)),
        "env": [{"name": key, "value": value} for key, value in _environment().items()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**health, "periodSeconds": _STARTUP_PERIOD_S, "failureThreshold": _STARTUP_FAILURES},
        # A busy engine shares two cores with its load: slow is not dead.
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 6},
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "usr", "mountPath": "/usr", "readOnly": True},
            {"name": "etc", "mountPath": "/etc", "readOnly": True},
            # At its own path: the venv's interpreter is a link to it.
            {"name": "python", "mountPath": str(engine.python_home), "readOnly": True},
            {"name": "venv", "mountPath": str(_VENV), "readOnly": True},
            {"name": "model", "mountPath": str(_MODEL), "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _environment() -> dict[str, str]:
    # The uid has no entry in /etc/passwd; torch asks for a user name and for a home to write to.
    return {**ENVIRONMENT, "HOME": "/tmp", "USER": CONTAINER_NAME}


def _volumes(engine: RealVllm) -> list[dict[str, Any]]:
    host_paths = {
        "usr": Path("/usr"),
        "etc": Path("/etc"),
        "python": engine.python_home,
        "venv": engine.venv,
        "model": engine.model,
    }
    mounted = [
        {"name": name, "hostPath": {"path": str(path), "type": "Directory"}} for name, path in host_paths.items()
    ]
    return [
        *mounted,
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
