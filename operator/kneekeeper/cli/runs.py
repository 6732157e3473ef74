"""`kneekeeper runs`: what was measured, why, and what came of it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kneekeeper.cli.cluster import add_cluster_options, in_cluster, namespaces_of, read_runs
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from kneekeeper.api.tuning_run import TuningRun
    from kneekeeper.cli.show.listing import Detail

_DESCRIPTION = """\
List tuning runs, newest last: what started each, how far it is or how it ended, what it chose and what it cost. With
--run: every stage of one run, what was proposed and what was certified."""

_EPILOG = """\
exit codes:
  0    shown
  2    wrong usage, or the cluster cannot be read; the message has the next step

examples:
  kneekeeper runs -A
  kneekeeper runs chat -n prod -o wide
  kneekeeper runs -n prod --run chat-2b028078"""


def add_to(commands: Commands) -> None:
    """`kneekeeper runs`."""
    parser = commands.add_parser(
        "runs",
        help="list tuning runs, or show the stages of one",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="runs of this ServingProfile (default: of all)")
    parser.add_argument("--run", dest="run_name", metavar="RUN", help="show this one with its stages")
    add_output_option(parser, Output.WIDE, Output.NAME)
    add_cluster_options(parser, all_namespaces="runs of all namespaces")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    runs = [
        run
        for run in in_cluster(arguments, read_runs)
        if arguments.profile in (None, run.spec.profile_name) and arguments.run_name in (None, run.metadata["name"])
    ]
    if arguments.run_name is None:
        _show_all(arguments, runs)
    elif len(runs) == 1:
        _show_one(arguments, runs[0])
    else:
        where = "in one namespace; give -n" if runs else "here (any more); `kneekeeper runs -A` lists them all"
        raise CannotError(f"there is no run {arguments.run_name} {where}")
    return ExitCode.DONE


def _show_all(arguments: argparse.Namespace, runs: list[TuningRun]) -> None:
    from kneekeeper.cli.output import print_as, print_lines, print_note
    from kneekeeper.cli.show.runs import run_lines
    from kneekeeper.domain.views.runs import run_rows

    rows = run_rows(runs, datetime.now(UTC))

    def text(detail: Detail) -> None:
        if rows:
            print_lines(run_lines(rows, namespaces_of(arguments), detail))
        else:
            print_note(
                "There are no runs here. -A looks in all namespaces; `kneekeeper status` tells what is waited for."
            )

    print_as(Output(arguments.output), rows, text, (_name(row.name) for row in rows))


def _show_one(arguments: argparse.Namespace, run: TuningRun) -> None:
    from kneekeeper.cli.output import print_as, print_lines
    from kneekeeper.cli.show.runs import run_summary
    from kneekeeper.cli.terminal import open_console
    from kneekeeper.domain.views.run import run_view
    from kneekeeper.local.tables import table_of_stages

    view = run_view(run)

    def text(_: Detail) -> None:
        print_lines(run_summary(view))
        if view.stages:
            console = open_console()
            console.print()
            console.print(table_of_stages(run.status.stages, console.width))

    print_as(Output(arguments.output), view, text, [_name(view.name)])


def _name(run: str) -> str:
    return f"tuningrun.kneekeeper.io/{run}"
