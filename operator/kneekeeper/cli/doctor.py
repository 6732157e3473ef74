"""`kneekeeper doctor`: whether everything is in place for kneekeeper to work, and what to do where it is not."""

from __future__ import annotations

import argparse

from kneekeeper.cli.cluster import add_cluster_options, in_cluster
from kneekeeper.cli.ending import ExitCode
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands

_DESCRIPTION = """\
Look whether the cluster answers, knows kneekeeper's resources in this version, lets you use the commands, has a ready
operator with its permissions, and whether each profile is accepted and finds its workload and metrics. Each bad or
unknown answer comes with the next step. Nothing is changed."""

_EPILOG = """\
exit codes:
  0    nothing is bad
  1    something is
  2    wrong usage, or no cluster is known; the message has the next step

examples:
  kneekeeper doctor
  kneekeeper doctor -n prod -o json"""


def add_to(commands: Commands) -> None:
    """`kneekeeper doctor`."""
    parser = commands.add_parser(
        "doctor",
        help="find what keeps kneekeeper from working, and what to do",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_output_option(parser)
    add_cluster_options(parser, all_namespaces="profiles and permissions of all namespaces")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.checkup import Health, examine
    from kneekeeper.cli.output import print_as, print_lines
    from kneekeeper.cli.show.doctor import check_lines

    checks = in_cluster(arguments, examine)
    print_as(Output(arguments.output), checks, lambda _: print_lines(check_lines(checks)))
    return ExitCode.NO if any(check.health is Health.BAD for check in checks) else ExitCode.DONE
