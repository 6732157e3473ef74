"""`kneekeeper tune`: the run of a cluster on a local process."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import SecretStr
    from rich.console import Console

    from kneekeeper.local.command import Address, ServerCommand
    from kneekeeper.local.report import TuneReport
    from kneekeeper.local.state import TuneState

_DESCRIPTION = """\
Find the best --max-num-seqs and --max-num-batched-tokens for a vLLM server on this machine, and prove them.

The server's command follows `--`. It is started with the highest limits, loaded step by step, started again with the
limits that the measurement proposes, and certified: under open-loop load at 1.2 times the promised rate fewer than 1%
of the requests may miss the targets. At last the command's own limits are loaded alike. Any command that takes vLLM's
flags and speaks its API works. Nothing else should use the GPU meanwhile."""

_EPILOG = """\
exit codes:
  0    a setting is certified; the new command line is printed
  1    failed: no setting holds the targets, or the server does not start; the message has the next step
  2    wrong usage
  3    inconclusive: the machine drifted, the client was starved, or the budget ran out
  130  after Ctrl-C; nothing is left running, and `kneekeeper tune --resume DIR` goes on

examples:
  kneekeeper tune --ttft 500ms --tpot 40ms -- vllm serve Qwen/Qwen3-8B --max-model-len 8192
  kneekeeper tune --tpot 12.5ms --bounds seqs=8..128 --workload chat.yaml --report result.json -- vllm serve MODEL"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`kneekeeper tune`."""
    parser = commands.add_parser(
        "tune",
        help="find and prove the best limits of a vLLM server on this machine",
        usage="kneekeeper tune (--ttft TIME | --tpot TIME | …) [options] -- COMMAND …\n"
        "       kneekeeper tune --resume DIR",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ttft", metavar="TIME", help="P99 time to first token, such as 500ms")
    parser.add_argument("--tpot", metavar="TIME", help="P99 time per output token, such as 40ms or 12.5ms")
    parser.add_argument(
        "--workload",
        metavar="FILE.yaml",
        type=Path,
        help="what the traffic looks like: the workload section of a ServingProfile "
        "(default: LogNormal prompts of 512 tokens, p99 2000, answers of 128, p99 400, Poisson)",
    )
    parser.add_argument("--trace", metavar="FILE", type=Path, help="times and lengths of requests to replay instead")
    parser.add_argument("--prompts", metavar="FILE.jsonl", type=Path, help="real prompts, one JSON object a line")
    parser.add_argument(
        "--bounds", metavar="RANGES", help="where to search: seqs=8..256,tokens=512..8192; each end may be left out"
    )
    parser.add_argument(
        "--budget",
        metavar="FIELDS",
        help="as spec.probe.budget of a ServingProfile: maxMeasureDuration=30m,startTimeout=30m,maxRestarts=3",
    )
    parser.add_argument(
        "--ladder",
        metavar="FIELDS",
        help="as spec.probe.ladder: maxConcurrency=512,maxStageDuration=2m,recovery=2s,controlTolerancePercent=15",
    )
    parser.add_argument("--api-key-file", metavar="FILE", type=Path, help="the key that the server asks for")
    parser.add_argument("--report", metavar="FILE.json", type=Path, help="write what was found as JSON")
    parser.add_argument(
        "--state",
        metavar="DIR",
        type=Path,
        help="keep state, samples and server logs here; an unfinished run of the same question goes on",
    )
    parser.add_argument("--resume", metavar="DIR", type=Path, help="go on with an interrupted run")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="the server's command, with its flags")
    parser.set_defaults(run=_run)


@dataclass(frozen=True)
class _Job:
    state: TuneState
    directory: Path
    keep: bool
    report: Path | None


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.fields import UsageError
    from kneekeeper.cli.terminal import open_console
    from kneekeeper.local.command import CommandError, read_command
    from kneekeeper.local.report import ExitCode
    from kneekeeper.local.state import StateError, locked

    console = open_console()
    try:
        job = _job(arguments)
        command = read_command(job.state.words, os.environ)
        with locked(job.directory):
            return _tune(job, command, console)
    except (UsageError, CommandError, StateError) as error:
        print(f"kneekeeper tune: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except OSError as error:
        print(f"kneekeeper tune: {error}", file=sys.stderr)
        return ExitCode.FAILED


def _job(arguments: argparse.Namespace) -> _Job:
    """What to do. Raises UsageError and StateError."""
    from kneekeeper.api.tuning_run import RunStep
    from kneekeeper.cli.fields import UsageError
    from kneekeeper.local.state import FILE, asks_the_same, default_directory, load, new_uid, resumed

    if arguments.report is not None and not arguments.report.absolute().parent.is_dir():
        raise UsageError(f"--report: the folder of {arguments.report} does not exist")
    if arguments.resume is not None:
        if arguments.command or arguments.ttft or arguments.tpot or arguments.workload or arguments.bounds:
            raise UsageError("--resume goes on with the command and the targets of the interrupted run; leave them out")
        state = resumed(load(arguments.resume), datetime.now(UTC))
        return _Job(state, arguments.resume, True, arguments.report)
    uid = new_uid()
    state = _new_state(arguments, uid)
    if arguments.state is None:
        return _Job(state, default_directory(uid), False, arguments.report)
    if (arguments.state / FILE).exists():
        stored = load(arguments.state)
        if not asks_the_same(stored, state):
            raise UsageError(f"--state: {arguments.state} holds a run that asks something else; give another folder")
        if stored.status.step is not RunStep.DONE:
            state = resumed(stored, datetime.now(UTC))
    return _Job(state, arguments.state, True, arguments.report)


def _new_state(arguments: argparse.Namespace, uid: str) -> TuneState:
    from pydantic import ValidationError

    from kneekeeper.api.model import LocalReference
    from kneekeeper.api.serving_profile import Budget, EndpointSpec, Ladder, Probe, ServingProfileSpec, TargetRef
    from kneekeeper.api.workload import SloTargets
    from kneekeeper.cli.fields import UsageError, bounds_of, explain, fields_of, with_files, workload_of
    from kneekeeper.local.defaults import TRAFFIC
    from kneekeeper.local.state import NAME, TuneState

    if arguments.ttft is None and arguments.tpot is None:
        raise UsageError("promise something: --ttft 500ms, --tpot 40ms, or both")
    key_file = _absolute(arguments.api_key_file)
    has_key = _api_key(key_file) is not None
    workload = with_files(workload_of(arguments.workload, TRAFFIC), arguments.trace, arguments.prompts)
    try:
        slo = SloTargets.model_validate({"p99TTFT": arguments.ttft, "p99TPOT": arguments.tpot})
        profile = ServingProfileSpec(
            target_ref=TargetRef(kind="Deployment", name=NAME),
            slo=slo,
            workload=workload,
            parameters=bounds_of(arguments.bounds),
            probe=Probe(
                budget=fields_of("--budget", arguments.budget, Budget),
                ladder=fields_of("--ladder", arguments.ladder, Ladder),
            ),
            endpoint=EndpointSpec(api_key_secret_ref=LocalReference(name=NAME) if has_key else None),
        )
    except ValidationError as error:
        raise UsageError(explain(error)) from error
    return TuneState(
        uid=uid,
        words=arguments.command,
        profile=profile,
        api_key_file=key_file,
        trace_file=_absolute(arguments.trace),
        prompts_file=_absolute(arguments.prompts),
    )


def _absolute(path: Path | None) -> str | None:
    """As it is found again from another working directory."""
    return None if path is None else str(path.resolve())


def _api_key(file: str | None) -> SecretStr | None:
    """From the file, else where vLLM itself looks for it. Raises UsageError."""
    from pydantic import SecretStr

    from kneekeeper.cli.fields import api_key_of

    found = os.environ.get("VLLM_API_KEY")
    if file is not None:
        return api_key_of(Path(file))
    return SecretStr(found) if found else None


def _tune(job: _Job, command: ServerCommand, console: Console) -> int:
    """Run it to its end. Raises CommandError, UsageError and OSError."""
    from kneekeeper.cli.terminal import Interrupted, run_until_signal
    from kneekeeper.local.command import address_of
    from kneekeeper.local.report import ExitCode, exit_code_of, report_of

    address, api_key = address_of(command), _api_key(job.state.api_key_file)
    try:
        state = run_until_signal(_until_done(job, command, address, api_key, console))
    except Interrupted:
        console.print("\nInterrupted; nothing is left running. Go on with:", highlight=False)
        console.print(f"  kneekeeper tune --resume {shlex.quote(str(job.directory))}", highlight=False, soft_wrap=True)
        return ExitCode.INTERRUPTED
    report = report_of(state, command)
    if job.report is not None:
        report.write(job.report)
    code = exit_code_of(state.status)
    _print(report, state, console)
    if code is ExitCode.CERTIFIED and not job.keep:
        shutil.rmtree(job.directory, ignore_errors=True)
    else:
        console.print(f"State, samples and server logs: {job.directory}", highlight=False, soft_wrap=True)
    return code


async def _until_done(
    job: _Job, command: ServerCommand, address: Address, api_key: SecretStr | None, console: Console
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

    console.print()
    console.print(table_of_stages(state.status.stages, console.width))
    picture = chart_of_stages(state.status.stages)
    if picture:
        console.print(picture, highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(report.message, highlight=False, markup=False, soft_wrap=True)
    if report.choice is not None:
        chosen = report.choice
        console.print(
            f"Certified: {chosen.requests_per_second:.3g} requests/s with --max-num-seqs {chosen.max_num_seqs} "
            f"--max-num-batched-tokens {chosen.max_num_batched_tokens} (bound by {chosen.bound_by}), "
            f"{report.engine_starts} engine starts, {report.elapsed_s:.0f} s.",
            highlight=False,
            soft_wrap=True,
        )
        console.print(f"\n  {chosen.command}\n", highlight=False, markup=False, soft_wrap=True)
