"""`kneekeeper check`: finds, before a roll-out, arguments with which vLLM would not start."""

from __future__ import annotations

import argparse

from kneekeeper.cli.parser import Commands

_EPILOG = """\
exit codes:
  0    nothing found
  1    an argument is invalid
  2    wrong usage
  4    an engine could not be read, so that nothing is known of it

examples:
  kneekeeper check --file chat.yaml --engine-version 0.32.0"""


def add_to(commands: Commands) -> None:
    """`kneekeeper check`."""
    parser = commands.add_parser(
        "check",
        help="find arguments with which vLLM would not start",
        description="Reads every vLLM engine of the file and tells what its version would not accept.",
        epilog=_EPILOG,
    )
    parser.add_argument("--file", required=True, help="YAML or JSON; - reads standard input")
    parser.add_argument("--engine-version", metavar="V", help="such as 0.32.0; without it the image's tag")
    parser.add_argument("--json", action="store_true", help="one line of JSON per engine")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.manifest_check import run

    return run(arguments)
