"""Locks between processes, so that two test runs on one machine do not build or start the same thing twice."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the lock file `path` while the block runs; waits for whoever holds it now.

    The kernel releases the lock when its holder dies, so a crash never blocks the next run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
