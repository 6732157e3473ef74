"""Debian packages that the cluster needs, installed without starting the services they bring."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.commands import run, search_path
from e2e.cluster.errors import ClusterError
from e2e.cluster.locks import exclusive
from e2e.cluster.paths import cache_dir
from e2e.cluster.progress import told

CLUSTER_PROGRAMS: Mapping[str, str] = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nft": "nftables",
    "openssl": "openssl",
    "umount": "mount",
}
"""The programs that the cluster runs and the packages that bring them."""

_POLICY = Path("/usr/sbin/policy-rc.d")
_FORBID_STARTS = "#!/bin/sh\nexit 101\n"
"""invoke-rc.d asks this script before it starts a service; 101 means that policy forbids it."""


def missing_packages(programs: Mapping[str, str] = CLUSTER_PROGRAMS) -> tuple[str, ...]:
    """The packages of those programs that are not on this machine."""
    return tuple(package for program, package in programs.items() if shutil.which(program, path=search_path()) is None)


def ensure_packages(programs: Mapping[str, str] = CLUSTER_PROGRAMS) -> None:
    """Installs what is missing, as root; raises `ClusterError` with the command to type otherwise."""
    missing = missing_packages(programs)
    if not missing:
        return
    command = f"apt-get install --no-install-recommends {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise ClusterError(f"{', '.join(missing)} must be installed; this machine has no apt-get to do it")
    if os.geteuid() != 0:
        raise ClusterError(f"{', '.join(missing)} must be installed; run `sudo {command}`")
    with exclusive(cache_dir() / "packages.lock"):
        install(missing)


def install(packages: Sequence[str]) -> None:
    """Installs packages as root without starting a service of theirs."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with services_stay_stopped(), told(f"Installing Debian packages, without starting them: {' '.join(packages)}."):
        run(["apt-get", "update", "-q"], extra_env=quiet)
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], extra_env=quiet)


@contextmanager
def services_stay_stopped(policy: Path = _POLICY) -> Iterator[None]:
    """Forbids package scripts to start services while the block runs. A policy that is there already stays."""
    if policy.exists():
        yield
        return
    policy.write_text(_FORBID_STARTS)
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()
