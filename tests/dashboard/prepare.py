"""`python -m tests.dashboard.prepare`: install Debian's Chromium where it is missing."""

from __future__ import annotations

import sys

from e2e.cluster.errors import ClusterError
from e2e.cluster.packages import ensure_packages

PROGRAMS = {"chromium": "chromium"}


def main() -> int:
    """0 when it is there; 1 with the command to type otherwise."""
    try:
        ensure_packages(PROGRAMS)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
