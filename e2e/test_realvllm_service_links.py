"""A Service called `vllm` beside real vLLM injects VLLM_PORT and kills the engine: the cause is named."""

from __future__ import annotations

import pytest

from e2e.lab import Lab, condition
from e2e.realvllm.environment import prepared
from e2e.realvllm.manifests import PodPlacement, deployment
from e2e.realvllm.server import EngineSettings
from e2e.runs import arguments, quick_profile, wait_condition

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.judged, pytest.mark.timeout(1800)]


def test_the_service_that_kills_the_engine_is_named(lab: Lab, open_namespace: str):
    service = {"selector": {"app": "chat"}, "ports": [{"port": 80, "targetPort": 8000}]}
    metadata = {"name": "vllm", "namespace": open_namespace}
    lab.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    settings = EngineSettings(max_num_seqs=2, max_num_batched_tokens=2048)
    placement = PodPlacement(gpus=1, enable_service_links=True)
    lab.apply(
        deployment(prepared(), namespace=open_namespace, name="chat", settings=settings, placement=placement),
        quick_profile(open_namespace),
    )
    before = arguments(lab, open_namespace)
    seen = wait_condition(lab, open_namespace, "Degraded", "True", reason="ServicePortEnv", timeout_s=300)
    assert "enableServiceLinks" in condition(seen, "Degraded")["message"]
    assert arguments(lab, open_namespace) == before
