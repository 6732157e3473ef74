"""Where the tool keeps things: a cache that outlives clusters, and the state of the one that runs."""

import os
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

_LONGEST_STATE_DIR_CHARS = 70
"""Unix socket paths end at 107 characters, and containerd adds up to 35 below the state folder."""


def cache_dir() -> Path:
    """The cache: KNEEKEEPER_CACHE, by default kneekeeper in the user's cache folder."""
    return Path(os.environ.get("KNEEKEEPER_CACHE") or Path.home() / ".cache" / "kneekeeper").absolute()


@dataclass(frozen=True)
class State:
    """The folder of one running cluster and the files in it."""

    root: Path

    @classmethod
    def default(cls) -> "State":
        """KNEEKEEPER_STATE, by default `state` in the cache. Raises `ClusterError` when the path is too long."""
        root = Path(os.environ.get("KNEEKEEPER_STATE") or cache_dir() / "state").absolute()
        if len(str(root)) > _LONGEST_STATE_DIR_CHARS:
            raise ClusterError(
                f"the state folder's path is longer than {_LONGEST_STATE_DIR_CHARS} characters, too long for "
                "Unix sockets below it; set KNEEKEEPER_STATE to a shorter path"
            )
        return cls(root)

    @property
    def lock(self) -> Path:
        """Beside the folder, since `down` removes the folder itself."""
        return self.root.with_name(self.root.name + ".lock")

    @property
    def record(self) -> Path:
        """What runs here, see `record.py`."""
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def log(self) -> Path:
        """One log per process."""
        return self.root / "log"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON event a line."""
        return self.log / "audit.log"

    @property
    def pids(self) -> Path:
        """One record per started process."""
        return self.root / "pids"

    @property
    def pki(self) -> Path:
        """Keys, certificates and the components' kubeconfigs."""
        return self.root / "pki"

    @property
    def nodes(self) -> Path:
        """One folder per node."""
        return self.root / "nodes"

    @property
    def images(self) -> Path:
        """The archives that every node gets."""
        return self.root / "images"
