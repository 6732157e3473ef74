"""Kubernetes objects as an API server gives them, for tests of what is read from and made of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.run_plan import RunPlan, SettingBounds
from kneekeeper.api.serving_profile import ProbeTarget, Scheme, ServingProfileSpec
from kneekeeper.api.tuning_run import TuningRun, TuningRunSpec, TuningRunStatus

PRODUCT = "NVIDIA-H100-80GB-HBM3"

PROFILE_SPEC: dict[str, Any] = {
    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
    "slo": {"p99TTFT": "500ms", "p99TPOT": "40ms"},
    "workload": {
        "promptTokens": {"distribution": "Fixed", "value": 100},
        "outputTokens": {"distribution": "Fixed", "value": 20},
    },
}

TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {"app": "chat", "team": "ml"},
        "annotations": {"prometheus.io/scrape": "true", "example.com/volume": "models"},
    },
    "spec": {
        "containers": [
            {"name": "exporter", "image": "registry.example.com/exporter:1"},
            {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.32.0",
                "command": ["vllm", "serve"],
                "args": ["example/chat-8b", "--max-num-seqs=256"],
                "env": [
                    {"name": "HF_HOME", "value": "/models"},
                    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
                ],
                "ports": [{"name": "http", "containerPort": 8000, "hostPort": 8000, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "1"}},
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                "livenessProbe": {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 1},
                "readinessProbe": {
                    "httpGet": {"path": "/ready", "port": "http"},
                    "timeoutSeconds": 1,
                    "failureThreshold": 1,
                },
                "startupProbe": {"httpGet": {"path": "/started", "port": "http"}, "failureThreshold": 3},
                "lifecycle": {"preStop": {"sleep": {"seconds": 20}}},
            },
        ],
        "volumes": [{"name": "models", "emptyDir": {}}],
    },
}


def template(**pod_spec: Any) -> dict[str, Any]:
    """The template with some fields of its pod's spec replaced."""
    made = deepcopy(TEMPLATE)
    made["spec"] |= pod_spec
    return made


def deployment(pod_template: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "chat",
            "namespace": "prod",
            "uid": "uid-chat",
            "resourceVersion": "7",
            "generation": 3,
            **metadata,
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "chat"}},
            "template": deepcopy(TEMPLATE) if pod_template is None else pod_template,
        },
        "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2},
    }


def tuning_run(
    name: str = "chat-1", *, gpu_product: str = PRODUCT, scheme: Scheme = Scheme.HTTP, **spec: Any
) -> TuningRun:
    """A run past Preflight; `spec` replaces parts of its profile's spec."""
    setting = Setting(max_num_seqs=256, max_num_batched_tokens=2048)
    plan = RunPlan(
        profile_generation=1,
        profile_spec=ServingProfileSpec.model_validate(PROFILE_SPEC | spec),
        fingerprint="f" * 16,
        image="vllm/vllm-openai:v0.32.0",
        engine_model="example/chat-8b",
        gpu_product=gpu_product,
        container="vllm",
        model="example/chat-8b",
        port=8000,
        scheme=scheme,
        gpus_per_replica=1,
        present=setting,
        bounds=SettingBounds(lowest=setting, highest=setting),
        probe_target=ProbeTarget.CLONE,
        token="abcd1234",
    )
    return TuningRun(
        metadata={"name": name, "namespace": "prod", "uid": f"uid-{name}"},
        spec=TuningRunSpec(profile_name="chat"),
        status=TuningRunStatus(plan=plan),
    )


def pod(name: str = "chat-abc", *, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    """A running, ready pod of the template; `status` replaces parts of its status."""
    return {
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "chat"} if labels is None else labels,
        },
        "spec": {"nodeName": "node-1", **deepcopy(TEMPLATE["spec"])},
        "status": {
            "phase": "Running",
            "podIP": "10.244.0.9",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "vllm", "restartCount": 0, "imageID": "sha256:1", "state": {"running": {}}}],
            **status,
        },
    }
