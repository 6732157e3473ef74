"""A Deployment of the simulated engine, as a user would write it for vLLM."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

USER_ID = 10001
PORT = 8000
CONTAINER = "vllm"
CPU = "200m"
"""Without a request of its own a container gets next to nothing while a load agent or the operator computes."""

# A small GPU: decode steps of some milliseconds, prompts that are expensive to prefill. Long prompts disturb
# the decodes of others, so a large token budget breaks TPOT long before the GPU is busy.
HARDWARE: dict[str, Any] = {
    "startup_s": 1.0,
    "step_time": {"base_ms": 2.0, "per_sequence_ms": 0.04, "per_prefill_token_ms": 0.019},
}


@dataclass(frozen=True)
class Simulated:
    """What differs between the workloads of the tests. `image` is kneekeeper's own, which holds the engine."""

    image: str
    name: str = "chat"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    replicas: int = 2
    gpus: int = 1
    more_args: tuple[str, ...] = ()
    hardware: dict[str, Any] = field(default_factory=dict)
    progress_deadline_s: int = 120
    variables: tuple[tuple[str, str], ...] = ()

    def deployment(self, namespace: str) -> dict[str, Any]:
        """The apps/v1 Deployment. One replica may be missing while it rolls, so that no spare GPU is needed."""
        labels = {"app": self.name}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": namespace, "labels": labels},
            "spec": {
                "replicas": self.replicas,
                "progressDeadlineSeconds": self.progress_deadline_s,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"prometheus.io/scrape": "true"}},
                    "spec": {
                        "automountServiceAccountToken": False,
                        "terminationGracePeriodSeconds": 2,
                        "securityContext": {
                            "runAsNonRoot": True,
                            "runAsUser": USER_ID,
                            "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "containers": [self.container()],
                    },
                },
            },
        }

    def container(self) -> dict[str, Any]:
        """Of its pods."""
        limits = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": "Never",
            "command": ["python3", "-m", "kneekeeper.engine"],
            "args": [
                "serve",
                "tiny",
                "--port",
                str(PORT),
                f"--max-num-seqs={self.max_num_seqs}",
                "--max-num-batched-tokens",
                str(self.max_num_batched_tokens),
                *self.more_args,
            ],
            "env": [
                {"name": "KNEEKEEPER_SIM", "value": json.dumps(HARDWARE | self.hardware)},
                *({"name": name, "value": value} for name, value in self.variables),
            ],
            "ports": [{"containerPort": PORT, "name": "http"}],
            "readinessProbe": {
                "httpGet": {"path": "/health", "port": "http"},
                "periodSeconds": 1,
                "failureThreshold": 60,
            },
            "resources": {"limits": limits, "requests": limits | {"cpu": CPU}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
