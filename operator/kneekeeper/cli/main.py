"""The `kneekeeper` command: exit code 0 is success, 1 a failure that is told, 2 wrong usage."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from kneekeeper import __version__
from kneekeeper.cli.finalizers import release
from kneekeeper.kube.errors import KubeError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        asyncio.run(release(arguments.namespace, arguments.deployment, tuple(arguments.watch)))
    except (KubeError, TimeoutError) as error:
        print(f"kneekeeper: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kneekeeper", description="Keeps vLLM deployments just below their knee.")
    parser.add_argument("--version", action="version", version=f"kneekeeper {__version__}")
    groups = parser.add_subparsers(required=True, metavar="COMMAND")
    finalizers = groups.add_parser("finalizers", help="what keeps objects from going away")
    verbs = finalizers.add_subparsers(required=True, metavar="VERB")
    command = verbs.add_parser(
        "release",
        help="end runs, stop the operator, and take its finalizers off all profiles and runs (before an uninstall)",
    )
    command.add_argument("--namespace", required=True, help="of the operator")
    command.add_argument("--deployment", required=True, help="of the operator")
    command.add_argument("--watch", nargs="*", default=[], help="namespaces that it works in; none: the whole cluster")
    return parser


if __name__ == "__main__":
    sys.exit(main())
