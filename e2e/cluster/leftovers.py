"""What kubelet and containerd leave outside the state folder, whatever their configuration says."""

import os
import shutil
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from e2e.cluster.paths import State
from e2e.cluster.spec import Node

_KUBELET = Path("/var/lib/kubelet")
_CONTAINER_LOGS = Path("/var/log/containers")
_CNI_RESULTS = Path("/var/lib/cni/results")
_SHIM_SOCKETS = Path("/run/containerd/s")

SHARED_FOLDERS = (_KUBELET, _CNI_RESULTS.parent, _SHIM_SOCKETS.parent, _CONTAINER_LOGS)
"""Another cluster on this machine may use them too: only what is known to be this cluster's is removed."""


def folders_to_make(shared: Iterable[Path] = SHARED_FOLDERS) -> tuple[Path, ...]:
    """Those of the shared folders that are not there before the cluster starts: `down` removes them again."""
    return tuple(folder for folder in shared if not folder.exists())


def remove_leftovers(state: State, nodes: Sequence[Node], made: Iterable[Path]) -> None:
    """Removes this cluster's files from the shared folders, and those of the folders in `made` that are then empty."""
    if _CONTAINER_LOGS.is_dir():
        for link in _CONTAINER_LOGS.iterdir():
            if link.is_symlink() and Path(os.readlink(link)).is_relative_to(state.root):
                link.unlink()
    for node in nodes:
        for sandbox in sandboxes(node):
            shim_socket(node, sandbox).unlink(missing_ok=True)
            for result in _CNI_RESULTS.glob(f"*-{sandbox}-*"):
                result.unlink()
    for folder in made:
        if folder == _KUBELET:
            shutil.rmtree(folder / "device-plugins", ignore_errors=True)
        remove_empty_folders(folder)


def sandboxes(node: Node) -> frozenset[str]:
    """The pods' sandboxes on a node that hold an address: each address is a file whose first line names its owner."""
    reserved = (file for file in (node.folder / "ipam").glob("*/*.*.*.*") if file.is_file())
    return frozenset(lines[0].strip() for file in reserved if (lines := file.read_text().splitlines()))


def shim_socket(node: Node, sandbox: str) -> Path:
    """Where a sandbox's shim listens: containerd names the socket by a hash of whose it is."""
    return _SHIM_SOCKETS / sha256(f"{node.socket}/k8s.io/{sandbox}".encode()).hexdigest()


def remove_empty_folders(top: Path) -> bool:
    """Removes the empty folders at and below `top`, deepest first; whether nothing is left.

    It removes cgroups as well: the files in them are not real and go with them.
    """
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            continue
    return not top.exists()
