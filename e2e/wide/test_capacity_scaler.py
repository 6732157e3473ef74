"""The HPA of examples/hpa-capacity.yaml under Kubernetes' own controller follows what the example's metrics tell."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.control_plane import ApiServer, Controllers, control_plane
from e2e.cluster.start import kubectl
from e2e.external_metrics import served

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "hpa-capacity.yaml"
NAMESPACE = "llm"
BY_RATE, BY_REQUESTS = "chat_replicas_filled_by_rate", "chat_replicas_filled_by_requests"
LONGEST_S = 120.0


def example() -> dict[str, Any]:
    documents = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    found: dict[str, Any] = next(each for each in documents if each["kind"] == "HorizontalPodAutoscaler")
    return found


def deployment(replicas: int) -> dict[str, Any]:
    """Without a node its pods never start, and external metrics do not ask for them."""
    labels = {"app": "chat"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": "vllm"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def replicas(api: ApiServer) -> int:
    found = json.loads(kubectl(api.kubeconfig, "-n", NAMESPACE, "get", "deployment", "chat", "-o", "json"))
    return int(found["spec"]["replicas"])


def scales(api: ApiServer, wanted: int) -> bool:
    """Whether the replicas get there."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        if replicas(api) == wanted:
            return True
        time.sleep(1)
    return False


def scaling_is_active(api: ApiServer) -> str:
    found = json.loads(kubectl(api.kubeconfig, "-n", NAMESPACE, "get", "hpa", "chat", "-o", "json"))
    conditions = found.get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == "ScalingActive"), "")


def test_replicas_follow_the_load_that_they_fill_and_stay_where_nothing_is_known():
    filled: dict[str, float | None] = {BY_RATE: None, BY_REQUESTS: None}
    metrics = {name: (lambda name=name: filled[name]) for name in filled}
    with control_plane(Controllers.ALL) as api, served(metrics) as objects:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        kubectl(api.kubeconfig, "apply", "-f", "-", stdin=yaml.safe_dump_all([namespace, *objects, deployment(3)]))
        kubectl(api.kubeconfig, "apply", "-f", "-", stdin=yaml.safe_dump(example()))
        end = time.monotonic() + LONGEST_S
        while scaling_is_active(api) != "False":
            assert time.monotonic() < end
            time.sleep(1)
        assert replicas(api) == 3  # no capacity is known: as they are
        filled |= {BY_RATE: 2.0, BY_REQUESTS: 1.0}
        while scaling_is_active(api) != "True":
            assert time.monotonic() < end + LONGEST_S
            time.sleep(1)
        assert replicas(api) == 3  # 2.0 filled of 3: at most 0.8 of each
        filled[BY_RATE] = 4.0
        assert scales(api, 5)  # twice the load
        filled[BY_REQUESTS] = 6.0
        assert scales(api, 8)  # a queue: the rate alone would not tell
