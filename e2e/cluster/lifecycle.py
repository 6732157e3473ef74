"""Up, down and status of the machine's cluster, and the handle that tests hold."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import cleanup, network
from e2e.cluster.binaries import ALL_RECIPES, ensure_built
from e2e.cluster.errors import ClusterError
from e2e.cluster.images import import_archive
from e2e.cluster.leftovers import remove_leftovers
from e2e.cluster.locks import exclusive
from e2e.cluster.network import check_machine
from e2e.cluster.packages import ensure_packages
from e2e.cluster.paths import State
from e2e.cluster.processes import ProcessFolder
from e2e.cluster.progress import told
from e2e.cluster.record import Phase, read_record
from e2e.cluster.spec import ClusterSpec, nodes_of
from e2e.cluster.start import is_answering, kubectl, ready_nodes, start

_GRACE_S = 10.0
_CONTROL_PLANE = ("coredns", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers."""

    kubeconfig: Path
    state: State | None
    """None for a cluster that KUBECONFIG names: it is used, never changed."""
    spec: ClusterSpec

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs kubectl as administrator; its output. Raises `CommandFailed`."""
        return kubectl(self.kubeconfig, *arguments, stdin=stdin)

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self._own().audit_log

    def load_image(self, archive: Path) -> None:
        """Makes a docker-archive's image known on every node."""
        import_archive(archive, nodes_of(self.spec, self._own()))

    def down(self) -> None:
        """Takes it away."""
        if self.state is not None:
            stop(self.state)

    def _own(self) -> State:
        if self.state is None:
            raise ClusterError(
                "images and audit logs of a cluster that KUBECONFIG names are out of reach; unset KUBECONFIG to let "
                "this tool start its own cluster"
            )
        return self.state


def prepare() -> None:
    """Installs the packages and builds the programs that a cluster needs."""
    ensure_packages()
    _build()


def _build() -> None:
    for recipe in ALL_RECIPES:
        ensure_built(recipe)


def ensure_up(spec: ClusterSpec) -> Cluster:
    """The running cluster if it has this shape and answers, else a new one. KUBECONFIG's cluster goes first."""
    foreign = foreign_kubeconfig()
    if foreign is not None:
        if not is_answering(foreign):
            raise ClusterError(f"the cluster of KUBECONFIG={foreign} does not answer; correct it or unset KUBECONFIG")
        return Cluster(foreign, None, spec)
    state = State.default()
    with exclusive(state.lock):
        if check(state) != Health.of(spec):
            stop(state)
            ensure_packages()
            check_machine()  # before builds, which take minutes
            _build()
            with told(f"Starting a cluster: {spec}."):
                start(spec, state)
    return Cluster(state.kubeconfig, state, spec)


def foreign_kubeconfig() -> Path | None:
    """The cluster to use in place of an own one: KUBECONFIG, unless it names this tool's own cluster."""
    named = os.environ.get("KUBECONFIG")
    if not named or Path(named).absolute() == State.default().kubeconfig:
        return None
    return Path(named)


@dataclass(frozen=True)
class Health:
    """How a cluster of this tool is."""

    spec: ClusterSpec | None
    """None when none was started."""
    ended: tuple[str, ...] = ()
    """Its processes that do not run."""
    complaint: str = ""
    """What else is wrong; empty when nothing is."""

    @classmethod
    def of(cls, spec: ClusterSpec) -> Health:
        """A healthy cluster of that shape."""
        return cls(spec)

    def __str__(self) -> str:
        if self.spec is None:
            return "no cluster runs; start one with `python -m e2e.cluster up`"
        troubles = [*(f"{name} ended" for name in self.ended), *([self.complaint] if self.complaint else [])]
        return f"{self.spec}: {', '.join(troubles) or 'healthy'}"


def check(state: State) -> Health:
    """Looks at the processes, the API server and the nodes of the cluster in a state folder."""
    record = read_record(state)
    if record is None:
        return Health(None)
    if record.phase != Phase.READY:
        return Health(record.spec, complaint="its start was not finished")
    records = ProcessFolder(state.pids, state.log).records()
    ended = tuple(process.name for process in records if not process.is_running())
    if not is_answering(state.kubeconfig):
        return Health(record.spec, ended, "the API server does not answer")
    missing = {node.name for node in nodes_of(record.spec, state)} - ready_nodes(state.kubeconfig)
    return Health(record.spec, ended, f"{', '.join(sorted(missing))} not Ready" if missing else "")


def stop(state: State) -> None:
    """Ends all that runs in the state folder, and removes all that it left on the machine."""
    record = read_record(state)
    if record is None:
        shutil.rmtree(state.root, ignore_errors=True)
        return
    processes = ProcessFolder(state.pids, state.log)
    nodes = nodes_of(record.spec, state)
    cleanup.stop_nodes(nodes, processes)
    for name in _CONTROL_PLANE:
        processes.stop(name, _GRACE_S)
    cleanup.unmount_below(state.root)
    network.tear_down(record.previous_forwarding)
    remove_leftovers(state, nodes, record.made_folders)
    shutil.rmtree(state.root, ignore_errors=True)
