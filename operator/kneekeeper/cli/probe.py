"""`kneekeeper probe`: load levels against a server that has a URL, without a cluster."""

from __future__ import annotations

import argparse
import secrets
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from kneekeeper.cli.fields import duration

if TYPE_CHECKING:
    from pydantic import SecretStr
    from rich.console import Console

    from kneekeeper.api.stage import Arrivals, Slo
    from kneekeeper.local.probing import ProbeRequest, ProbeResult

_DESCRIPTION = """\
Measure a server with OpenAI's API: a ladder of concurrent users, one number of users, or one open-loop rate.

Every stream is timed from the moment when its request should have been sent. Where the server is vLLM, its own metrics
are read beside and contradictions are told. With --slo each level is judged: fewer than 1% of the requests may miss the
targets. The load goes to the server that you name, so name one that nobody else needs."""

_EPILOG = """\
exit codes:
  0    measured; with --slo: PASS on every level
  1    FAIL: a level missed the targets
  2    wrong usage, or the server cannot be measured; the message has the next step
  3    INCONCLUSIVE: too few requests to tell; the message says how many would
  4    Invalid: this client was too slow or starved, so nothing is said of the server
  130  after Ctrl-C; what was measured is kept and reported

examples:
  kneekeeper probe --url http://127.0.0.1:8000 --ladder 1..64 --output ladder.html
  kneekeeper probe --url http://127.0.0.1:8000 --rate 12 --slo ttft=500ms,tpot=40ms --output result.json"""


class ExitCode(IntEnum):
    """How `kneekeeper probe` ends."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INVALID = 4
    INTERRUPTED = 130


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`kneekeeper probe`."""
    parser = commands.add_parser(
        "probe",
        help="measure a server at a URL: a ladder, a number of users, or a rate",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", required=True, help="what /v1/models follows, such as http://127.0.0.1:8000")
    parser.add_argument("--model", help="the name that requests carry (default: the only one that the server has)")
    parser.add_argument("--chat", action="store_true", help="use /v1/chat/completions instead of /v1/completions")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--ladder", metavar="A..B", help="users A, 2A, 4A … B, one level each (default: 1..64)")
    load.add_argument("--users", metavar="N", type=int, help="one level: N users, each waits for its answer")
    load.add_argument("--rate", metavar="R", type=float, help="one level: R requests per second, whatever comes back")
    parser.add_argument(
        "--workload",
        metavar="FILE.yaml",
        type=Path,
        help="the workload section of a ServingProfile (default: LogNormal prompts of 512 tokens, p99 2000, "
        "answers of 128, p99 400, Poisson)",
    )
    parser.add_argument("--prompts", metavar="FILE.jsonl", type=Path, help="real prompts, one JSON object a line")
    parser.add_argument("--slo", metavar="TARGETS", help="P99 targets: ttft=500ms,tpot=40ms,e2e=30s; any of them")
    parser.add_argument(
        "--requests", metavar="N", type=int, help="the most requests of a level (default: as many as a verdict takes)"
    )
    parser.add_argument(
        "--duration",
        metavar="TIME",
        type=duration,
        help="the longest that a level takes (default: 2m, or what they take)",
    )
    parser.add_argument("--seed", type=int, help="draws the same requests again (default: new ones)")
    parser.add_argument("--ca-file", metavar="FILE.pem", type=Path, help="certificates to trust for https://")
    parser.add_argument("--api-key-file", metavar="FILE", type=Path, help="the key that the server asks for")
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="write a report; .json, .csv or .html; may be repeated",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.fields import UsageError, api_key_of
    from kneekeeper.cli.terminal import Interrupted, open_console, run_until_signal
    from kneekeeper.local.probe_report import FORMATS
    from kneekeeper.local.probing import ProbeResult
    from kneekeeper.local.served import ServerError

    console = open_console()
    try:
        for path in arguments.output:
            if path.suffix not in FORMATS:
                raise UsageError(f"--output: {path} has none of the ends {', '.join(FORMATS)}")
            if not path.absolute().parent.is_dir():
                raise UsageError(f"--output: the folder of {path} does not exist")
        request, key = _request(arguments), api_key_of(arguments.api_key_file)
    except UsageError as error:
        print(f"kneekeeper probe: {error}", file=sys.stderr)
        return ExitCode.USAGE
    result = ProbeResult(request.url)
    try:
        run_until_signal(_probe(request, result, key, console))
    except Interrupted:
        result.interrupted = True
    except (ServerError, OSError) as error:
        print(f"kneekeeper probe: {error}", file=sys.stderr)
        _tell(result, arguments.output, console)
        return ExitCode.USAGE
    _tell(result, arguments.output, console)
    return _code(result)


def _request(arguments: argparse.Namespace) -> ProbeRequest:
    """What to offer. Raises UsageError."""
    from urllib.parse import urlsplit

    from pydantic import ValidationError

    from kneekeeper.api.serving_profile import ServingProfileSpec, TargetRef
    from kneekeeper.api.stage import Endpoint, PromptSource
    from kneekeeper.api.workload import SloTargets
    from kneekeeper.cli.fields import UsageError, explain, with_files, workload_of
    from kneekeeper.domain.ladder import ALIKE, RequestKinds
    from kneekeeper.domain.plan.acceptance import spec_problem
    from kneekeeper.domain.plan.requests import traffic_of
    from kneekeeper.local.defaults import TRAFFIC
    from kneekeeper.local.probing import ProbeRequest

    parts = urlsplit(arguments.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url: {arguments.url!r} is not like http://127.0.0.1:8000")
    if arguments.ca_file is not None and not arguments.ca_file.is_file():
        raise UsageError(f"--ca-file: {arguments.ca_file} is no file")
    if any(value is not None and value <= 0 for value in (arguments.requests, arguments.duration)):
        raise UsageError("--requests and --duration must be above 0")
    try:
        profile = ServingProfileSpec(
            target_ref=TargetRef(kind="Deployment", name="probe"),
            slo=SloTargets(p99_ttft=1.0),
            workload=with_files(workload_of(arguments.workload, TRAFFIC), None, arguments.prompts),
        )
        problem = spec_problem(profile)
        if problem is not None:
            raise UsageError(problem.message.replace("spec.workload", "--workload"))
        traffic = traffic_of(profile, None)
        if traffic.kinds not in (ALIKE, RequestKinds(prompts=PromptSource.MOUNTED)):
            raise UsageError("--workload: a probe sends one kind of requests: leave out classes and shared prefixes")
        return ProbeRequest(
            url=arguments.url.rstrip("/"),
            model=arguments.model,
            endpoint=Endpoint.CHAT if arguments.chat else Endpoint.COMPLETIONS,
            levels=_levels(arguments, traffic.burstiness),
            profile=profile,
            prompts=arguments.prompts,
            ca_file=None if arguments.ca_file is None else arguments.ca_file.resolve(),
            slo=_slo(arguments.slo),
            max_requests=arguments.requests,
            max_duration_s=arguments.duration,
            seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        )
    except ValidationError as error:
        raise UsageError(explain(error)) from error


def _levels(arguments: argparse.Namespace, burstiness: float | None) -> tuple[Arrivals, ...]:
    from kneekeeper.api.stage import Closed, Open
    from kneekeeper.cli.fields import UsageError

    if arguments.rate is not None:
        return (Open(rate=arguments.rate, burstiness=burstiness),)
    if arguments.users is not None:
        return (Closed(users=arguments.users),)
    low, dots, high = (arguments.ladder or "1..64").partition("..")
    if not (dots and low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high)):
        raise UsageError(f"--ladder: {arguments.ladder!r} is no range of users; write it like 1..64")
    users, levels = int(low), []
    while users < int(high):
        levels.append(users)
        users *= 2
    return tuple(Closed(users=level) for level in (*levels, int(high)))


def _slo(text: str | None) -> Slo:
    from kneekeeper.api.quantities import parse_duration
    from kneekeeper.api.stage import Slo
    from kneekeeper.cli.fields import UsageError, pairs

    targets: dict[str, float] = {}
    for name, value in pairs("--slo", text or "").items():
        if name not in ("ttft", "tpot", "e2e"):
            raise UsageError(f"--slo: there is no {name!r}; write ttft=500ms,tpot=40ms,e2e=30s")
        try:
            targets[f"{name}_s"] = parse_duration(value)
        except ValueError as error:
            raise UsageError(f"--slo {name}: {error}") from error
    if text is not None and not targets:
        raise UsageError("--slo: name a target, such as ttft=500ms")
    return Slo(**targets)


async def _probe(request: ProbeRequest, result: ProbeResult, key: SecretStr | None, console: Console) -> None:
    """Raises ServerError."""
    from kneekeeper.local.probing import probe
    from kneekeeper.local.served import BaseUrl, open_http
    from kneekeeper.local.watcher import ProbeWatcher

    secret = None if key is None else key.get_secret_value()
    async with open_http(request.ca_file) as http:
        with ProbeWatcher(console) as watcher:
            await probe(request, result, http, BaseUrl.of(request.url, key), secret, watcher)


def _tell(result: ProbeResult, outputs: list[Path], console: Console) -> None:
    from kneekeeper.local.probe_report import report_of, write
    from kneekeeper.local.watcher import chart_of_levels, table_of_levels

    if result.levels:
        console.print()
        console.print(table_of_levels(result.levels, console.width))
        console.print(chart_of_levels(result.levels), highlight=False, markup=False, soft_wrap=True)
        for found in result.contradictions:
            console.print(f"Contradiction at {found.level}: {found.message}", highlight=False, soft_wrap=True)
    if result.interrupted:
        console.print("Interrupted; this is what was measured until then.", highlight=False)
    for path in outputs:
        write(report_of(result), path)
        console.print(f"Written: {path}", highlight=False, soft_wrap=True)


def _code(result: ProbeResult) -> ExitCode:
    from kneekeeper.api.tuning_run import Verdict
    from kneekeeper.domain.load_level import verdict_of_levels

    if result.interrupted:
        return ExitCode.INTERRUPTED
    match verdict_of_levels(result.levels):
        case Verdict.FAIL:
            return ExitCode.FAIL
        case Verdict.INVALID:
            return ExitCode.INVALID
        case Verdict.INCONCLUSIVE:
            return ExitCode.INCONCLUSIVE
        case _:
            return ExitCode.PASS
