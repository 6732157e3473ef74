"""Production switched live on a real node: one rollout brings the plugin, then hours change nothing but limits."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from e2e.lab import Lab, Object, condition
from e2e.profiles import profile
from e2e.realvllm.environment import prepared
from e2e.realvllm.manifests import deployment
from e2e.realvllm.server import EngineSettings
from e2e.runs import LADDER, WORKLOAD, deploy, quick, wait_condition
from kneekeeper.domain.live_delivery import delivery_in

pytestmark = [pytest.mark.timeout(2700)]

# The other hours may have more sequences than the profile's own, so that each has a best setting of its own.
OWN_BOUNDS = {"maxNumSeqs": {"min": 2, "max": 4}, "maxNumBatchedTokens": {"min": 128, "max": 4096}}
OTHER_BOUNDS = {"maxNumSeqs": {"min": 2, "max": 32}, "maxNumBatchedTokens": {"min": 128, "max": 4096}}
# Set in the image of the simulated engine; what an image sets by itself cannot be added to.
PYTHON_PATH = ("PYTHONPATH", "/opt/kneekeeper/app:/opt/kneekeeper/dependencies")
POLICY = {"mode": "Apply", "liveChanges": "Allowed", "verifyFor": "10s"}


def schedule(lab: Lab, namespace: str, entries: list[dict[str, Any]]) -> None:
    patch = json.dumps({"spec": {"schedules": entries}})
    lab.kubectl("-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", patch)


def settled(lab: Lab, namespace: str, entry: int | None) -> Object:
    """The profile once the setting of these hours is certified, in force on every pod and set live."""

    def look() -> Object | None:
        seen = lab.get("sp", "chat", namespace)
        status = seen.get("status", {})
        hours = status.get("schedule") or {}
        applied, live = condition(seen, "Applied"), condition(seen, "LiveChanges")
        done = hours.get("entry") == entry and applied["status"] == "True" and "rollout" not in status
        return seen if done and live["reason"] == "SetLive" else None

    found: Object = lab.wait(f"entry {entry} to be in force", look, timeout_s=900)
    return found


def pods(lab: Lab, namespace: str) -> dict[str, int]:
    """Uid to restarts of the engine's container."""
    return {
        pod["metadata"]["uid"]: sum(s["restartCount"] for s in pod["status"]["containerStatuses"])
        for pod in lab.find("pods", namespace, "app=chat")
    }


def names(pod: Object, kind: str) -> list[str]:
    return [each["name"] for each in pod.get(kind) or ()]


def setting_of(seen: Object) -> tuple[int, int]:
    engine = seen["status"]["engine"]
    return engine["maxNumSeqs"], engine["maxNumBatchedTokens"]


def at_no_hour() -> Object:
    """An entry that is in force in no hour of the test until it is moved to now."""
    away = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=6)
    return {"cron": f"0 {away.hour} {away.day} {away.month} *", "duration": "1m", "parameters": OTHER_BOUNDS}


@pytest.mark.wide
def test_hours_change_limits_without_a_restart_and_the_end_leaves_no_trace(lab: Lab, namespace: str):
    entry = at_no_hour()
    workload = quick(lab, variables=(PYTHON_PATH,))
    deploy(lab, namespace, workload, updatePolicy=POLICY, parameters=OWN_BOUNDS, schedules=[entry])
    is_switched_live_and_leaves_no_trace(lab, namespace, workload.deployment(namespace), entry)


@pytest.mark.vllm
@pytest.mark.judged
def test_so_is_a_real_one(lab: Lab, open_namespace: str):
    entry = at_no_hour()
    settings = EngineSettings(max_num_seqs=2, max_num_batched_tokens=2048)
    workload = deployment(prepared(), namespace=open_namespace, name="chat", settings=settings)
    lab.apply(workload)
    lab.wait_rolled_out("chat", open_namespace)
    # Another use of the machine's cores is no reason to give up: this is not about what is measured.
    probe = {"allow": ["Clone"], "ladder": LADDER | {"controlTolerancePercent": 100}}
    spec: dict[str, Any] = {"workload": WORKLOAD, "probe": probe, "updatePolicy": POLICY, "parameters": OWN_BOUNDS}
    lab.apply(profile(open_namespace, ttft_s=5.0, tpot_s=0.5, schedules=[entry], **spec))
    is_switched_live_and_leaves_no_trace(lab, open_namespace, workload, entry)


def is_switched_live_and_leaves_no_trace(lab: Lab, namespace: str, workload: Object, entry: Object) -> None:
    """Follows the profile that was just applied, moves the entry to now and away again, and takes its leave away."""
    before = workload["spec"]["template"]["spec"]
    seen = settled(lab, namespace, None)
    own = setting_of(seen)
    lab.wait(
        "the other hours' setting to be certified",
        lambda: len(lab.get("sp", "chat", namespace)["status"]["schedule"]["settings"]) == 2,
        timeout_s=900,
    )
    template = lab.get("deployment", "chat", namespace)["spec"]["template"]["spec"]
    delivery = delivery_in(template)
    assert delivery is not None
    was, generation = pods(lab, namespace), lab.get("deployment", "chat", namespace)["metadata"]["generation"]
    schedule(lab, namespace, [entry | {"cron": "* * * * *", "duration": "1h"}])
    other = setting_of(settled(lab, namespace, 0))
    assert other[0] > own[0]
    schedule(lab, namespace, [entry])
    assert setting_of(settled(lab, namespace, None)) == own
    assert pods(lab, namespace) == was
    assert lab.get("deployment", "chat", namespace)["metadata"]["generation"] == generation
    for run in lab.find("tuningruns", namespace):
        [proven] = [c for c in run["status"]["certifications"] if c["verdict"] == "Pass"]
        assert proven["startedWith"] == run["status"]["plan"]["liveStart"]
        assert run["status"]["cost"]["engineStarts"] == 1
    patch = json.dumps({"spec": {"updatePolicy": {"liveChanges": "Disabled"}}})
    lab.kubectl("-n", namespace, "patch", "sp", "chat", "--type=merge", "-p", patch)
    wait_condition(lab, namespace, "LiveChanges", "False", reason="Disabled", timeout_s=60)
    lab.wait(
        "the plugin to be taken out",
        lambda: delivery_in(lab.get("deployment", "chat", namespace)["spec"]["template"]["spec"]) is None,
        timeout_s=120,
    )
    lab.wait_rolled_out("chat", namespace)
    after = lab.get("deployment", "chat", namespace)["spec"]["template"]["spec"]
    assert f"--max-num-seqs={own[0]}" in after["containers"][0]["args"]
    assert after["containers"][0]["env"] == before["containers"][0]["env"]
    assert names(after, "volumes") == names(before, "volumes")
    assert not after.get("initContainers")
