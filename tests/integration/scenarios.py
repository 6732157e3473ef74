"""Lives of profiles that together make the operator do most of what it can do."""

from __future__ import annotations

from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.kube.resources import DEPLOYMENTS, JOBS, PODS, SERVING_PROFILES, Resource
from tests.integration.serving import PATIENCE_S, Serving, eventually


async def a_clone_fails_and_is_cleaned_up(rights: Serving, within_s: float = PATIENCE_S) -> None:
    await rights.profile("chat")
    kube = rights.kube

    async def clone() -> Resource | None:
        pods = await kube.list(PODS, rights.namespace, labels="kneekeeper.io/role=clone")
        return pods[0] if pods else None

    async def done() -> bool:
        runs = await rights.runs("chat")
        return [run["status"].get("step") for run in runs] == ["Done"]

    made = await eventually("a clone is made", clone, within_s)
    assert await kube.list(JOBS, rights.namespace) != []
    ended = {"name": "vllm", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    await rights.set_pod_status(made, phase="Failed", containerStatuses=[ended])
    await eventually("the failure is told", lambda: _failures(rights), within_s)
    await rights.patch("chat", "/spec/suspend", True)
    await eventually("the run ends", done, within_s)
    assert await clone() is None
    assert await kube.list(JOBS, rights.namespace) == []


async def _failures(rights: Serving) -> bool:
    [run] = await rights.runs("chat")
    return bool(run["status"].get("cloneFailures")) or run["status"].get("outcome") == "Failed"


async def a_replica_is_borrowed_and_returned(rights: Serving, within_s: float = PATIENCE_S) -> None:
    async def replicas(wanted: int) -> bool:
        deployment = await rights.kube.get(DEPLOYMENTS, rights.namespace, "lend")
        return bool(deployment["spec"]["replicas"] == wanted)

    await rights.profile("lend", probe={"allow": ["BorrowReplica"]})
    await eventually("a replica is borrowed", lambda: replicas(1), within_s)
    await rights.patch("lend", "/spec/suspend", True)
    await eventually("the replica is back", lambda: replicas(2), within_s)


async def a_recommendation_is_written_and_taken_back(rights: Serving) -> None:
    async def says(word: str) -> bool:
        deployment = await rights.kube.get(DEPLOYMENTS, rights.namespace, "write")
        return word in deployment["spec"]["template"]["spec"]["containers"][1]["args"]

    await rights.profile("write", suspend=True, updatePolicy={"mode": "Apply"}, deletionPolicy="Restore")
    await rights.measure("write", RunOutcome.CERTIFIED, present_breaks_slo=True)
    await rights.patch("write", "/spec/suspend", False)
    await eventually("the setting is written", lambda: says("--max-num-seqs=64"))
    await rights.kube.delete(SERVING_PROFILES, rights.namespace, "write")
    await eventually("what stood there is restored", lambda: says("--max-num-seqs=256"))
    await eventually("the profile is gone", lambda: rights.is_gone("write"))
    assert await rights.runs("write") == []
