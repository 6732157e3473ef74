"""Only etcd and an API server, in a fresh folder on free ports, for tests that need no node."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.binaries import KUBERNETES, ensure_built
from e2e.cluster.commands import clean_environment, find_program
from e2e.cluster.components import ControlPlane, render_audit_policy
from e2e.cluster.packages import ensure_packages
from e2e.cluster.pki import Authority, Identity
from e2e.cluster.processes import ProcessFolder
from e2e.cluster.start import ADMIN, is_answering, sign_control_plane

_ADDRESS = "127.0.0.1"
_START_S = 90.0
_GRACE_S = 5.0


@dataclass(frozen=True)
class ApiServer:
    """A real API server without nodes and controllers."""

    kubeconfig: Path
    audit_log: Path
    authority: Authority

    def kubeconfig_of(self, name: str, identity: Identity) -> Path:
        """A kubeconfig that acts as this user or ServiceAccount, so that RBAC can be tested."""
        return self.authority.kubeconfig(name, identity)


@contextmanager
def control_plane() -> Iterator[ApiServer]:
    """It answers while the block runs. Raises `ClusterError` when it does not start."""
    ensure_packages()
    programs = ensure_built(KUBERNETES)
    with tempfile.TemporaryDirectory(prefix="kneekeeper-api-") as name:
        root = Path(name)
        port, etcd_port, peer_port = _free_ports(3)
        authority = Authority(root / "pki", f"https://{_ADDRESS}:{port}")
        sign_control_plane(authority, _ADDRESS)
        (root / "audit-policy.yaml").write_text(render_audit_policy())
        plane = ControlPlane(
            programs=programs,
            etcd=find_program("etcd"),
            data=root / "etcd",
            authority=authority,
            address=_ADDRESS,
            api_port=port,
            etcd_port=etcd_port,
            etcd_peer_port=peer_port,
            audit_policy=root / "audit-policy.yaml",
            audit_log=root / "audit.log",
        )
        processes = ProcessFolder(root / "pids", root / "log")
        try:
            for command in (plane.etcd_command(), plane.api_server_command()):
                processes.start(command.name, command.argv, clean_environment())
            admin = authority.kubeconfig("admin", ADMIN)
            processes.wait_until(lambda: is_answering(admin), "the API server", ("etcd", "kube-apiserver"), _START_S)
            yield ApiServer(admin, plane.audit_log, authority)
        finally:
            for program in ("kube-apiserver", "etcd"):
                processes.stop(program, _GRACE_S)


def _free_ports(count: int) -> list[int]:
    """Held all at once, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind((_ADDRESS, 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
