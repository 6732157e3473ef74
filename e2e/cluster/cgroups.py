"""The cgroups of the containers, for a machine whose containerd could not end them itself."""

import time
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.leftovers import remove_empty_folders
from e2e.cluster.spec import Node

_PARENT = "k8s.io"
"""containerd puts containers below the name of their namespace when kubelet makes no cgroups for pods."""


def cgroup_roots() -> tuple[Path, ...]:
    """The roots of the cgroup hierarchies: one with version 2, one per controller with version 1."""
    base = Path("/sys/fs/cgroup")
    if (base / "cgroup.procs").exists():
        return (base,)
    return tuple(sorted(root for root in base.iterdir() if (root / "cgroup.procs").exists() and not root.is_symlink()))


def container_ids(node: Node) -> frozenset[str]:
    """The node's containers that have not been deleted: containerd keeps a folder for each."""
    bundles = node.folder / "run" / "io.containerd.runtime.v2.task" / "k8s.io"
    return frozenset(bundle.name for bundle in bundles.iterdir()) if bundles.is_dir() else frozenset()


def cgroups_of(containers: Iterable[str]) -> tuple[Path, ...]:
    """Those cgroups of the containers that there are now."""
    folders = (root / _PARENT / container for container in containers for root in cgroup_roots())
    return tuple(folder for folder in folders if folder.is_dir())


def remove_cgroups(containers: Iterable[str], patience_s: float) -> None:
    """Removes what runc left. A killed process stays in its cgroup until its new parent collects it."""
    deadline = time.monotonic() + patience_s
    while (left := cgroups_of(containers)) and time.monotonic() < deadline:
        for folder in left:
            remove_empty_folders(folder)
        time.sleep(0.02)
    for root in cgroup_roots():
        try:
            (root / _PARENT).rmdir()
        except OSError:
            # Not there, or another cluster's containers are in it.
            continue
