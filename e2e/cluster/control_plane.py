"""Only etcd and an API server, in a fresh folder on free ports, for tests that need no node."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from e2e.cluster.binaries import KUBERNETES, ensure_built
from e2e.cluster.commands import clean_environment, find_program
from e2e.cluster.components import ControlPlane, render_audit_policy
from e2e.cluster.packages import ensure_packages
from e2e.cluster.pki import Authority, Identity
from e2e.cluster.processes import ProcessFolder, ProcessRecord, record_of
from e2e.cluster.start import ADMIN, is_answering, sign_control_plane

_ADDRESS = "127.0.0.1"
_PREFIX = "kneekeeper-api-"
_OWNER = "owner.json"
_START_S = 90.0
_GRACE_S = 5.0
_COLLECTS_SELDOM = {"GOGC": "400"}
"""A quarter of what the server of a test works would be collecting garbage; memory there is."""
_COLLECTS_LAST = {"GOGC": "2000", "GOMEMLIMIT": "3GiB"}


class Controllers(StrEnum):
    """Which of Kubernetes' own controllers run beside the API server."""

    NONE = "none"
    """Objects stay as they are written: nothing is collected, no Deployment makes pods."""
    ALL = "all"


@dataclass(frozen=True)
class ApiServer:
    """A real API server without nodes."""

    kubeconfig: Path
    audit_log: Path
    authority: Authority

    def kubeconfig_of(self, name: str, identity: Identity) -> Path:
        """A kubeconfig that acts as this user or ServiceAccount, so that RBAC can be tested."""
        return self.authority.kubeconfig(name, identity)


@contextmanager
def control_plane(controllers: Controllers = Controllers.NONE, *, is_lean: bool = False) -> Iterator[ApiServer]:
    """It answers while the block runs; a lean one is for hours of reads and writes, and has neither an audit log nor
    caches for watches. Raises `ClusterError` when it does not start.
    """
    ensure_packages()
    programs = ensure_built(KUBERNETES)
    end_orphans()
    root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    owner = record_of("owner", os.getpid())
    assert owner is not None, "a process that runs this line is running"
    (root / "owner").write_text(owner.to_json())
    (root / "owner").rename(root / _OWNER)  # whole or not there: others look for orphans now
    try:
        yield _start(root, programs, controllers, is_lean)
    finally:
        _end(root)


def end_orphans(parent: Path | None = None) -> None:
    """Ends the control planes of test runs that were killed before they could do it themselves."""
    for owner in (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*/{_OWNER}"):
        # Test runs that start together all come by; who finds a file gone leaves the rest to who took it away.
        with suppress(FileNotFoundError):
            if not ProcessRecord.from_json(owner.read_text()).is_running():
                _end(owner.parent)


def _start(root: Path, programs: Path, controllers: Controllers, is_lean: bool) -> ApiServer:
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
        is_lean=is_lean,
    )
    processes = _processes(root)
    environment = clean_environment() | (_COLLECTS_LAST if is_lean else _COLLECTS_SELDOM)
    for command in (plane.etcd_command(), plane.api_server_command()):
        processes.start(command.name, command.argv, environment)
    admin = authority.kubeconfig("admin", ADMIN)
    processes.wait_until(lambda: is_answering(admin), "the API server", ("etcd", "kube-apiserver"), _START_S)
    if controllers is Controllers.ALL:
        manager = authority.kubeconfig("controller-manager", Identity("system:kube-controller-manager"))
        command = plane.controller_manager_command(manager)
        processes.start(command.name, command.argv, clean_environment())
    return ApiServer(admin, plane.audit_log, authority)


def _end(root: Path) -> None:
    for program in ("kube-controller-manager", "kube-apiserver", "etcd"):
        _processes(root).stop(program, _GRACE_S)
    shutil.rmtree(root, ignore_errors=True)


def _processes(root: Path) -> ProcessFolder:
    return ProcessFolder(root / "pids", root / "log")


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
