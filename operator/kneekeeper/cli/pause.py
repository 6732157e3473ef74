"""`kneekeeper pause` and `kneekeeper resume`: nothing new is started, and what runs is ended; and back."""

from __future__ import annotations

import argparse
from enum import Enum

from kneekeeper.cli.cluster import Scope, add_cluster_options, in_cluster, read_profile
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.parser import Commands


class _Verb(Enum):
    PAUSE = "pause"
    RESUME = "resume"


_HELP = {
    _Verb.PAUSE: "start nothing new for a profile, and end what runs",
    _Verb.RESUME: "let a paused profile go on",
}
_DESCRIPTION = {
    _Verb.PAUSE: "Set spec.suspend: a run under way is ended and cleaned up, nothing new is started, and nothing is\n"
    "written. What was applied stays in force.",
    _Verb.RESUME: "Take spec.suspend back: the operator goes on where it would have been.",
}
_EPILOG = """\
exit codes:
  0    done, or it was so already
  2    wrong usage, a profile does not exist, or the cluster cannot be written; the message has the next step

examples:
  kneekeeper pause chat -n prod
  kneekeeper resume chat -n prod"""


def add_to(commands: Commands) -> None:
    """Both commands."""
    for verb in _Verb:
        parser = commands.add_parser(
            verb.value,
            help=_HELP[verb],
            description=_DESCRIPTION[verb],
            epilog=_EPILOG,
        )
        parser.add_argument("profiles", nargs="+", metavar="PROFILE", help="one or more ServingProfiles")
        add_cluster_options(parser)
        parser.set_defaults(run=_run, verb=verb)


def _run(arguments: argparse.Namespace) -> int:
    in_cluster(arguments, lambda scope: _set_all(scope, arguments.verb, arguments.profiles))
    return ExitCode.DONE


async def _set_all(scope: Scope, verb: _Verb, names: list[str]) -> None:
    """Each that can be; then the first that could not."""
    problems: list[CannotError] = []
    for name in names:
        try:
            print(await _set(scope, verb, name))
        except CannotError as error:
            problems.append(error)
    if problems:
        raise CannotError("; ".join(map(str, problems)))


async def _set(scope: Scope, verb: _Verb, name: str) -> str:
    from kneekeeper.domain.user_actions import RESUME, SUSPEND
    from kneekeeper.kube.resources import SERVING_PROFILES

    pauses = verb is _Verb.PAUSE
    profile = await read_profile(scope, name)
    if profile.spec.suspend is pauses:
        return f"{name}: {'paused' if pauses else 'not paused'} already."
    await scope.kube.json_patch(SERVING_PROFILES, scope.namespace, name, SUSPEND if pauses else RESUME)
    if not pauses:
        return f"{name}: goes on."
    run = profile.status.active_run
    return f"{name}: paused." + (f" The run {run} is ended and cleaned up." if run else "")
