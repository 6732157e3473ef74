"""`kneekeeper curve`: throughput and latencies of a run against its concurrency, drawn in the terminal."""

from __future__ import annotations

import argparse

from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.next_command import next_command
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands
from kneekeeper.cli.run_source import add_run_options, find_run

_DESCRIPTION = """\
Draw what a run measured: throughput with the fitted curve and its 90% band, P99 TTFT and P99 TPOT with the promised
targets, the knee, and where each replica works now, all against the number of requests in flight of one replica."""

_EPILOG = """\
exit codes:
  0    drawn
  2    wrong usage, nothing was measured yet, or the cluster cannot be read; the message has the next step

examples:
  kneekeeper curve chat -n prod
  kneekeeper curve --run-file run.yaml -o json"""


def add_to(commands: Commands) -> None:
    """`kneekeeper curve`."""
    parser = commands.add_parser(
        "curve",
        help="draw throughput and latency against concurrency, with the knee",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_output_option(parser)
    add_run_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.api.quantities import counted
    from kneekeeper.cli.output import ink, print_data, print_note, width
    from kneekeeper.cli.show.curve import LEAST_LEVELS, curve_text
    from kneekeeper.domain.views.curve import curve_view

    found = find_run(arguments, lambda run: len(curve_view(run, None).levels) >= LEAST_LEVELS)
    view = curve_view(found.run, found.profile)
    output = Output(arguments.output)
    if output is not Output.TEXT:
        print_data(view, output)
        return ExitCode.DONE
    if len(view.levels) < LEAST_LEVELS:
        lists = f"; {next_command('runs', found.profile)} lists them" if found.profile is not None else ""
        raise CannotError(
            f"{view.run} has measured {counted(len(view.levels), 'level')} of its ramp; a curve takes "
            f"{LEAST_LEVELS}. Name another one by --run{lists}"
        )
    if found.newer is not None:
        print_note(f"{found.newer} is newer and has too few levels for a curve; this is {view.run}.")
    print(curve_text(view, width(), ink()))
    return ExitCode.DONE
