"""Command lines and files of the components hold what cost time to find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from e2e.cluster.components import ControlPlane, render_audit_policy
from e2e.cluster.dns import render_corefile
from e2e.cluster.node import (
    NodePrograms,
    kubelet_command,
    kubelet_config,
    network_config,
    render_containerd_config,
    write_configuration,
)
from e2e.cluster.pki import Authority
from e2e.cluster.spec import ClusterSpec, Node

_PROGRAMS = NodePrograms(Path("/k8s"), Path("/cni"))
_AUTHORITY = Authority(Path("/s/pki"), "https://10.245.0.1:6443")
_NODE = Node(2, Path("/s/nodes/2"))


def _plane(address: str) -> ControlPlane:
    return ControlPlane(
        programs=Path("/k8s"),
        etcd=Path("/etcd"),
        data=Path("/s/etcd"),
        authority=_AUTHORITY,
        address=address,
        api_port=6443,
        etcd_port=1,
        etcd_peer_port=2,
        audit_policy=Path("/s/policy"),
        audit_log=Path("/s/audit.log"),
    )


def test_the_api_server_listens_on_one_address_and_writes_its_audit_log_before_it_answers():
    argv = _plane("10.245.0.1").api_server_command().argv
    assert {"--bind-address=10.245.0.1", "--audit-log-mode=blocking", "--audit-log-path=/s/audit.log"} <= set(argv)
    assert "--kubelet-preferred-address-types=InternalIP" in argv
    assert "--authorization-mode=Node,RBAC" in argv


def test_a_lean_api_server_writes_no_audit_log_and_keeps_no_caches_for_watches():
    argv = replace(_plane("127.0.0.1"), is_lean=True).api_server_command().argv
    assert "--watch-cache=false" in argv
    assert not [each for each in argv if "audit" in each]


@pytest.mark.parametrize(("address", "expected"), [("127.0.0.1", True), ("10.245.0.1", False)])
def test_a_loopback_api_server_is_no_endpoint_of_a_service(address: str, expected: bool):
    assert ("--endpoint-reconciler-type=none" in _plane(address).api_server_command().argv) is expected


def test_the_audit_log_leaves_out_the_clusters_own_parts_and_no_users():
    policy = yaml.safe_load(render_audit_policy())
    quiet, quiet_groups, rest = policy["rules"]
    assert quiet["level"] == quiet_groups["level"] == "None"
    assert all(user.startswith("system:") for user in quiet["users"])
    assert rest == {"level": "Metadata"}
    assert policy["omitStages"] == ["RequestReceived"]


def test_kubelet_labels_its_node_only_when_it_has_gpus():
    with_gpus = kubelet_command(_NODE, ClusterSpec(gpus_per_node=4), _PROGRAMS, Path("/s/k")).argv
    assert "--node-labels=nvidia.com/gpu.product=NVIDIA-L4,nvidia.com/gpu.count=4" in with_gpus
    without = kubelet_command(_NODE, ClusterSpec(), _PROGRAMS, Path("/s/k")).argv
    assert not any(argument.startswith("--node-labels") for argument in without)


def test_kubelet_works_without_systemd_and_with_either_version_of_cgroups():
    config = kubelet_config(_NODE, _AUTHORITY)
    assert config["failCgroupV1"] is False
    assert config["cgroupsPerQOS"] is False
    assert config["enforceNodeAllocatable"] == []
    assert config["cgroupDriver"] == "cgroupfs"


def test_every_path_of_containerd_is_below_its_nodes_folder():
    config = render_containerd_config(_NODE, _PROGRAMS)
    paths = [line.split('"')[1] for line in config.splitlines() if ' = "/' in line]
    assert len(paths) >= 6
    assert all(path.startswith("/s/nodes/2/") or path == "/cni" for path in paths)
    assert "restrict_oom_score_adj = true" in config


def test_pods_get_addresses_of_their_nodes_range():
    (plugin,) = network_config(_NODE)["plugins"]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]
    assert plugin["ipam"]["dataDir"] == "/s/nodes/2/ipam"


def test_a_nodes_files_are_written_below_its_folder(tmp_path: Path):
    node = Node(1, tmp_path / "1")
    write_configuration(node, _PROGRAMS, _AUTHORITY)
    written = {str(file.relative_to(node.folder)) for file in node.folder.rglob("*") if file.is_file()}
    assert written == {"containerd.toml", "kubelet.yaml", "cni/10-pods.conflist"}
    assert yaml.safe_load((node.folder / "kubelet.yaml").read_text())["address"] == node.address


def test_dns_answers_on_the_control_address_only():
    corefile = render_corefile(Path("/s/dns.kubeconfig"))
    assert "bind 10.245.0.1" in corefile
    assert "forward" not in corefile
