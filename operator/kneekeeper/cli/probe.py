"""`kneekeeper probe`: load levels against a server that has a URL, without a cluster."""

from __future__ import annotations

import argparse
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from kneekeeper.cli.argument_types import MOST_USERS, duration, positive, whole
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from pydantic import SecretStr
    from rich.console import Console

    from kneekeeper.local.probing import ProbeRequest, ProbeResult

_DESCRIPTION = """\
Measure a server with OpenAI's API: a ladder of concurrent users, one number of users, or one open-loop rate.

Every stream is timed from the moment when its request should have been sent. The first requests of a level are left
out of all numbers, as warm-up: the server was still filling up. Where the server is vLLM, its own metrics are read
beside and contradictions are told. With --slo each level is judged: fewer than 1% of the requests may miss the targets;
that takes some hundred to some thousand requests, and the level ends as soon as it can be told. The load goes to the
server that you name, so name one that nobody else needs."""

_EPILOG = """\
exit codes:
  0    measured; with --slo: PASS on every level
  1    FAIL: more than 1% of a level's requests missed the targets, or its backlog grew
  2    wrong usage, or the server cannot be measured; the message has the next step
  3    INCONCLUSIVE: too few requests to tell; the message says which --requests and --duration would
  4    INVALID: this client was too slow or starved, so nothing is said of the server
  130  after Ctrl-C; what was measured is kept and reported

examples:
  kneekeeper probe --url http://127.0.0.1:8000 --ladder 1..64 --output ladder.html
  kneekeeper probe --url http://127.0.0.1:8000 --users 8 --slo ttft=500ms,tpot=40ms && echo holds
  kneekeeper probe --url http://127.0.0.1:8000 --rate 12 --slo ttft=500ms,tpot=40ms --output result.json"""


class ExitCode(IntEnum):
    """How `kneekeeper probe` ends."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INVALID = 4
    INTERRUPTED = 130


def add_to(commands: Commands) -> None:
    """`kneekeeper probe`."""
    parser = commands.add_parser(
        "probe",
        help="measure a server at a URL: a ladder, a number of users, or a rate",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("--url", required=True, help="the server's address, such as http://127.0.0.1:8000")
    parser.add_argument("--model", help="the name that requests carry (default: the only one that the server has)")
    parser.add_argument("--chat", action="store_true", help="use /v1/chat/completions instead of /v1/completions")
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--ladder", metavar="A..B", help="users A, 2A, 4A … B, one level each (default: 1..64)")
    load.add_argument(
        "--users",
        metavar="N",
        type=whole("8", MOST_USERS),
        help="one level: N users, each sends its next request when it has its answer",
    )
    load.add_argument(
        "--rate",
        metavar="R",
        type=positive("12 or 0.5", 10_000),
        help="one level: R requests per second, sent at their times whatever comes back",
    )
    parser.add_argument(
        "--workload",
        metavar="FILE.yaml",
        type=Path,
        help="what requests look like: promptTokens, outputTokens and arrivals as in a ServingProfile's workload "
        "(default: LogNormal prompts of 512 tokens, p99 2000, answers of 128, p99 400, Poisson)",
    )
    parser.add_argument(
        "--prompts",
        metavar="FILE.jsonl",
        type=Path,
        help='real prompts, one JSON object a line, such as {"text": "Why is the sky blue?"}',
    )
    parser.add_argument(
        "--slo",
        metavar="TARGETS",
        help="judge each level: P99 of the time to first token, the time per output token after it, and the whole "
        "answer, such as ttft=500ms,tpot=40ms,e2e=30s; any of them",
    )
    parser.add_argument(
        "--requests",
        metavar="N",
        type=whole("800"),
        help="the most requests of a level, warm-up included (default: with --slo as many as a verdict takes, else "
        "until the load is steady)",
    )
    parser.add_argument(
        "--duration",
        metavar="TIME",
        type=duration,
        help="the longest that a level takes, such as 5m (default: 2m, with --rate also as long as its requests take)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=whole("7", 2**63 - 1, least=0),
        help="the number that prompts and times are drawn from: the same draws the same (default: a new one)",
    )
    parser.add_argument(
        "--ca-file", metavar="FILE.pem", type=Path, help="certificates to trust for https:// (default: the system's)"
    )
    parser.add_argument(
        "--api-key-file", metavar="FILE", type=Path, help="a file with the API key that the server asks for"
    )
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
    from kneekeeper.cli.fields import api_key_of
    from kneekeeper.cli.probe_request import request_of
    from kneekeeper.cli.terminal import Interrupted, open_console, run_until_signal
    from kneekeeper.local.probing import ProbeResult
    from kneekeeper.local.served import ServerError

    console = open_console()
    try:
        _check_outputs(arguments.output)
        request, key = request_of(arguments), api_key_of(arguments.api_key_file)
        result = ProbeResult(request.url)
        unmeasured: Exception | None = None
        try:
            run_until_signal(_probe(request, result, key, console))
        except Interrupted:
            result.interrupted = True
        except (ServerError, OSError) as error:
            unmeasured = error
            print(f"kneekeeper probe: {error}", file=sys.stderr)
        # Before anything is printed: whatever becomes of that, what was measured is kept.
        unwritten = _write(result, arguments.output)
        _tell(result, [path for path in arguments.output if path not in unwritten], console)
        if unwritten:
            raise CannotError(
                "; ".join(f"--output: {path} cannot be written: {why}" for path, why in unwritten.items())
            )
    except CannotError as error:
        print(f"kneekeeper probe: {error}", file=sys.stderr)
        return ExitCode.USAGE
    return _code(result) if unmeasured is None else ExitCode.USAGE


def _check_outputs(outputs: list[Path]) -> None:
    """Before anything is measured for nothing. Raises CannotError."""
    from kneekeeper.local.probe_report import FORMATS

    for path in outputs:
        if path.suffix not in FORMATS:
            raise CannotError(f"--output: {path} has none of the ends {', '.join(FORMATS)}")
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise CannotError(f"--output: {path} is a folder, or is in one that does not exist")


async def _probe(request: ProbeRequest, result: ProbeResult, key: SecretStr | None, console: Console) -> None:
    """Raises ServerError."""
    from kneekeeper.local.probing import probe
    from kneekeeper.local.served import BaseUrl, open_http
    from kneekeeper.local.watcher import ProbeWatcher

    secret = None if key is None else key.get_secret_value()
    async with open_http(request.ca_file) as http:
        with ProbeWatcher(console) as watcher:
            await probe(request, result, http, BaseUrl.of(request.url, key), secret, watcher)


def _write(result: ProbeResult, outputs: list[Path]) -> dict[Path, str]:
    """All reports. Returns those that cannot be written, each with why."""
    from kneekeeper.local.probe_report import report_of, write

    unwritten = {}
    for path in outputs:
        try:
            write(report_of(result), path)
        except OSError as error:
            unwritten[path] = error.strerror or str(error)
    return unwritten


def _tell(result: ProbeResult, written: list[Path], console: Console) -> None:
    from kneekeeper.local.probe_report import warm_up_note
    from kneekeeper.local.watcher import chart_of_levels, table_of_levels

    if result.levels:
        console.print()
        console.print(table_of_levels(result.levels, console.width))
        for text in filter(None, (warm_up_note(result.levels), chart_of_levels(result.levels))):
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        for found in result.contradictions:
            console.print(f"Contradiction at {found.level}: {found.message}", highlight=False, soft_wrap=True)
    if result.interrupted:
        console.print("Interrupted; this is what was measured until then.", highlight=False)
    for path in written:
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
