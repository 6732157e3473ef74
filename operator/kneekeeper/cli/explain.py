"""`kneekeeper explain`: what is wrong with a deployment, in plain words."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kneekeeper.cli.fields import duration

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile
    from kneekeeper.domain.diagnose import Diagnosis

FOUND, USAGE = 1, 2

_DESCRIPTION = """\
Tell what is wrong with a deployment: of a ServingProfile what its status says, with --url what an engine's own metrics
say. With --url nothing is sent to the engine but reads of /metrics."""

_EPILOG = """\
exit codes:
  0    nothing is wrong
  1    something is
  2    wrong usage, or nothing could be read; the message has the next step

examples:
  kneekeeper explain chat --namespace prod
  kneekeeper explain --url http://127.0.0.1:8000 --max-num-seqs 256 --max-num-batched-tokens 2048 --ttft 500ms"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`kneekeeper explain`."""
    parser = commands.add_parser(
        "explain",
        help="tell what is wrong with a deployment, and what to do",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a ServingProfile in the cluster")
    parser.add_argument("-n", "--namespace", default="default", help="of the profile (default: default)")
    parser.add_argument("--url", help="an engine instead, such as http://127.0.0.1:8000")
    parser.add_argument("--max-num-seqs", type=int, metavar="N", help="with --url: as the engine was started")
    parser.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="with --url: as it was started")
    parser.add_argument("--ttft", type=duration, metavar="TIME", help="with --url: the P99 target, such as 500ms")
    parser.add_argument("--tpot", type=duration, metavar="TIME", help="with --url: the P99 target, such as 40ms")
    parser.add_argument(
        "--window", type=duration, default=120.0, metavar="TIME", help="with --url: how long to watch (default: 2m)"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if bool(arguments.profile) == bool(arguments.url):
        return _refuse("name a ServingProfile, or an engine with --url")
    if arguments.profile:
        return _of_profile(arguments.namespace, arguments.profile)
    if arguments.max_num_seqs is None or arguments.max_num_batched_tokens is None:
        return _refuse(
            "--url needs --max-num-seqs and --max-num-batched-tokens, which metrics do not tell; they stand in the "
            "engine's log after its start"
        )
    return _of_url(arguments)


def _of_profile(namespace: str, name: str) -> int:
    import asyncio

    from kneekeeper.api.findings import FindingPhase
    from kneekeeper.domain.diagnose.status_text import explain_status
    from kneekeeper.kube.errors import KubeError, NotFound

    try:
        profile = asyncio.run(_read_profile(namespace, name))
    except NotFound:
        return _refuse(f"there is no ServingProfile {name} in namespace {namespace}; see kubectl get sp -A")
    except KubeError as error:
        return _refuse(str(error))
    text = explain_status(profile.status.findings)
    print(text)
    return FOUND if any(f.phase is not FindingPhase.SUSPECTED for f in profile.status.findings) else 0


async def _read_profile(namespace: str, name: str) -> ServingProfile:
    from kneekeeper import __version__
    from kneekeeper.kube.client import Kube
    from kneekeeper.kube.resources import SERVING_PROFILES
    from kneekeeper.observe.own_resources import parse_profile

    async with await Kube.connect(__version__) as kube:
        return parse_profile(await kube.get(SERVING_PROFILES, namespace, name))


def _of_url(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.terminal import Interrupted, run_until_signal
    from kneekeeper.domain.diagnose.text import explain
    from kneekeeper.local.served import ServerError

    try:
        diagnosis = run_until_signal(_watch(arguments))
    except Interrupted:
        return _refuse("interrupted before the window had ended")
    except ServerError as error:
        return _refuse(str(error))
    print(explain(diagnosis))
    return FOUND if diagnosis.findings else 0


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
    return USAGE
