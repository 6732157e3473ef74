"""`kneekeeper retune`: ask for a run now, and watch it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kneekeeper.cli.cluster import MOST_TROUBLES, Scope, add_cluster_options, connected, read_profile
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.next_command import next_command
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile
    from kneekeeper.api.tuning_run import RunOutcome, TuningRun

POLL_S = 2.0
_DESCRIPTION = """\
Ask the operator to measure a profile's workload again, though nothing has changed. A run that is under way is not
disturbed; the new one follows it. With --wait its stages are told as they are decided."""

_EPILOG = """\
exit codes:
  0    asked for; with --wait: the run ended with a certified setting, or found the present one good enough
  1    with --wait: the run ended otherwise; the message has the next step
  2    wrong usage, or the cluster cannot be written; the message has the next step
  130  after Ctrl-C while waiting; the run goes on in the cluster

examples:
  kneekeeper retune chat -n prod
  kneekeeper retune chat -n prod --wait"""


def add_to(commands: Commands) -> None:
    """`kneekeeper retune`."""
    parser = commands.add_parser(
        "retune",
        help="measure a workload again now",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("profile", metavar="PROFILE", help="a ServingProfile")
    parser.add_argument("--wait", action="store_true", help="until the run has ended, and tell its stages")
    add_cluster_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.terminal import Interrupted, run_until_signal

    try:
        return run_until_signal(connected(arguments, lambda scope: _retune(scope, arguments)))
    except Interrupted:
        print("Interrupted; the run goes on in the cluster. `kneekeeper runs` shows it.")
        return ExitCode.INTERRUPTED


async def _retune(scope: Scope, arguments: argparse.Namespace) -> int:
    from kneekeeper.domain.user_actions import retuning
    from kneekeeper.kube.resources import SERVING_PROFILES
    from kneekeeper.observe.own_resources import read_runs_of

    name = arguments.profile
    profile = await read_profile(scope, name)
    if profile.spec.suspend:
        raise CannotError(f"{name} is suspended, so nothing is started; {next_command('resume', profile)} first")
    known = {str(run.metadata["name"]) for run in await read_runs_of(scope.kube, scope.namespace, name)}
    await scope.kube.json_patch(SERVING_PROFILES, scope.namespace, name, retuning(profile.metadata, datetime.now(UTC)))
    if not arguments.wait:
        lists = next_command("runs", profile)
        print(f"{name}: asked for a run. `kneekeeper retune --wait` follows one, {lists} lists them.")
        return ExitCode.DONE
    return await follow(scope, name, known)


async def follow(
    scope: Scope, profile: str, known: set[str], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> int:
    """Tell the first run of the profile that is not known, stage by stage; its outcome as exit code.

    Raises KubeErrors; an API server that is in trouble is asked again for a while.
    """
    from kneekeeper.cli.show.runs import GOOD_OUTCOMES
    from kneekeeper.cli.terminal import open_console
    from kneekeeper.kube.errors import ServerTrouble
    from kneekeeper.local.audience import Narrator
    from kneekeeper.observe.own_resources import read_runs_of

    console, said, troubles = open_console(), "", 0
    with Narrator(console, wording=str) as narrator:
        while True:
            try:
                runs = await read_runs_of(scope.kube, scope.namespace, profile)
                waits = _waits_for(await read_profile(scope, profile))
            except ServerTrouble as error:
                troubles += 1
                if troubles > MOST_TROUBLES:
                    raise
                await sleep(error.retry_after_s)
                continue
            troubles = 0
            new: TuningRun | None = next((run for run in runs if run.metadata["name"] not in known), None)
            if new is not None:
                narrator.show(new.status, None)
                outcome: RunOutcome | None = new.status.outcome
                if new.status.finished_at is not None and outcome is not None:
                    break
            elif waits != said:
                console.print(waits, highlight=False, markup=False, soft_wrap=True)
                said = waits
            await sleep(POLL_S)
    console.print(f"{new.metadata['name']} ended: {outcome}.", highlight=False, markup=False, soft_wrap=True)
    return ExitCode.DONE if outcome in GOOD_OUTCOMES else ExitCode.NO


def _waits_for(profile: ServingProfile) -> str:
    """Why there is no run yet."""
    from kneekeeper.domain.plan.conditions import ConditionType, find

    probing = find(profile.status.conditions, ConditionType.PROBING)
    told = f": {probing.message}" if probing is not None and probing.message else ""
    return f"Waits for the operator to start a run{told}"
