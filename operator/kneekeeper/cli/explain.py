"""`kneekeeper explain`: what is wrong with a deployment, in plain words."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kneekeeper.cli.argument_types import batched_tokens, duration, sequences
from kneekeeper.cli.cluster import Scope, add_cluster_options, in_cluster, read_profile, read_profiles
from kneekeeper.cli.ending import CannotError, ExitCode
from kneekeeper.cli.output import Output, add_output_option
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile
    from kneekeeper.domain.diagnose import Diagnosis

_DESCRIPTION = """\
Tell what is wrong with a deployment: of a ServingProfile what its status says (conditions, findings, a run that is
under way), with --url what an engine's own metrics say. With --url nothing is sent to the engine but reads of
/metrics. -o wide also tells what production shows of each replica, of all together and of the traffic."""

_EPILOG = """\
exit codes:
  0    nothing is wrong
  1    something is, or the profile is not ready and no run that would tell is under way
  2    wrong usage, or nothing could be read; the message has the next step

examples:
  kneekeeper explain chat --namespace prod
  kneekeeper explain chat --namespace prod -o wide
  kneekeeper explain -A
  kneekeeper explain -A -o json
  kneekeeper explain --url http://127.0.0.1:8000 --max-num-seqs 256 --max-num-batched-tokens 2048 --ttft 500ms"""


def add_to(commands: Commands) -> None:
    """`kneekeeper explain`."""
    parser = commands.add_parser(
        "explain",
        help="tell what is wrong with a deployment, and what to do",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a ServingProfile in the cluster")
    parser.add_argument("--url", help="an engine instead, such as http://127.0.0.1:8000")
    parser.add_argument("--max-num-seqs", type=sequences, metavar="N", help="with --url: as the engine was started")
    parser.add_argument(
        "--max-num-batched-tokens", type=batched_tokens, metavar="N", help="with --url: as it was started"
    )
    parser.add_argument("--ttft", type=duration, metavar="TIME", help="with --url: the P99 target, such as 500ms")
    parser.add_argument("--tpot", type=duration, metavar="TIME", help="with --url: the P99 target, such as 40ms")
    parser.add_argument(
        "--window", type=duration, default=120.0, metavar="TIME", help="with --url: how long to watch (default: 2m)"
    )
    add_output_option(parser, Output.WIDE)
    add_cluster_options(parser, all_namespaces="profiles of all namespaces")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if sum(map(bool, (arguments.profile, arguments.url, arguments.all_namespaces))) != 1:
        return _refuse("name a ServingProfile, or an engine with --url, or ask for all profiles with -A")
    if arguments.url is None:
        return _of_profiles(arguments)
    if arguments.output == Output.WIDE:
        return _refuse("-o wide tells of a profile's replicas: leave it out with --url")
    if arguments.max_num_seqs is None or arguments.max_num_batched_tokens is None:
        return _refuse(
            "--url needs --max-num-seqs and --max-num-batched-tokens, which metrics do not tell; they stand in the "
            "engine's log after its start"
        )
    return _of_url(arguments)


def _of_profiles(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.output import print_as
    from kneekeeper.cli.show.explanation import explanation
    from kneekeeper.cli.show.listing import Detail

    async def read(scope: Scope) -> tuple[ServingProfile, ...]:
        return (
            await read_profiles(scope) if arguments.all_namespaces else (await read_profile(scope, arguments.profile),)
        )

    profiles = in_cluster(arguments, read)
    told = [explanation(profile) for profile in profiles]

    def text(detail: Detail) -> None:
        for number, (profile, each) in enumerate(zip(profiles, told, strict=True)):
            if arguments.all_namespaces:
                heading = f"{each.data.name} in {each.data.namespace}:"
                print(f"\n{heading}" if number else heading)
            print(each.text)
            if detail is Detail.WIDE:
                _print_production(profile)

    data = [each.data for each in told]
    print_as(Output(arguments.output), data if arguments.all_namespaces else data[0], text)
    return ExitCode.NO if any(each.wrong for each in told) else ExitCode.DONE


def _print_production(profile: ServingProfile) -> None:
    from kneekeeper.cli.output import print_lines
    from kneekeeper.cli.show.production import explained_lines
    from kneekeeper.domain.views.production import production_view

    print()
    print_lines(explained_lines(production_view(profile), datetime.now(UTC)))


def _of_url(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.output import print_as
    from kneekeeper.cli.servers import check_address
    from kneekeeper.cli.terminal import Interrupted, run_until_signal
    from kneekeeper.domain.diagnose.text import explain
    from kneekeeper.local.served import ServerError

    try:
        check_address(arguments.url)
        diagnosis = run_until_signal(_watch(arguments))
    except Interrupted:
        return _refuse("interrupted before the window had ended")
    except (CannotError, ServerError) as error:
        return _refuse(str(error))
    print_as(Output(arguments.output), diagnosis, lambda _: print(explain(diagnosis)))
    return ExitCode.NO if diagnosis.findings else ExitCode.DONE


async def _watch(arguments: argparse.Namespace) -> Diagnosis:
    from kneekeeper.api.stage import Slo
    from kneekeeper.domain.diagnose import EngineSettings
    from kneekeeper.local.explaining import WatchRequest, explain_engine
    from kneekeeper.local.served import BaseUrl, open_http

    settings = EngineSettings(arguments.max_num_seqs, arguments.max_num_batched_tokens)
    asked = arguments.ttft is not None or arguments.tpot is not None
    slo = Slo(ttft_s=arguments.ttft, tpot_s=arguments.tpot) if asked else None
    async with open_http() as http:
        return await explain_engine(
            http, WatchRequest(BaseUrl.of(arguments.url, None), settings, slo, arguments.window)
        )


def _refuse(message: str) -> int:
    print(f"kneekeeper explain: {message}", file=sys.stderr)
    return ExitCode.CANNOT
