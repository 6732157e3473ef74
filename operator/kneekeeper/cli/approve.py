"""`kneekeeper approve`: let the operator write its recommendation into the workload."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kneekeeper.cli.cluster import Scope, add_cluster_options, in_cluster, read_profile
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.next_command import next_command
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from kneekeeper.api.profile_status import Recommendation
    from kneekeeper.api.serving_profile import ServingProfile

_DESCRIPTION = """\
Approve the recommendation that a profile holds now, and no later one. The operator then rolls it out, watches it, and
takes it back if it was worse. `kneekeeper diff` shows what will change."""

_EPILOG = """\
exit codes:
  0    approved, or in force already
  2    there is nothing to approve, or the cluster cannot be written; the message has the next step

examples:
  kneekeeper approve chat -n prod
  kneekeeper approve chat -n prod --hash 032fe92297"""


def add_to(commands: Commands) -> None:
    """`kneekeeper approve`."""
    parser = commands.add_parser(
        "approve",
        help="let the operator roll out its recommendation",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("profile", metavar="PROFILE", help="a ServingProfile")
    parser.add_argument("--hash", metavar="HASH", help="only this recommendation, as kneekeeper diff named it")
    add_cluster_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    print(in_cluster(arguments, lambda scope: _approve(scope, arguments.profile, arguments.hash)))
    return ExitCode.DONE


async def _approve(scope: Scope, name: str, wanted: str | None) -> str:
    from kneekeeper.domain.user_actions import approving
    from kneekeeper.kube.resources import SERVING_PROFILES

    profile = await read_profile(scope, name)
    recommendation = approvable(profile, wanted)
    if is_in_force(profile, recommendation):
        return f"{name}: {recommendation.setting} is in force already."
    await scope.kube.json_patch(
        SERVING_PROFILES, scope.namespace, name, approving(profile.metadata, recommendation.hash)
    )
    target = profile.spec.target_ref
    return (
        f"{name}: approved {recommendation.setting} for {target.kind} {target.name} ({recommendation.improvement}). "
        f"{next_command('status', profile)} tells how the rollout goes."
    )


def approvable(profile: ServingProfile, wanted: str | None) -> Recommendation:
    """The recommendation, where an approval would do something. Raises CannotError."""
    from kneekeeper.api.serving_profile import UpdateMode

    name, recommendation = profile.metadata["name"], profile.status.recommendation
    if recommendation is None:
        raise CannotError(no_recommendation(profile))
    if wanted is not None and recommendation.hash != wanted:
        raise CannotError(
            f"{name} recommends {recommendation.setting} now, with the hash {recommendation.hash}; look at "
            f"{next_command('diff', profile)}, then approve that"
        )
    if profile.spec.update_policy.mode is UpdateMode.OFF:
        raise CannotError(
            f"spec.updatePolicy.mode of {name} is Off, so nothing is written; set it to Recommend or Apply"
        )
    if profile.spec.suspend:
        raise CannotError(f"{name} is suspended, so nothing is written; {next_command('resume', profile)} first")
    if not recommendation.is_certified:
        raise CannotError(
            f"{recommendation.setting} is predicted from production's metrics and not proven, so it is never written; "
            f"{next_command('diff', profile)} shows the change, to be made by hand, and Clone or BorrowReplica in "
            "spec.probe.allow have it proven"
        )
    for rejected in profile.status.rejected:
        if (rejected.setting, rejected.fingerprint) == (recommendation.setting, recommendation.fingerprint):
            raise CannotError(
                f"{recommendation.setting} was rolled back for this engine ({rejected.cause}) and is not tried again; "
                f"{next_command('retune', profile)} measures anew"
            )
    return recommendation


def no_recommendation(profile: ServingProfile) -> str:
    """Why there is none, for people: what keeps it, what it waits for, or what the last run found."""
    from kneekeeper.api.model import ConditionStatus
    from kneekeeper.domain.plan.conditions import ConditionType, find

    name, status = profile.metadata["name"], profile.status
    keeping = [find(status.conditions, each) for each in (ConditionType.ACCEPTED, ConditionType.TARGET_FOUND)]
    keeping = [each for each in keeping if each is not None and each.status is ConditionStatus.FALSE]
    found = keeping[0] if keeping else find(status.conditions, ConditionType.RECOMMENDED)
    if status.active_run is not None and not keeping:
        return (
            f"{name} has no recommendation yet: TuningRun {status.active_run} is under way; "
            f"{next_command('status', profile)} tells how far it is"
        )
    if found is None or found.status is ConditionStatus.UNKNOWN:
        return f"{name} has no recommendation yet; {next_command('status', profile)} tells what it waits for"
    return f"{name} has no recommendation, {found.reason}: {found.message}"


def is_in_force(profile: ServingProfile, recommendation: Recommendation) -> bool:
    """Whether the workload was last seen with these limits."""
    engine, setting = profile.status.engine, recommendation.setting
    return engine is not None and (engine.max_num_seqs, engine.max_num_batched_tokens) == (
        setting.max_num_seqs,
        setting.max_num_batched_tokens,
    )
