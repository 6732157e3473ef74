"""What several tests do with a simulated deployment and its profile."""

from __future__ import annotations

from typing import Any

from e2e.lab import Lab, Object, condition
from e2e.profiles import profile
from e2e.simulated import Simulated

# Short requests on a fast engine, so that a whole run takes two minutes. The present setting lets two requests in
# at a time: at the rate that more of them carry, its queue grows without end.
TTFT_S = 0.5
TPOT_S = 0.060
QUICK: dict[str, Any] = {
    "startup_s": 1.0,
    "step_time": {"base_ms": 4.0, "per_sequence_ms": 0.3, "per_prefill_token_ms": 0.02},
}
LADDER = {"maxConcurrency": 16, "recovery": "500ms", "controlTolerancePercent": 40}
WORKLOAD = {
    "promptTokens": {"distribution": "Uniform", "min": 50, "max": 150},
    "outputTokens": {"distribution": "Uniform", "min": 12, "max": 36},
}


def quick(lab: Lab, **changes: Any) -> Simulated:
    """Two replicas with a setting that is far too low."""
    defaults: dict[str, Any] = {"image": lab.image, "max_num_seqs": 2, "max_num_batched_tokens": 2048}
    return Simulated(**(defaults | changes | {"hardware": QUICK | changes.get("hardware", {})}))


def quick_profile(namespace: str, name: str = "chat", **spec: Any) -> Object:
    """A profile for `quick`; `spec` replaces whole fields."""
    small = {
        "workload": WORKLOAD,
        "parameters": {"maxNumSeqs": {"min": 2, "max": 32}, "maxNumBatchedTokens": {"min": 128, "max": 4096}},
        "probe": {"allow": ["Clone"], "ladder": LADDER},
    }
    return profile(namespace, ttft_s=TTFT_S, tpot_s=TPOT_S, name=name, **(small | spec))


def deploy(lab: Lab, namespace: str, workload: Simulated, /, **spec: Any) -> None:
    """The workload, ready, and then its profile."""
    lab.apply(workload.deployment(namespace))
    lab.wait_rolled_out(workload.name, namespace)
    lab.apply(quick_profile(namespace, workload.name, **spec))


def runs(lab: Lab, namespace: str) -> list[Object]:
    """Oldest first."""
    return sorted(lab.find("tuningruns", namespace), key=lambda run: str(run["metadata"]["creationTimestamp"]))


def wait_condition(
    lab: Lab, namespace: str, type_: str, status: str, *, reason: str = "", timeout_s: float = 600, name: str = "chat"
) -> Object:
    """The profile once the condition has this status, and this reason if one is given."""

    def look() -> Object | None:
        seen = lab.get("sp", name, namespace)
        found = condition(seen, type_)
        return seen if found["status"] == status and reason in ("", found["reason"]) else None

    found: Object = lab.wait(f"{type_}={status} {reason}", look, timeout_s=timeout_s)
    return found


def wait_step(lab: Lab, namespace: str, step: str, *, stages: int = 0, timeout_s: float = 400) -> Object:
    """The newest run once it is in this step with at least so many decided stages in all."""

    def look() -> Object | None:
        found = runs(lab, namespace)
        status = found[-1].get("status", {}) if found else {}
        return found[-1] if status.get("step") == step and len(status.get("stages", [])) >= stages else None

    found: Object = lab.wait(f"a run in step {step}", look, timeout_s=timeout_s, every_s=0.5)
    return found


def wait_run_over(lab: Lab, namespace: str, *, timeout_s: float = 600) -> Object:
    """The newest run once it is done."""
    return wait_step(lab, namespace, "Done", timeout_s=timeout_s)


def children(lab: Lab, namespace: str) -> list[str]:
    """Clones, agents and their Secrets that exist now."""
    kinds = ("pods", "jobs", "secrets")
    return [f"{kind}/{o['metadata']['name']}" for kind in kinds for o in lab.find(kind, namespace, "kneekeeper.io/run")]


def arguments(lab: Lab, namespace: str, name: str = "chat") -> list[str]:
    """Of the deployment's template."""
    found: list[str] = lab.get("deployment", name, namespace)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found
