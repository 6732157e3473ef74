"""The `kneekeeper` command, also as `kubectl kneekeeper`.

Exit code 0 is success, 1 a failure or an answer that is told, 2 wrong usage or what could not be done, 130 an
interruption; each command's help says what its codes mean.

Each command is a module of this package with `add_to(commands)`, which sets `run` on its parser: a function
that takes the parsed arguments and returns the exit code. Modules import what is slow to import inside `run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import PurePath

from kneekeeper import __version__
from kneekeeper.cli import (
    approve,
    check,
    completion,
    curve,
    diff,
    doctor,
    explain,
    finalizers,
    patch,
    pause,
    probe,
    retune,
    runs,
    simulate,
    status,
    tune,
)
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.parser import PROGRAM, CommandParser
from kneekeeper.cli.standard_streams import whoever_reads, why_unwritten

COMMANDS = (
    status,
    explain,
    curve,
    runs,
    retune,
    diff,
    approve,
    pause,
    simulate,
    doctor,
    tune,
    probe,
    patch,
    check,
    completion,
    finalizers,
)

_PLUGIN = "kubectl-kneekeeper"
"""The name under which kubectl finds it, on the PATH."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    program = f"kubectl {PROGRAM}" if PurePath(sys.argv[0]).stem == _PLUGIN else PROGRAM
    with whoever_reads():
        code: int
        try:
            arguments = parser_of(program).parse_args(argv)
            code = arguments.run(arguments)
        except CannotError as error:
            print(f"{program}: {error}", file=sys.stderr)
            code = ExitCode.CANNOT
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        except SystemExit:  # argparse's own, as after --help
            if why_unwritten() is None:
                raise
            code = ExitCode.CANNOT
        unwritten = why_unwritten()
        if unwritten is not None:
            told = f"standard output cannot be written: {unwritten}. Make room, or print it to somewhere else."
            print(f"{program}: {told}", file=sys.stderr)
            return ExitCode.CANNOT
        return code


def parser_of(program: str) -> argparse.ArgumentParser:
    """The whole command line, which the page of reference and the shells' completions are made from too.

    It is handed to the commands as `parser_of`, so that none imports this module, which imports them all.
    """
    parser = CommandParser(prog=program, description="Keeps vLLM deployments just below their knee.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.set_defaults(parser_of=parser_of)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
