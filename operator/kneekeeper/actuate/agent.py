"""The load agents: a Secret with their token and a Job whose pods ask the API server for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.model import LocalReference
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.api.workload import SourceRef, Workload
from kneekeeper.domain.names import AGENT_CA_FILE, AGENT_PORT, ROLE_AGENT, TOKEN_KEY, USER_ID, agent_name
from kneekeeper.kube.children import AGENT_CONTAINER, child_labels, owner_reference
from kneekeeper.kube.resources import JOBS, SECRETS, TUNING_RUNS, Resource
from kneekeeper.load.sources import PROMPTS, TRACE

TOKEN_FOLDER = "/var/run/kneekeeper/token"
API_KEY_FOLDER = "/var/run/kneekeeper/api-key"
API_KEY_FILE = "api-key"
SOURCES_FOLDER = "/var/run/kneekeeper/sources"

BACKOFF_LIMIT = 20
"""A lost agent costs one stage, so it is worth starting again many times."""

DEADLINE_S = 24 * 3600
"""An agent whose operator is gone ends by itself."""

_READ_BY_GROUP = 0o440
_REQUESTS = {"cpu": "500m", "memory": "256Mi"}
# No CPU limit: throttling would look like a slow engine.
_LIMITS = {"memory": "2Gi"}


def build_agent_secret(run: TuningRun, token: str) -> Resource:
    """The Secret that holds the bearer token; it is made once and cannot change."""
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.name,
        "metadata": _metadata(run),
        "type": "Opaque",
        "immutable": True,
        "stringData": {TOKEN_KEY: token},
    }


def build_agent_job(
    run: TuningRun,
    settings: ActuateSettings,
    api_key: LocalReference | None = None,
    workload: Workload | None = None,
    ca_bundle: LocalReference | None = None,
    agents: int = 1,
) -> Resource:
    """The Job. `api_key` names the Secret and the key with the engine's API key, mounted as a file; so are the
    certificates of `ca_bundle`, a key of a ConfigMap, and the trace and the prompts of `workload`, read-only. Each of
    its `agents` pods has a number, the same for its successor; stages are ordered from number 0.

    It takes the clone's priority class: an agent must not evict anything either, its own clone included.
    """
    name = agent_name(run.metadata["name"])
    volumes = [_secret_volume("token", name, TOKEN_KEY, TOKEN_KEY), {"name": "tmp", "emptyDir": {}}]
    mounts = [
        {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    env = [{"name": "KNEEKEEPER_TOKEN_FILE", "value": f"{TOKEN_FOLDER}/{TOKEN_KEY}"}]
    if api_key is not None:
        if api_key.key is None:
            raise ValueError("the Secret's key must be resolved before the Job is built")
        volumes.append(_secret_volume("api-key", api_key.name, api_key.key, API_KEY_FILE))
        mounts.append({"name": "api-key", "mountPath": API_KEY_FOLDER, "readOnly": True})
        env.append({"name": "KNEEKEEPER_API_KEY_FILE", "value": f"{API_KEY_FOLDER}/{API_KEY_FILE}"})
    if ca_bundle is not None:
        volumes.append(_ca_volume(ca_bundle))
        mounts.append({"name": "ca", "mountPath": str(PurePosixPath(AGENT_CA_FILE).parent), "readOnly": True})
    for name, variable, source in _sources(workload):
        folder = f"{SOURCES_FOLDER}/{name}"
        volumes.append(_source_volume(name, source))
        mounts.append({"name": name, "mountPath": folder, "readOnly": True})
        env.append({"name": variable, "value": f"{folder}/{_key_of(source)}".rstrip("/")})
    container = {
        "name": AGENT_CONTAINER,
        "image": settings.agent_image,
        "imagePullPolicy": settings.agent_image_pull_policy,
        "args": ["kneekeeper.load.agent", "--port", str(AGENT_PORT)],
        "env": env,
        "ports": [{"name": "http", "containerPort": AGENT_PORT}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 2},
        "resources": {"requests": _REQUESTS, "limits": _LIMITS},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.name,
        "metadata": _metadata(run),
        "spec": {
            "completionMode": "Indexed",
            "completions": agents,
            "parallelism": agents,
            "backoffLimit": BACKOFF_LIMIT,
            "activeDeadlineSeconds": DEADLINE_S,
            "template": {
                "metadata": {"labels": child_labels(run.metadata["name"], ROLE_AGENT)},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "priorityClassName": settings.priority_class,
                    "terminationGracePeriodSeconds": 5,
                    "imagePullSecrets": [{"name": n} for n in settings.agent_image_pull_secrets],
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER_ID,
                        "runAsGroup": USER_ID,
                        "fsGroup": USER_ID,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }


def _sources(workload: Workload | None) -> Iterator[tuple[str, str, SourceRef]]:
    """Name, the agent's variable and the reference of each file that the workload declares."""
    if workload is not None and workload.trace_ref is not None:
        yield "trace", TRACE, workload.trace_ref
    if workload is not None and workload.prompts is not None:
        yield "prompts", PROMPTS, workload.prompts


def _key_of(source: SourceRef) -> str:
    """The file's path in the volume; empty where the only file is meant."""
    reference = source.config_map_ref or source.persistent_volume_claim
    return "" if reference is None or reference.key is None else reference.key.strip("/")


def _source_volume(name: str, source: SourceRef) -> Resource:
    if source.config_map_ref is not None:
        return {"name": name, "configMap": {"name": source.config_map_ref.name, "defaultMode": _READ_BY_GROUP}}
    assert source.persistent_volume_claim is not None  # one of both, by the API's rule
    return {
        "name": name,
        "persistentVolumeClaim": {"claimName": source.persistent_volume_claim.name, "readOnly": True},
    }


def _metadata(run: TuningRun) -> Resource:
    name = run.metadata["name"]
    return {
        "name": agent_name(name),
        "namespace": run.metadata["namespace"],
        "labels": child_labels(name, ROLE_AGENT),
        "ownerReferences": [owner_reference(TUNING_RUNS, run.metadata)],
    }


def _ca_volume(bundle: LocalReference) -> Resource:
    if bundle.key is None:
        raise ValueError("the ConfigMap's key must be resolved before the Job is built")
    return {
        "name": "ca",
        "configMap": {
            "name": bundle.name,
            "defaultMode": _READ_BY_GROUP,
            "items": [{"key": bundle.key, "path": PurePosixPath(AGENT_CA_FILE).name}],
        },
    }


def _secret_volume(volume: str, secret: str, key: str, path: str) -> Resource:
    return {
        "name": volume,
        "secret": {
            "secretName": secret,
            "defaultMode": _READ_BY_GROUP,
            "items": [{"key": key, "path": path}],
        },
    }
