"""`kneekeeper status`: every profile at a glance, or one against its knee."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kneekeeper.cli.cluster import Scope, add_cluster_options, in_cluster, namespaces_of, read_profile, read_profiles
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile
    from kneekeeper.cli.show.listing import Detail
    from kneekeeper.domain.views.profile import ProfileView

_DESCRIPTION = """\
Without a name: one line for each profile. With a name: what was promised, which limits are in force, where each
replica works against its knee, what the traffic looks like, what needs attention, and the next step. With -o wide also
each replica's own knee with its interval, load, capacity and speed, and which stand out."""

_EPILOG = """\
exit codes:
  0    shown
  2    wrong usage, or the cluster cannot be read; the message has the next step
  130  after Ctrl-C, with --watch

examples:
  kneekeeper status -A
  kneekeeper status -A --watch
  kneekeeper status chat -n prod
  kneekeeper status chat -n prod -o wide
  kneekeeper status -A -o json"""


def add_to(commands: Commands) -> None:
    """`kneekeeper status`."""
    parser = commands.add_parser(
        "status",
        help="show every profile at a glance, or one against its knee",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a ServingProfile (default: all)")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="until Ctrl-C: live in a terminal, elsewhere a line for each change"
    )
    add_output_option(parser, Output.WIDE, Output.NAME)
    add_cluster_options(parser, all_namespaces="profiles of all namespaces")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.profile is not None and arguments.all_namespaces:
        raise CannotError("name the profile's namespace by -n instead of -A")
    if arguments.watch:
        return _watch(arguments)
    if arguments.profile is None:
        _show_fleet(arguments)
    else:
        _show_profile(arguments)
    return ExitCode.DONE


def _show_fleet(arguments: argparse.Namespace) -> None:
    from kneekeeper.cli.output import print_as, print_lines, print_note
    from kneekeeper.cli.show.status import fleet_lines
    from kneekeeper.domain.views.fleet import fleet

    rows = fleet(in_cluster(arguments, read_profiles))

    def text(detail: Detail) -> None:
        if rows:
            print_lines(fleet_lines(rows, namespaces_of(arguments), detail))
        else:
            print_note("There are no ServingProfiles here. -A looks in all namespaces.")

    print_as(Output(arguments.output), rows, text, (_name(row.name) for row in rows))


def _show_profile(arguments: argparse.Namespace) -> None:
    from kneekeeper.cli.output import print_as, print_lines
    from kneekeeper.cli.show.status import profile_lines

    view = in_cluster(arguments, lambda scope: _view(scope, arguments.profile))

    def text(detail: Detail) -> None:
        print_lines(profile_lines(view, detail, datetime.now(UTC)))

    print_as(Output(arguments.output), view, text, [_name(view.row.name)])


def _watch(arguments: argparse.Namespace) -> int:
    if Output(arguments.output) not in (Output.TEXT, Output.WIDE):
        raise CannotError("--watch tells people; for programs: kubectl get servingprofiles --watch -o json")
    from kneekeeper.cli import status_watch

    return status_watch.run(arguments)


async def _view(scope: Scope, name: str) -> ProfileView:
    from kneekeeper.domain.views.profile import profile_view
    from kneekeeper.observe.own_resources import read_runs_of

    profile: ServingProfile = await read_profile(scope, name)
    view = profile_view(profile, await read_runs_of(scope.kube, scope.namespace, name), ())
    assert view is not None  # no run was asked for by name
    return view


def _name(profile: str) -> str:
    return f"servingprofile.kneekeeper.io/{profile}"
