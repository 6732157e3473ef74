"""One node: containerd, its pod network's configuration, and kubelet."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.commands import find_program
from e2e.cluster.components import Command
from e2e.cluster.images import PAUSE_IMAGE
from e2e.cluster.pki import Authority, Identity, ServerNames
from e2e.cluster.spec import (
    CLUSTER_DOMAIN,
    CONTROL_ADDRESS,
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    ClusterSpec,
    Node,
)


@dataclass(frozen=True)
class NodePrograms:
    """The folders of the programs a node runs."""

    kubernetes: Path
    cni: Path


def containerd_command(node: Node) -> Command:
    """The container runtime. Each node has its own: two kubelets on one would delete each other's pods."""
    return Command(
        f"containerd-{node.number}",
        (str(find_program("containerd")), "--config", str(node.folder / "containerd.toml")),
    )


def kubelet_command(node: Node, spec: ClusterSpec, programs: NodePrograms, kubeconfig: Path) -> Command:
    """Kubelet, which also labels its node with the GPUs it is to have."""
    labels = (
        (f"--node-labels={GPU_PRODUCT_LABEL}={spec.gpu_product},{GPU_COUNT_LABEL}={spec.gpus_per_node}",)
        if spec.gpus_per_node
        else ()
    )
    return Command(
        f"kubelet-{node.number}",
        (
            str(programs.kubernetes / "kubelet"),
            f"--config={node.folder / 'kubelet.yaml'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--root-dir={node.folder / 'kubelet'}",
            f"--cert-dir={node.folder / 'kubelet' / 'pki'}",
            *labels,
        ),
    )


def kubelet_identity(node: Node) -> Identity:
    """The user name and group that the Node authorizer knows."""
    return Identity(f"system:node:{node.name}", ("system:nodes",))


def kubelet_server_names(node: Node) -> ServerNames:
    """What the API server calls kubelet by when it fetches logs."""
    return ServerNames(dns=(node.name,), ips=(node.address,))


def write_configuration(node: Node, programs: NodePrograms, authority: Authority) -> None:
    """Writes what containerd, the network plugins and kubelet read."""
    (node.folder / "cni").mkdir(parents=True)
    (node.folder / "containerd.toml").write_text(render_containerd_config(node, programs))
    (node.folder / "cni" / "10-pods.conflist").write_text(json.dumps(network_config(node), indent=2))
    kubelet = yaml.safe_dump(kubelet_config(node, authority), sort_keys=False)
    (node.folder / "kubelet.yaml").write_text(kubelet)


def render_containerd_config(node: Node, programs: NodePrograms) -> str:
    """containerd's configuration: every path below the node's folder, CRI and overlayfs only."""
    return f"""version = 2
root = "{node.folder}/containerd"
state = "{node.folder}/run"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{node.socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{node.folder}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  stream_server_address = "127.0.0.1"
  # Without CAP_SYS_RESOURCE runc dies on a lower OOM score than its own.
  restrict_oom_score_adj = true
  # Below the node's folder, so that `down` finds them.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{programs.cni}"
    conf_dir = "{node.folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{node.folder}/runc"
"""


def network_config(node: Node) -> dict[str, Any]:
    """Point-to-point links, so that every packet of a pod is routed by the host.

    On a bridge the answers between pods of one node would bypass the host's connection tracking, and with it
    Service addresses, unless the kernel has br_netfilter: not every machine does.
    """
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(node.folder / "ipam"),
    }
    return {
        "cniVersion": "1.0.0",
        "name": f"pods-{node.number}",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}],
    }


def kubelet_config(node: Node, authority: Authority) -> dict[str, Any]:
    """Kubelet's configuration, for a machine without systemd and with either version of cgroups."""
    pki = authority.folder
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"kubelet-{node.number}.crt"),
        "tlsPrivateKeyFile": str(pki / f"kubelet-{node.number}.key"),
        "clusterDNS": [CONTROL_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        # Nothing outside the machine is resolved in pods.
        "resolvConf": "",
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        # kube-proxy works with nftables; kubelet's own iptables chains would be left behind.
        "makeIPTablesUtilChains": False,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "failSwapOn": False,
        # A pod that is deleted by force between two looks ends this kubelet in doPodResizeAction, with a nil pointer.
        "featureGates": {"InPlacePodVerticalScaling": False},
        # A test machine's disk is often rather full: evict only when it is really used up.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images come from archives and nobody could pull them again.
        "imageGCHighThresholdPercent": 100,
        # Tests start and stop many pods at once on an otherwise idle API server.
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    }
