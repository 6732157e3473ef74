"""The cluster's DNS server: CoreDNS as a process on the control plane's address."""

from pathlib import Path

from e2e.cluster.components import Command
from e2e.cluster.pki import Identity
from e2e.cluster.spec import CLUSTER_DOMAIN, CONTROL_ADDRESS

DNS_IDENTITY = Identity("system:kube-dns")
READY_PORT = 8181

DNS_ACCESS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kneekeeper:cluster-dns}
rules:
- apiGroups: [""]
  resources: [services, namespaces, pods]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kneekeeper:cluster-dns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kneekeeper:cluster-dns}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:kube-dns"}]
"""
"""What the DNS server must read to answer for Services and pods."""


def render_corefile(kubeconfig: Path) -> str:
    """Answers for the cluster's own names and for no others: pods ask nobody outside this machine."""
    return f"""{CLUSTER_DOMAIN} in-addr.arpa {{
    bind {CONTROL_ADDRESS}
    errors
    ready {CONTROL_ADDRESS}:{READY_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
    cache 5
}}
"""


def dns_command(program: Path, corefile: Path) -> Command:
    """CoreDNS with its configuration."""
    return Command("coredns", (str(program), "-conf", str(corefile)))
