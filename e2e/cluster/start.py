"""Brings a cluster up: control plane, network, nodes, DNS, GPUs, images."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection

import yaml

from e2e.cluster.binaries import CNI, COREDNS, KUBERNETES, PAUSE, ensure_built
from e2e.cluster.commands import clean_environment, find_program, run
from e2e.cluster.components import Command, ControlPlane, render_audit_policy
from e2e.cluster.dns import DNS_ACCESS, DNS_IDENTITY, READY_PORT, dns_command, render_corefile
from e2e.cluster.errors import CommandFailed
from e2e.cluster.images import hostroot_image, import_archive, pause_image, write_archive
from e2e.cluster.leftovers import folders_to_make
from e2e.cluster.network import forwarding, set_up
from e2e.cluster.node import (
    NodePrograms,
    containerd_command,
    kubelet_command,
    kubelet_identity,
    kubelet_server_names,
    write_configuration,
)
from e2e.cluster.paths import State
from e2e.cluster.pki import Authority, Identity, subject_names
from e2e.cluster.processes import ProcessFolder
from e2e.cluster.record import ClusterRecord, Phase, write_record
from e2e.cluster.spec import (
    API_PORT,
    CONTROL_ADDRESS,
    GPU_RESOURCE,
    KUBERNETES_SERVICE_ADDRESS,
    POD_RANGE,
    ClusterSpec,
    Node,
    nodes_of,
)

ADMIN = Identity("admin", ("system:masters",))
_CONTROL_PLANE_S = 90.0
_NODE_S = 90.0
_SERVICES_S = 60.0
_ETCD_PORT, _ETCD_PEER_PORT = 12379, 12380


def kubectl(state_kubeconfig: object, *arguments: str, stdin: str | None = None) -> str:
    """Runs the kubectl of the cluster's own version."""
    program = ensure_built(KUBERNETES) / "kubectl"
    return run([program, "--kubeconfig", str(state_kubeconfig), *arguments], stdin=stdin, timeout_s=600)


def start(spec: ClusterSpec, state: State) -> None:
    """From nothing to Ready nodes. Raises `ClusterError`; what was started is in the record for `stop`."""
    programs = NodePrograms(ensure_built(KUBERNETES), ensure_built(CNI))
    record = ClusterRecord(spec, Phase.STARTING, forwarding(), folders_to_make())
    write_record(state, record)
    nodes = nodes_of(spec, state)
    set_up(nodes)
    processes = ProcessFolder(state.pids, state.log)
    authority = Authority(state.pki, f"https://{CONTROL_ADDRESS}:{API_PORT}")
    _start_control_plane(state, processes, authority, programs)
    for node in nodes:
        _start_node(node, spec, processes, authority, programs)
    _start_proxy(state, processes, authority, programs)
    _start_dns(state, processes, authority)
    _load_images(state, nodes)
    _await_nodes(state, processes, nodes)
    for node in nodes:
        _advertise_gpus(state, spec, node)
    _await_services(state, processes)
    write_record(state, record.ready())


def sign_control_plane(authority: Authority, address: str) -> None:
    """Everything that an API server presents or trusts."""
    authority.create()
    identity = Identity("kube-apiserver")
    authority.sign("kube-apiserver", identity, subject_names((address, KUBERNETES_SERVICE_ADDRESS)))
    authority.sign("kubelet-client", Identity("kubelet-client", ("system:masters",)))


def _start_control_plane(state: State, processes: ProcessFolder, authority: Authority, programs: NodePrograms) -> None:
    sign_control_plane(authority, CONTROL_ADDRESS)
    policy = state.root / "audit-policy.yaml"
    policy.write_text(render_audit_policy())
    state.log.mkdir(parents=True, exist_ok=True)
    plane = ControlPlane(
        programs=programs.kubernetes,
        etcd=find_program("etcd"),
        data=state.root / "etcd",
        authority=authority,
        address=CONTROL_ADDRESS,
        api_port=API_PORT,
        etcd_port=_ETCD_PORT,
        etcd_peer_port=_ETCD_PEER_PORT,
        audit_policy=policy,
        audit_log=state.audit_log,
    )
    _run(processes, plane.etcd_command())
    _run(processes, plane.api_server_command())
    admin = authority.kubeconfig("admin", ADMIN)
    state.kubeconfig.touch(mode=0o600)
    state.kubeconfig.write_text(admin.read_text())
    processes.wait_until(
        lambda: is_answering(state.kubeconfig), "the API server", ("etcd", "kube-apiserver"), _CONTROL_PLANE_S
    )
    manager = authority.kubeconfig("controller-manager", Identity("system:kube-controller-manager"))
    scheduler = authority.kubeconfig("scheduler", Identity("system:kube-scheduler"))
    _run(processes, plane.controller_manager_command(manager))
    _run(processes, plane.scheduler_command(scheduler))


def is_answering(kubeconfig: object) -> bool:
    """Whether the API server says that it is ready."""
    try:
        return kubectl(kubeconfig, "get", "--raw", "/readyz", "--request-timeout=5s").strip() == "ok"
    except CommandFailed:
        return False


def _start_node(
    node: Node, spec: ClusterSpec, processes: ProcessFolder, authority: Authority, programs: NodePrograms
) -> None:
    authority.sign(f"kubelet-{node.number}", kubelet_identity(node), kubelet_server_names(node))
    write_configuration(node, programs, authority)
    _run(processes, containerd_command(node))
    kubeconfig = authority.kubeconfig(f"kubelet-{node.number}-client", kubelet_identity(node))
    processes.wait_until(node.socket.exists, "containerd's socket", (f"containerd-{node.number}",), 30)
    _run(processes, kubelet_command(node, spec, programs, kubeconfig))


def _start_proxy(state: State, processes: ProcessFolder, authority: Authority, programs: NodePrograms) -> None:
    """One for all nodes: they share the machine's kernel, and with it its rules."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_RANGE,
        "bindAddress": CONTROL_ADDRESS,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "hostnameOverride": "node-1",
        "clientConnection": {"kubeconfig": str(authority.kubeconfig("proxy", Identity("system:kube-proxy")))},
        "conntrack": {"maxPerCore": 0},
    }
    target = state.root / "kube-proxy.yaml"
    target.write_text(yaml.safe_dump(config))
    _run(processes, Command("kube-proxy", (str(programs.kubernetes / "kube-proxy"), f"--config={target}")))


def _start_dns(state: State, processes: ProcessFolder, authority: Authority) -> None:
    program = ensure_built(COREDNS) / "coredns"
    kubectl(state.kubeconfig, "apply", "-f", "-", stdin=DNS_ACCESS)
    corefile = state.root / "Corefile"
    corefile.write_text(render_corefile(authority.kubeconfig("dns", DNS_IDENTITY)))
    _run(processes, dns_command(program, corefile))


def _load_images(state: State, nodes: Sequence[Node]) -> None:
    state.images.mkdir(parents=True, exist_ok=True)
    contents = {"pause": pause_image(ensure_built(PAUSE) / "pause"), "hostroot": hostroot_image()}
    for name, content in contents.items():
        archive = state.images / f"{name}.tar"
        write_archive(content, archive)
        import_archive(archive, nodes)


def _await_nodes(state: State, processes: ProcessFolder, nodes: Sequence[Node]) -> None:
    expected = {node.name for node in nodes}
    kubelets = tuple(f"kubelet-{node.number}" for node in nodes)
    processes.wait_until(lambda: ready_nodes(state.kubeconfig) == expected, "Ready nodes", kubelets, _NODE_S)


def ready_nodes(kubeconfig: object) -> set[str]:
    """The names of the nodes whose kubelet says that they can run pods."""
    found = json.loads(kubectl(kubeconfig, "get", "nodes", "-o", "json"))["items"]
    return {
        node["metadata"]["name"]
        for node in found
        for condition in node["status"].get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }


def _await_services(state: State, processes: ProcessFolder) -> None:
    """What the first pod needs besides a node: its ServiceAccount, Service addresses and names."""

    def account_exists() -> bool:
        accounts = kubectl(state.kubeconfig, "get", "serviceaccounts", "-n", "default", "-o", "name")
        return "serviceaccount/default" in accounts.split()

    def service_answers() -> bool:
        try:
            socket.create_connection((KUBERNETES_SERVICE_ADDRESS, 443), timeout=1).close()
        except OSError:
            return False
        return True

    waits = (
        (account_exists, "the default ServiceAccount", "kube-controller-manager"),
        (service_answers, "the Service of the API server", "kube-proxy"),
        (names_resolve, "Service names", "coredns"),
    )
    for ready, what, process in waits:
        processes.wait_until(ready, what, (process,), _SERVICES_S)


def names_resolve() -> bool:
    """Whether the DNS server has read the cluster's Services."""
    connection = HTTPConnection(CONTROL_ADDRESS, READY_PORT, timeout=1)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _advertise_gpus(state: State, spec: ClusterSpec, node: Node) -> None:
    """As an extended resource. Kubelet derives allocatable from capacity by itself, but takes seconds to."""
    if not spec.gpus_per_node:
        return
    resource, count = GPU_RESOURCE.replace("/", "~1"), str(spec.gpus_per_node)
    paths = (f"/status/capacity/{resource}", f"/status/allocatable/{resource}")
    patch = json.dumps([{"op": "add", "path": path, "value": count} for path in paths])
    kubectl(state.kubeconfig, "patch", "node", node.name, "--subresource=status", "--type=json", "-p", patch)


def _run(processes: ProcessFolder, command: Command) -> None:
    processes.start(command.name, command.argv, clean_environment())
