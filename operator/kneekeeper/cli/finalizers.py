"""`kneekeeper finalizers release`: before an uninstall, so that no object waits for an operator that is gone."""

from __future__ import annotations

import argparse
import asyncio
import sys

from kneekeeper.cli.parser import Commands

_EPILOG = """\
exit codes:
  0    nothing keeps an object any more
  1    the cluster refused, or the operator did not stop in time
  2    wrong usage"""


def add_to(commands: Commands) -> None:
    """`kneekeeper finalizers release`."""
    parser = commands.add_parser("finalizers", help="what keeps objects from going away")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    command = verbs.add_parser(
        "release",
        help="end runs, stop the operator, and take its finalizers off all profiles and runs (before an uninstall)",
        epilog=_EPILOG,
    )
    command.add_argument("--namespace", required=True, help="of the operator")
    command.add_argument("--deployment", required=True, help="of the operator")
    command.add_argument("--watch", nargs="*", default=[], help="namespaces that it works in; none: the whole cluster")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli import release
    from kneekeeper.kube.errors import KubeError

    try:
        asyncio.run(release.release(arguments.namespace, arguments.deployment, tuple(arguments.watch)))
    except (KubeError, TimeoutError) as error:
        print(f"kneekeeper: {error}", file=sys.stderr)
        return 1
    return 0
