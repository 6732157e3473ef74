"""`kneekeeper diff`: what the recommendation would change in the live workload."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kneekeeper.cli.cluster import Scope, add_cluster_options, in_cluster, read_profile
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from kneekeeper.domain.views.diff import DiffView

_DESCRIPTION = """\
Compare the recommendation of a profile with its workload as it stands now, field by field. Secrets in arguments are
not shown."""

_EPILOG = """\
exit codes:
  0    the workload runs with the recommended limits
  1    it does not; the differences are shown
  2    there is no recommendation, the workload is not understood, or the cluster cannot be read

examples:
  kneekeeper diff chat -n prod
  kneekeeper diff chat -n prod && echo in force"""


def add_to(commands: Commands) -> None:
    """`kneekeeper diff`."""
    parser = commands.add_parser(
        "diff",
        help="show what the recommendation changes in the live workload",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("profile", metavar="PROFILE", help="a ServingProfile")
    add_output_option(parser)
    add_cluster_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.output import print_as, print_lines
    from kneekeeper.cli.show.diff import diff_lines

    view = in_cluster(arguments, lambda scope: _view(scope, arguments.profile))
    print_as(Output(arguments.output), view, lambda _: print_lines(diff_lines(view)))
    return ExitCode.DONE if view.live == view.recommended else ExitCode.NO


async def _view(scope: Scope, name: str) -> DiffView:
    from kneekeeper.cli.approve import no_recommendation
    from kneekeeper.domain.target import TargetProblem, resolve
    from kneekeeper.domain.views.diff import diff_view
    from kneekeeper.observe.target import read_workload

    profile = await read_profile(scope, name)
    ref, recommendation = profile.spec.target_ref, profile.status.recommendation
    if recommendation is None:
        raise CannotError(no_recommendation(profile))
    read = await read_workload(scope.kube, scope.namespace, ref)
    if read is None:
        raise CannotError(f"there is no {ref.kind} {ref.name} in namespace {scope.namespace}; correct spec.targetRef")
    target = resolve(read.view, ref)
    if isinstance(target, TargetProblem):
        raise CannotError(target.message)
    return diff_view(target, recommendation)
