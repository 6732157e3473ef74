"""The API server that integration tests run against: its users, its audit log, its controllers, its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster import Controllers, control_plane
from e2e.cluster.audit import read_calls
from e2e.cluster.control_plane import ApiServer, end_orphans
from e2e.cluster.errors import CommandFailed
from e2e.cluster.pki import service_account
from e2e.cluster.processes import ProcessFolder, record_of
from e2e.cluster.start import kubectl


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with control_plane(Controllers.ALL) as server:
        kubectl(server.kubeconfig, "create", "serviceaccount", "agent", "-n", "default")
        yield server


def test_a_service_account_may_do_what_its_role_says_and_no_more(server: ApiServer):
    agent = server.kubeconfig_of("agent", service_account("default", "agent"))
    with pytest.raises(CommandFailed, match="forbidden"):
        kubectl(agent, "get", "configmaps", "-n", "default")
    kubectl(server.kubeconfig, "create", "role", "reader", "-n", "default", "--verb=list", "--resource=configmaps")
    kubectl(
        server.kubeconfig, "create", "rolebinding", "reader", "-n", "default", "--role=reader",
        "--serviceaccount=default:agent",
    )  # fmt: skip
    kubectl(agent, "get", "configmaps", "-n", "default")
    with pytest.raises(CommandFailed, match="forbidden"):
        kubectl(agent, "get", "secrets", "-n", "default")


def test_the_audit_log_has_a_call_as_soon_as_it_is_answered(server: ApiServer):
    kubectl(server.kubeconfig, "create", "namespace", "counted")
    kubectl(server.kubeconfig, "get", "pods", "-n", "counted")
    calls = [call for call in read_calls(server.audit_log) if call.namespace == "counted" and call.user == "admin"]
    assert [(call.verb, call.resource) for call in calls][-1] == ("list", "pods")
    assert calls[-1].user_agent.startswith("kubectl/")


def test_restricted_pod_security_is_enforced_where_a_namespace_asks_for_it(server: ApiServer):
    kubectl(server.kubeconfig, "create", "namespace", "strict")
    kubectl(server.kubeconfig, "label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    kubectl(server.kubeconfig, "wait", "serviceaccount/default", "-n", "strict", "--for=create", "--timeout=60s")
    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        kubectl(server.kubeconfig, "run", "web", "-n", "strict", "--image=web", "--privileged")


def test_controllers_make_the_children_of_a_deployment(server: ApiServer):
    kubectl(server.kubeconfig, "create", "deployment", "web", "--image=web", "-n", "default")
    created = "--for=jsonpath={.status.observedGeneration}=1"
    kubectl(server.kubeconfig, "wait", "deployment/web", "-n", "default", created, "--timeout=60s")
    listed = json.loads(kubectl(server.kubeconfig, "get", "replicasets", "-n", "default", "-o", "json"))
    assert [item["metadata"]["labels"]["app"] for item in listed["items"]] == ["web"]


def test_the_servers_of_a_killed_test_run_are_ended_and_those_of_a_living_one_are_not(tmp_path: Path):
    living = record_of("owner", os.getpid())
    assert living is not None
    folders = {}
    for name, owner in (("dead", replace(living, start_ticks=0)), ("living", living)):
        root = tmp_path / f"kneekeeper-api-{name}"
        folders[name] = ProcessFolder(root / "pids", root / "log")
        folders[name].start("etcd", ["/bin/sleep", "1000"], {})
        (root / "owner.json").write_text(owner.to_json())
    (dead_etcd,), (living_etcd,) = folders["dead"].records(), folders["living"].records()
    end_orphans(tmp_path)
    assert not dead_etcd.is_running()
    assert [root.name for root in tmp_path.iterdir()] == ["kneekeeper-api-living"]
    assert living_etcd.is_running()
    folders["living"].stop("etcd", grace_s=5)


def test_test_runs_that_start_together_all_live_through_the_end_of_an_orphan(tmp_path: Path):
    living = record_of("owner", os.getpid())
    assert living is not None
    root = tmp_path / "kneekeeper-api-dead"
    folder = ProcessFolder(root / "pids", root / "log")
    # It does not end when it is asked, so that all look while it is being ended.
    folder.start("etcd", ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], {})
    (etcd,) = folder.records()
    (root / "owner.json").write_text(replace(living, start_ticks=0).to_json())
    with ThreadPoolExecutor(3) as runs:
        list(runs.map(end_orphans, [tmp_path] * 3))
    assert not etcd.is_running()
    assert not root.exists()
