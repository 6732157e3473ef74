"""`kneekeeper completion`: a script that lets a shell complete commands and options."""

from __future__ import annotations

import argparse

from kneekeeper.cli.ending import ExitCode
from kneekeeper.cli.parser import PROGRAM, Commands

_DESCRIPTION = """\
Print a script for your shell that completes commands, options and their values. It is made from the commands of this
version: load it anew after an upgrade."""

_EPILOG = """\
exit codes:
  0    printed
  2    wrong usage

how to load it:
  bash  kneekeeper completion bash > ~/.local/share/bash-completion/completions/kneekeeper
  zsh   kneekeeper completion zsh > "${fpath[1]}/_kneekeeper"
  fish  kneekeeper completion fish > ~/.config/fish/completions/kneekeeper.fish"""

SHELLS = ("bash", "zsh", "fish")


def add_to(commands: Commands) -> None:
    """`kneekeeper completion`."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(arguments.parser_of(PROGRAM), arguments.shell))
    return ExitCode.DONE
