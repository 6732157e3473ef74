"""The cluster tool itself, on machines of its own: no other cluster of this machine is touched."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import ClusterSpec
from e2e.cluster.audit import read_calls
from e2e.cluster.cgroups import cgroups_of, container_ids
from e2e.cluster.cleanup import mounts_below
from e2e.cluster.commands import run
from e2e.cluster.errors import CommandFailed
from e2e.cluster.leftovers import sandboxes, shim_socket
from e2e.cluster.processes import ProcessRecord, all_stats, record_of
from e2e.cluster.spec import GPU_RESOURCE, nodes_of
from e2e.separate_machine import ANSWER, Machine, fetch, perl_pod, separate_machine, server, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """Two nodes with one GPU each."""
    with separate_machine("two") as machine:
        machine.tool("up", "--nodes", "2", "--gpus-per-node", "1")
        yield machine


@pytest.fixture
def namespace(machine: Machine, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    machine.kubectl("create", "namespace", name)
    yield name
    machine.kubectl("delete", "namespace", name, "--timeout=270s")


def test_a_pod_answers_the_machine_and_another_node_by_every_address(machine: Machine, namespace: str):
    machine.apply(*server(namespace, node="node-1"))
    machine.wait_ready(namespace, "server")
    service = machine.field(namespace, "service/server", "{.spec.clusterIP}")
    pod = machine.field(namespace, "pod/server", "{.status.podIP}")
    assert machine.run("perl", "-e", fetch(f"http://{service}")) == ANSWER
    urls = {"service": f"http://{service}", "pod": f"http://{pod}:8000", "name": f"http://server.{namespace}.svc"}
    machine.apply(*(perl_pod(namespace, name, fetch(url), node="node-2") for name, url in urls.items()))
    assert {name: machine.output(namespace, name) for name in urls} == dict.fromkeys(urls, ANSWER)


def test_a_pod_reaches_itself_through_its_own_service(machine: Machine, namespace: str):
    machine.apply(*server(namespace, node="node-1"))
    machine.wait_ready(namespace, "server")
    ask = ["/usr/bin/perl", "-e", fetch(f"http://server.{namespace}")]
    assert machine.kubectl("-n", namespace, "exec", "server", "--", *ask) == ANSWER


def test_logs_exec_and_events_work(machine: Machine, namespace: str):
    machine.apply(perl_pod(namespace, "talker", '$| = 1; print "hello\\n"; sleep 1000;', node="node-2"))
    machine.wait_ready(namespace, "talker")
    assert machine.kubectl("-n", namespace, "logs", "talker") == "hello\n"
    shown = machine.kubectl("-n", namespace, "exec", "talker", "--", "/usr/bin/perl", "-e", "print 6 * 7")
    assert shown == "42"
    events = machine.kubectl("-n", namespace, "get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert {"Created", "Started"} <= set(events)


def test_a_pod_stays_pending_when_every_gpu_is_taken_and_starts_when_one_is_free(machine: Machine, namespace: str):
    for number in range(3):
        machine.apply(perl_pod(namespace, f"gpu-{number}", "sleep 1000", gpus=1))
        if number < 2:
            machine.wait_ready(namespace, f"gpu-{number}")
    unschedulable = '{.status.conditions[?(@.type=="PodScheduled")].message}'
    wait_until(
        "a verdict that no GPU is left",
        lambda: "Insufficient nvidia.com/gpu" in machine.field(namespace, "pod/gpu-2", unschedulable),
    )
    assert machine.field(namespace, "pod/gpu-2", "{.status.phase}") == "Pending"
    machine.kubectl("-n", namespace, "delete", "pod", "gpu-0", "--grace-period=0")
    machine.wait_ready(namespace, "gpu-2")


def test_nodes_say_which_gpus_they_have(machine: Machine):
    nodes = json.loads(machine.kubectl("get", "nodes", "-o", "json"))["items"]
    labels = [node["metadata"]["labels"] for node in nodes]
    assert [label["nvidia.com/gpu.product"] for label in labels] == ["NVIDIA-L4", "NVIDIA-L4"]
    assert [label["nvidia.com/gpu.count"] for label in labels] == ["1", "1"]
    assert [node["status"]["allocatable"][GPU_RESOURCE] for node in nodes] == ["1", "1"]


def test_the_audit_log_tells_who_called(machine: Machine, namespace: str):
    machine.kubectl("-n", namespace, "get", "configmaps")
    calls = [
        call
        for call in read_calls(machine.state.audit_log)
        if call.namespace == namespace and call.resource == "configmaps" and call.user == "admin"
    ]
    assert [(call.verb, call.status_code) for call in calls] == [("list", 200)]
    assert calls[0].user_agent.startswith("kubectl/")


def test_up_finds_the_cluster_that_runs(machine: Machine):
    before = machine.processes()
    machine.tool("up", "--nodes", "2", "--gpus-per-node", "1")
    assert machine.processes() == before
    assert "healthy" in machine.tool("status")


def test_up_makes_a_half_dead_cluster_whole_again():
    with separate_machine("dead") as machine:
        machine.tool("up")
        machine.processes()["containerd-1"].send(signal.SIGKILL)
        machine.processes()["kube-apiserver"].send(signal.SIGKILL)
        with pytest.raises(CommandFailed, match="containerd-1 ended, kube-apiserver ended"):
            machine.tool("status")
        machine.tool("up")
        assert "healthy" in machine.tool("status")


@pytest.mark.parametrize("killed", [None, "containerd-1"])
def test_down_leaves_nothing_behind(killed: str | None):
    with separate_machine("down") as machine:
        network_before = machine.network_state()
        machine.tool("up", "--gpus-per-node", "1")
        machine.kubectl("create", "namespace", "left")
        machine.apply(*server("left", node="node-1"))
        machine.wait_ready("left", "server")
        (node,) = nodes_of(ClusterSpec(), machine.state)
        pods = sandboxes(node)
        assert len(pods) == 1
        assert mounts_below(machine.state.root, _mountinfo())
        containers = container_ids(node)
        in_containers = _processes_in(containers)
        assert len(in_containers) == len(containers) == 2, "the sandbox and the server"
        running = [*machine.processes().values(), *in_containers]
        if killed:
            machine.processes()[killed].send(signal.SIGKILL)
        machine.tool("down")
        assert [record for record in running if record.is_running()] == []
        assert [pid for pid in all_stats() if str(machine.state.root) in _command_line(pid)] == []
        assert run(["ip", "netns", "pids", machine.network]).split() == []
        assert mounts_below(machine.state.root, _mountinfo()) == ()
        assert machine.network_state() == network_before
        assert not machine.state.root.exists()
        assert cgroups_of(containers) == ()
        assert [pod for pod in pods if shim_socket(node, pod).exists()] == []
        assert [file for pod in pods for file in Path("/var/lib/cni").glob(f"results/*{pod}*")] == []
        assert list(Path("/var/log/containers").glob("server_left_*")) == []


def test_a_foreign_cluster_is_only_asked_whether_it_answers(machine: Machine, tmp_path: Path):
    copy = tmp_path / "kubeconfig"
    copy.write_text(machine.state.kubeconfig.read_text())
    before = machine.processes()
    other_state = tmp_path / "state"
    foreign = ["env", f"KUBECONFIG={copy}", f"KNEEKEEPER_STATE={other_state}", sys.executable, "-m", "e2e.cluster"]
    assert str(copy) in machine.run(*foreign, "up")
    assert "left alone" in machine.run(*foreign, "down")
    assert "answers" in machine.run(*foreign, "status")
    assert machine.processes() == before
    assert not other_state.exists()


def _mountinfo() -> str:
    return Path("/proc/self/mountinfo").read_text()


def _processes_in(containers: Iterable[str]) -> list[ProcessRecord]:
    pids = {int(pid) for cgroup in cgroups_of(containers) for pid in (cgroup / "cgroup.procs").read_text().split()}
    return [record for pid in pids if (record := record_of("container", pid)) is not None]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
