"""Taking a cluster down to the last mount, whatever state its parts are in."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.cgroups import container_ids, remove_cgroups
from e2e.cluster.commands import find_program, run
from e2e.cluster.errors import ClusterError, CommandFailed
from e2e.cluster.processes import ProcessFolder, all_stats, descendants, reap, record_of
from e2e.cluster.spec import Node

_GRACE_S = 5.0
_CONTAINERS_END_S = 20.0


def stop_nodes(nodes: Sequence[Node], processes: ProcessFolder) -> None:
    """Ends kubelets first, so that nothing is started again, then all containers, then containerd."""
    processes.stop("kube-proxy", _GRACE_S)
    for node in nodes:
        processes.stop(f"kubelet-{node.number}", _GRACE_S)
    for node in nodes:
        containers = container_ids(node)
        _end_tasks(node)
        processes.stop(f"containerd-{node.number}", _GRACE_S)
        _end_shims(node)
        remove_cgroups(containers, _GRACE_S)


def _end_tasks(node: Node) -> None:
    """Asks containerd to end its containers: only that way runc removes their cgroups itself."""
    ctr: list[str | Path] = [find_program("ctr"), "--connect-timeout", "2s", "-a", node.socket, "-n", "k8s.io"]
    try:
        tasks = run([*ctr, "tasks", "list", "-q"], timeout_s=_CONTAINERS_END_S).split()
        if tasks:
            run([*ctr, "tasks", "delete", "--force", *tasks], timeout_s=_CONTAINERS_END_S)
    except CommandFailed:
        # containerd is dead or a container ended meanwhile: `_end_shims` takes care of what is left.
        return


def _end_shims(node: Node) -> None:
    """Kills what is left of the node's containers: each is below a shim that names the node's socket."""
    stats = all_stats()
    shims = [pid for pid in stats if _is_shim(pid, node)]
    victims = [*(child for shim in shims for child in descendants(shim, stats)), *shims]
    records = [record for pid in victims if (record := record_of("container", pid)) is not None]
    for record in records:
        record.send(signal.SIGKILL)
    deadline = time.monotonic() + _CONTAINERS_END_S
    while any(record.is_running() for record in records):
        if time.monotonic() > deadline:
            left = ", ".join(str(record.pid) for record in records if record.is_running())
            raise ClusterError(f"processes {left} of {node.name} do not end; see what they wait for in /proc/PID/stack")
        time.sleep(0.05)
    for record in records:
        reap(record.pid)


def _is_shim(pid: int, node: Node) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"containerd-shim" in arguments[0] and str(node.socket).encode() in arguments


def mounts_below(folder: Path, mountinfo: str) -> tuple[str, ...]:
    """The mount points in `mountinfo` (as in /proc/self/mountinfo) at or below `folder`, last mounted first."""
    points = [line.split()[4] for line in mountinfo.splitlines()]
    plain = [_unescape(point) for point in points]
    return tuple(point for point in reversed(plain) if Path(point).is_relative_to(folder))


def _unescape(point: str) -> str:
    """The kernel writes blank, tab, newline and backslash as octal."""
    return point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def unmount_below(folder: Path) -> None:
    """Unmounts all that containers and kubelet mounted below a folder."""
    for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        run([find_program("umount"), "--lazy", point])
