"""What a pod tells of its engine, and which log is read for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kneekeeper.domain.observation import PodPhase
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.labels import parse_selector
from kneekeeper.observe.pods import LOG_TAIL_LINES, parse_pod, read_pods, with_log_tail
from tests.unit.kube_objects import pod


def engine_status(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "vllm", "restartCount": 0, **fields}]


ENDED = {"terminated": {"exitCode": 1, "reason": "Error"}}
CRASH_LOOP = engine_status(restartCount=3, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ENDED)


class Logs:
    """Answers log requests and remembers them."""

    def __init__(self, text: str | None, pods: list[dict[str, Any]] | None = None) -> None:
        self.text = text
        self.pods = pods or []
        self.asked: list[tuple[str, str, int, bool]] = []

    async def pod_log(
        self, namespace: str, pod: str, container: str, *, tail_lines: int, previous: bool = False
    ) -> str:
        self.asked.append((pod, container, tail_lines, previous))
        if self.text is None:
            raise NotFound("no log")
        return self.text

    async def list(self, kind: object, namespace: str, *, labels: str = "") -> list[dict[str, Any]]:
        return self.pods

    @property
    def kube(self) -> Kube:
        return cast(Kube, self)


def test_a_serving_pod_is_seen_as_it_is():
    view = parse_pod(pod(), "vllm")
    assert (view.phase, view.ready, view.deleting) == (PodPhase.RUNNING, True, False)
    assert (view.node, view.ip, view.image_id) == ("node-1", "10.244.0.9", "sha256:1")
    assert view.words.command == ["vllm", "serve"]
    assert view.exit_code is None
    assert view.created_at.year == 2026


def test_a_pod_that_waits_for_a_node_tells_why():
    conditions = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient nvidia.com/gpu"}]
    view = parse_pod(pod(phase="Pending", conditions=conditions, containerStatuses=[]), "vllm")
    assert "Insufficient nvidia.com/gpu" in view.unschedulable_message
    assert not view.ready


def test_an_ended_engine_has_an_exit_code():
    assert parse_pod(pod(phase="Failed", containerStatuses=engine_status(state=ENDED)), "vllm").exit_code == 1


def test_a_crash_loop_has_the_exit_code_of_its_last_run():
    view = parse_pod(pod(containerStatuses=CRASH_LOOP), "vllm")
    assert (view.exit_code, view.waiting_reason, view.restarts) == (1, "CrashLoopBackOff", 3)


def test_an_engine_that_runs_again_has_no_exit_code():
    running = engine_status(restartCount=1, state={"running": {}}, lastState=ENDED)
    view = parse_pod(pod(containerStatuses=running), "vllm")
    assert (view.exit_code, view.restarts) == (None, 1)


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded"])
def test_why_a_pod_was_ended_by_kubernetes_is_told(reason):
    assert parse_pod(pod(phase="Failed", reason=reason), "vllm").waiting_reason == reason


def test_an_engine_that_ran_out_of_memory_says_so():
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    view = parse_pod(pod(phase="Failed", containerStatuses=engine_status(state=killed)), "vllm")
    assert (view.exit_code, view.waiting_reason) == (137, "OOMKilled")


async def test_no_log_is_read_of_an_engine_that_runs():
    logs = Logs("text")
    assert (await with_log_tail(logs.kube, "prod", pod(), "vllm")).log_tail == ""
    assert logs.asked == []


async def test_the_log_of_an_ended_engine_is_read_and_redacted():
    logs = Logs("starts with --api-key verysecret")
    ended = pod(phase="Failed", containerStatuses=engine_status(state=ENDED))
    view = await with_log_tail(logs.kube, "prod", ended, "vllm")
    assert logs.asked == [("chat-abc", "vllm", LOG_TAIL_LINES, False)]
    assert "starts with" in view.log_tail
    assert "verysecret" not in view.log_tail


async def test_the_log_of_a_crash_loop_is_that_of_the_run_before():
    logs = Logs("text")
    await with_log_tail(logs.kube, "prod", pod(containerStatuses=CRASH_LOOP), "vllm")
    assert logs.asked == [("chat-abc", "vllm", LOG_TAIL_LINES, True)]


async def test_the_log_of_an_engine_that_starts_again_is_that_of_the_run_before():
    logs = Logs("text")
    conditions = [{"type": "Ready", "status": "False"}]
    again = engine_status(restartCount=2, state={"running": {}}, lastState=ENDED)
    view = await with_log_tail(logs.kube, "prod", pod(conditions=conditions, containerStatuses=again), "vllm")
    assert logs.asked == [("chat-abc", "vllm", LOG_TAIL_LINES, True)]
    assert view.log_tail == "text"


async def test_the_log_of_a_failed_init_container_is_read_in_the_engines_place():
    logs = Logs("model not found")
    waiting = engine_status(state={"waiting": {"reason": "PodInitializing"}})
    failed = pod(
        phase="Failed",
        containerStatuses=waiting,
        initContainerStatuses=[{"name": "fetch", "ready": False, "state": ENDED}],
    )
    view = await with_log_tail(logs.kube, "prod", failed, "vllm")
    assert logs.asked[0][1] == "fetch"
    assert view.log_tail == "model not found"


async def test_a_log_that_is_gone_is_empty():
    ended = pod(phase="Failed", containerStatuses=engine_status(state=ENDED))
    assert (await with_log_tail(Logs(None).kube, "prod", ended, "vllm")).log_tail == ""


async def test_kneekeepers_own_pods_do_not_serve():
    labels = {"app": "chat", "kneekeeper.io/role": "clone"}
    logs = Logs("", [pod("chat-b"), pod("chat-a"), pod("clone", labels=labels)])
    views = await read_pods(logs.kube, "prod", parse_selector({"matchLabels": {"app": "chat"}}), "vllm")
    assert [view.name for view in views] == ["chat-a", "chat-b"]


def test_a_pod_that_kueue_has_not_admitted_says_so():
    held = pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}])
    held["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    assert "kueue.x-k8s.io/admission; Kueue has not admitted it" in parse_pod(held, "vllm").unschedulable_message
    assert parse_pod(held, "vllm").queued
    held["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    assert not parse_pod(held, "vllm").queued
    held["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    assert parse_pod(held, "vllm").unschedulable_message == "scheduling gates hold it back: example.com/wait"
