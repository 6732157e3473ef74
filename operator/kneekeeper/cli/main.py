"""The `kneekeeper` command: exit code 0 is success, 1 a failure that is told, 2 wrong usage.

Each command is a module of this package with `add_to(commands)`, which sets `run` on its parser: a function
that takes the parsed arguments and returns the exit code. Modules import what is slow to import inside `run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kneekeeper import __version__
from kneekeeper.cli import check, explain, finalizers, patch, probe, tune

COMMANDS = (tune, probe, patch, check, explain, finalizers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    arguments = _parser().parse_args(argv)
    code: int = arguments.run(arguments)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kneekeeper", description="Keeps vLLM deployments just below their knee.")
    parser.add_argument("--version", action="version", version=f"kneekeeper {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
