"""`kneekeeper tune`: the run of a cluster on a local process."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kneekeeper.cli.argument_types import duration
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.parser import Commands

if TYPE_CHECKING:
    from pydantic import SecretStr
    from rich.console import Console

    from kneekeeper.cli.tune_job import Job
    from kneekeeper.local.command import Address, ServerCommand
    from kneekeeper.local.report import TuneReport
    from kneekeeper.local.state import TuneState

_DESCRIPTION = """\
Find the best --max-num-seqs and --max-num-batched-tokens for a vLLM server on this machine, and prove them.

The server's command follows `--`. It is started with the highest limits, loaded step by step, started again with the
limits that the measurement proposes, and certified: under open-loop load at 1.2 times the promised rate fewer than 1%
of the requests may miss the targets; with `--objective throughput` the server is kept full instead, and its output
tokens per second are measured. At last the command's own limits are loaded alike. Any command that takes vLLM's
flags and speaks its API works. Nothing else should use the GPU meanwhile."""

_EPILOG = """\
exit codes:
  0    a setting is certified; the last lines say whether to switch to it or to keep the present one
  1    failed: no setting holds the targets, or the server does not start; the message has the next step
  2    wrong usage, or the report cannot be written; the message has the next step
  3    inconclusive: the machine drifted, the client was starved, or the budget ran out
  130  after Ctrl-C; nothing is left running, and `kneekeeper tune --resume DIR` goes on

examples:
  kneekeeper tune --ttft 500ms --tpot 40ms -- vllm serve Qwen/Qwen3-8B --max-model-len 8192
  kneekeeper tune --objective throughput --workload batch.yaml -- vllm serve MODEL
  kneekeeper tune --tpot 12.5ms --bounds seqs=8..128 --workload chat.yaml --report result.json -- vllm serve MODEL"""


def add_to(commands: Commands) -> None:
    """`kneekeeper tune`."""
    parser = commands.add_parser(
        "tune",
        help="find and prove the best limits of a vLLM server on this machine",
        usage="kneekeeper tune [--ttft TIME] [--tpot TIME] [--e2e TIME] [options] -- COMMAND …\n"
        "       kneekeeper tune --objective throughput [options] -- COMMAND …\n"
        "       kneekeeper tune --resume DIR [--report FILE.json]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,  # without its `--`, the server's --api-key would be taken for --api-key-file
    )
    parser.add_argument(
        "--ttft", metavar="TIME", type=duration, help="the promise: P99 time to first token, such as 500ms"
    )
    parser.add_argument(
        "--tpot", metavar="TIME", type=duration, help="the promise: P99 time per output token, such as 40ms or 12.5ms"
    )
    parser.add_argument(
        "--e2e", metavar="TIME", type=duration, help="the promise: P99 time of a whole answer, such as 30s"
    )
    parser.add_argument(
        "--objective",
        choices=("interactive", "throughput"),
        help="interactive: the highest rate that keeps the promise. throughput: the most output tokens per second, for "
        "offline batches; it takes no promise (default: interactive)",
    )
    parser.add_argument(
        "--workload",
        metavar="FILE.yaml",
        type=Path,
        help="what requests look like: promptTokens, outputTokens, arrivals or classes as in a ServingProfile's "
        "workload (default: LogNormal prompts of 512 tokens, p99 2000, answers of 128, p99 400, Poisson)",
    )
    parser.add_argument(
        "--trace", metavar="FILE", type=Path, help="a trace, whose times and lengths of requests are replayed instead"
    )
    parser.add_argument(
        "--prompts",
        metavar="FILE.jsonl",
        type=Path,
        help='real prompts, one JSON object a line, such as {"text": "Why is the sky blue?"}',
    )
    parser.add_argument(
        "--bounds",
        metavar="RANGES",
        help="where to search for --max-num-seqs and --max-num-batched-tokens: seqs=8..256,tokens=512..8192; each end "
        "may be left out (default: around those of the command)",
    )
    parser.add_argument(
        "--budget",
        metavar="FIELDS",
        help="what the run may cost: any of maxMeasureDuration=30m,startTimeout=30m,maxRestarts=3, which are the "
        "defaults",
    )
    parser.add_argument(
        "--ladder",
        metavar="FIELDS",
        help="how the load climbs: any of maxConcurrency=512,maxStageDuration=2m,recovery=2s,"
        "controlTolerancePercent=15, which are the defaults",
    )
    parser.add_argument(
        "--api-key-file", metavar="FILE", type=Path, help="a file with the API key that the server asks for"
    )
    parser.add_argument("--report", metavar="FILE.json", type=Path, help="write what was found as JSON")
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        help="keep state, samples and server logs in this folder (default: one of its own, which goes when a setting "
        "is certified); an unfinished run of the same question in it goes on",
    )
    parser.add_argument(
        "--resume", metavar="DIR", type=Path, help="go on with an interrupted run, from the folder that it named"
    )
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="the server's command, with its flags")
    parser.set_defaults(
        run=_run, without_dashes="Put `--` before the server's command: kneekeeper tune … -- vllm serve MODEL"
    )


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.terminal import open_console
    from kneekeeper.cli.tune_job import job_of
    from kneekeeper.local.command import CommandError, check_installed, read_command
    from kneekeeper.local.report import ExitCode
    from kneekeeper.local.state import StateError, locked

    console = open_console()
    job: Job | None = None
    try:
        job = job_of(arguments)
        command = read_command(job.state.words, os.environ)
        check_installed(job.state.words, os.environ)
        with locked(job.directory):
            return _tune(job, command, console)
    except (CannotError, CommandError, StateError) as error:
        print(f"kneekeeper tune: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"kneekeeper tune: {where}{error.strerror or error}. {_after(job)}", file=sys.stderr)
        return ExitCode.FAILED


def _after(job: Job | None) -> str:
    """What to do when the machine got in the way."""
    from kneekeeper.local.state import FILE

    if job is None or not (job.directory / FILE).exists():
        return "Mend that, and start the run again."
    return f"Mend that; `kneekeeper tune --resume {shlex.quote(str(job.directory))}` goes on."


def _tune(job: Job, command: ServerCommand, console: Console) -> int:
    """Run it to its end. Raises CommandError, CannotError and OSError."""
    from kneekeeper.cli.terminal import Interrupted, run_until_signal
    from kneekeeper.cli.tune_job import api_key_of
    from kneekeeper.local.command import address_of
    from kneekeeper.local.report import ExitCode, exit_code_of, report_of

    address, api_key = address_of(command), api_key_of(job.state.api_key_file)
    try:
        state = run_until_signal(_until_done(job, command, address, api_key, console))
    except Interrupted:
        console.print("\nInterrupted; nothing is left running. Go on with:", highlight=False)
        console.print(f"  kneekeeper tune --resume {shlex.quote(str(job.directory))}", highlight=False, soft_wrap=True)
        return ExitCode.INTERRUPTED
    report, unwritten = report_of(state, command), None
    if job.report is not None:
        try:
            report.write(job.report)
        except OSError as error:
            unwritten = error.strerror or str(error)
    code = exit_code_of(state.status)
    _print(report, state, console)
    if code is ExitCode.CERTIFIED and not job.keep and unwritten is None:
        shutil.rmtree(job.directory, ignore_errors=True)
    else:
        console.print(f"State, samples and server logs: {job.directory}", highlight=False, soft_wrap=True)
    _advise(report, console)
    if unwritten is not None:
        again = f"kneekeeper tune --resume {shlex.quote(str(job.directory))} --report FILE.json"
        raise CannotError(
            f"--report: {job.report} cannot be written: {unwritten}. `{again}` writes it without a new run."
        )
    return code


async def _until_done(
    job: Job, command: ServerCommand, address: Address, api_key: SecretStr | None, console: Console
) -> TuneState:
    """The server and the load are gone when it returns or raises."""
    from kneekeeper.load.sources import Sources
    from kneekeeper.local.audience import Narrator
    from kneekeeper.local.place import LocalPlace
    from kneekeeper.local.served import open_http
    from kneekeeper.local.tuning import tune

    def clock() -> datetime:
        return datetime.now(UTC)

    trace, prompts = job.state.trace_file, job.state.prompts_file
    sources = Sources(Path(trace) if trace else None, Path(prompts) if prompts else None)
    async with open_http() as http:
        place = LocalPlace(command, address, api_key, sources, job.directory, http, clock)
        try:
            with Narrator(console) as narrator:
                return await tune(job.state, place, job.directory, narrator, clock)
        finally:
            await place.close()


def _print(report: TuneReport, state: TuneState, console: Console) -> None:
    from kneekeeper.local.tables import chart_of_stages, table_of_stages

    if not state.status.stages:
        return  # nothing was measured, and why has been told
    console.print()
    console.print(table_of_stages(state.status.stages, console.width))
    picture = chart_of_stages(state.status.stages)
    if picture:
        console.print(picture, highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(report.message, highlight=False, markup=False, soft_wrap=True)
    if report.choice is not None:
        chosen = report.choice
        tokens = chosen.output_tokens_per_second
        made = "" if tokens is None else f"{tokens:.4g} output tokens/s, "
        console.print(
            f"Certified: {made}{chosen.requests_per_second:.3g} requests/s with --max-num-seqs {chosen.max_num_seqs} "
            f"--max-num-batched-tokens {chosen.max_num_batched_tokens} (bound by {chosen.bound_by}), "
            f"{report.engine_starts} engine starts, {report.elapsed_s:.0f} s.",
            highlight=False,
            soft_wrap=True,
        )


def _advise(report: TuneReport, console: Console) -> None:
    """The last word: whether to switch, and to what."""
    from kneekeeper.local.report import Advice

    chosen, present = report.choice, report.present
    if chosen is None or present is None:
        return
    new, old = (f"{each.max_num_seqs}/{each.max_num_batched_tokens}" for each in (chosen, present))
    keep = f"Keep the present setting {old}"
    if new == old:
        said = f"\n{keep}: nothing better was found."
    elif report.advice is Advice.KEEP:
        said = f"\nThe proven alternative:\n\n  {chosen.command}\n\n{keep}: {new} is not shown to be better."
    elif report.advice is Advice.SWITCH:
        said = f"\nSwitch from {old} to {new}:\n\n  {chosen.command}\n"
    else:
        said = f"\nProven, but not compared with the present setting {old}. To switch:\n\n  {chosen.command}\n"
    console.print(said, highlight=False, markup=False, soft_wrap=True)
