"""The control plane's programs: their command lines and files, as values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.pki import Authority
from e2e.cluster.spec import SERVICE_RANGE

_QUIET_USERS = (
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-proxy",
    "system:kube-scheduler",
    "system:kube-dns",
)
_QUIET_GROUPS = ("system:nodes", "system:serviceaccounts:kube-system")
"""The cluster's own parts: nobody counts their calls, and they would be most of the audit log."""

_AUDIT_LOG_MAX_MIB = 4096
"""Larger than any test writes: a log that rotates in the middle of a count would lose calls."""


@dataclass(frozen=True)
class Command:
    """A program to start, under the name of its log."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class ControlPlane:
    """Where one control plane keeps things and listens."""

    programs: Path
    """The folder of the Kubernetes programs."""
    etcd: Path
    data: Path
    """etcd's data folder."""
    authority: Authority
    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    audit_policy: Path
    audit_log: Path
    is_lean: bool = False
    """Without an audit log and without caches for watches: of a server whose one client only reads and writes."""

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:{self.api_port}"

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"

    def etcd_command(self) -> Command:
        """etcd without fsync: what a test cluster holds need not survive a power cut, and disks are slow."""
        peer = f"http://127.0.0.1:{self.etcd_peer_port}"
        return Command(
            "etcd",
            (
                str(self.etcd),
                f"--data-dir={self.data}",
                f"--listen-client-urls={self.etcd_url}",
                f"--advertise-client-urls={self.etcd_url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
            ),
        )

    def api_server_command(self) -> Command:
        """The API server, reachable at `address` only. PodSecurity is among its default admission plugins."""
        pki = self.authority.folder
        # A loopback address cannot be the endpoint of a Service: then nobody reaches it through one anyway.
        loopback = ("--endpoint-reconciler-type=none",) if self.address.startswith("127.") else ()
        audit = (
            f"--audit-policy-file={self.audit_policy}",
            f"--audit-log-path={self.audit_log}",
            f"--audit-log-maxsize={_AUDIT_LOG_MAX_MIB}",
            # Blocking: a call's line is in the log before its caller has the answer.
            "--audit-log-mode=blocking",
        )
        return Command(
            "kube-apiserver",
            (
                str(self.programs / "kube-apiserver"),
                f"--etcd-servers={self.etcd_url}",
                f"--bind-address={self.address}",
                f"--advertise-address={self.address}",
                f"--secure-port={self.api_port}",
                f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
                f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
                f"--client-ca-file={self.authority.certificate}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={self.authority.service_account_key}",
                f"--service-account-signing-key-file={self.authority.service_account_key}",
                f"--service-cluster-ip-range={SERVICE_RANGE}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                f"--kubelet-certificate-authority={self.authority.certificate}",
                f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
                f"--kubelet-client-key={pki / 'kubelet-client.key'}",
                # Node names resolve nowhere on this machine; without this `kubectl logs` and `exec` fail.
                "--kubelet-preferred-address-types=InternalIP",
                *(("--watch-cache=false",) if self.is_lean else audit),
                *loopback,
            ),
        )

    def controller_manager_command(self, kubeconfig: Path) -> Command:
        """All controllers; pod ranges are not among its work, since each node's network is configured here."""
        return Command(
            "kube-controller-manager",
            (
                str(self.programs / "kube-controller-manager"),
                f"--kubeconfig={kubeconfig}",
                f"--service-account-private-key-file={self.authority.service_account_key}",
                f"--root-ca-file={self.authority.certificate}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
            ),
        )

    def scheduler_command(self, kubeconfig: Path) -> Command:
        """The scheduler."""
        return Command(
            "kube-scheduler",
            (
                str(self.programs / "kube-scheduler"),
                f"--kubeconfig={kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
            ),
        )


def render_audit_policy() -> str:
    """Who called what when, without bodies, once per call, without the cluster's own parts."""
    policy: dict[str, Any] = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": list(_QUIET_USERS)},
            {"level": "None", "userGroups": list(_QUIET_GROUPS)},
            {"level": "Metadata"},
        ],
    }
    return yaml.safe_dump(policy, sort_keys=False)
