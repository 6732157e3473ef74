"""What cannot be done is said in a condition with the next step, and the workload is not touched."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.errors import CommandFailed
from e2e.lab import Lab, condition
from e2e.profiles import profile
from e2e.runs import quick, quick_profile, wait_condition

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_each_refusal_has_a_reason_and_no_workload_is_written(lab: Lab, namespace: str):
    engine = quick(lab, replicas=1, name="engine")
    lab.apply(engine.deployment(namespace))
    other = engine.deployment(namespace)
    other["metadata"]["name"] = "web"
    other["spec"]["replicas"] = 0
    other["spec"]["template"]["spec"]["containers"][0] |= {
        "command": ["python3", "-m", "http.server"],
        "args": [],
        "name": "web",
    }
    lab.apply(other)
    lab.wait_rolled_out("engine", namespace)
    before = {name: lab.get("deployment", name, namespace) for name in ("engine", "web")}
    cases: dict[str, tuple[str, str, dict[str, Any]]] = {
        "nowhere": ("TargetFound", "TargetNotFound", {}),
        "web": ("TargetFound", "NoEngineContainer", {}),
        "engine": ("Recommended", "ImpossibleSLO", {"slo": {"p99TPOT": "1ms"}}),
    }
    for name, (_, _, spec) in cases.items():
        lab.apply(quick_profile(namespace, name, **spec))
    for name, (type_, reason, _) in cases.items():
        seen = wait_condition(lab, namespace, type_, "False", reason=reason, name=name, timeout_s=300)
        assert condition(seen, type_)["message"]
        assert condition(seen, "Ready")["status"] == "False"
    after = {name: lab.get("deployment", name, namespace) for name in ("engine", "web")}
    assert {n: d["metadata"]["generation"] for n, d in after.items()} == {
        n: d["metadata"]["generation"] for n, d in before.items()
    }


def test_a_value_out_of_bounds_is_rejected_when_it_is_applied(lab: Lab, namespace: str):
    wrong = profile(namespace, ttft_s=1.0, tpot_s=0.04, parameters={"maxNumSeqs": {"min": 64, "max": 8}})
    with pytest.raises(CommandFailed, match="min"):
        lab.apply(wrong)


def test_what_is_not_acted_on_yet_is_named(lab: Lab, namespace: str):
    lab.apply(profile(namespace, ttft_s=1.0, tpot_s=0.04, updatePolicy={"method": "Owner"}))
    seen = wait_condition(lab, namespace, "Accepted", "False", reason="NotSupported", timeout_s=60)
    assert "spec.updatePolicy.method Owner of a Deployment" in condition(seen, "Accepted")["message"]
