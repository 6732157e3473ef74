"""What `kneekeeper tune` is asked for: a new run, or one that goes on."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr, ValidationError

from kneekeeper.api.model import LocalReference
from kneekeeper.api.serving_profile import (
    Budget,
    EndpointSpec,
    Ladder,
    Objective,
    Probe,
    ServingProfileSpec,
    TargetRef,
)
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.api.workload import SloTargets
from kneekeeper.cli import fields
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.fields import bounds_of, explain, fields_of, with_files, workload_of
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.local.defaults import TRAFFIC
from kneekeeper.local.state import FILE, NAME, TuneState, asks_the_same, default_directory, load, new_uid, resumed
from kneekeeper.local.wording import for_tune

_OF_A_NEW_RUN = (
    *("command", "ttft", "tpot", "e2e", "objective", "workload", "trace", "prompts"),
    *("bounds", "budget", "ladder", "api_key_file", "state"),
)


@dataclass(frozen=True)
class Job:
    """One run on this machine, and where its traces stay."""

    state: TuneState
    directory: Path
    keep: bool
    report: Path | None


def job_of(arguments: argparse.Namespace) -> Job:
    """What to do. Raises CannotError and StateError."""
    report: Path | None = arguments.report
    if report is not None and (report.is_dir() or not report.absolute().parent.is_dir()):
        raise CannotError(f"--report: {report} is a folder, or is in one that does not exist")
    if arguments.resume is not None:
        given = next((option for option in _OF_A_NEW_RUN if getattr(arguments, option)), None)
        if given is not None:
            told = "the command" if given == "command" else f"--{given.replace('_', '-')}"
            raise CannotError(f"--resume goes on with what the interrupted run was given: leave {told} out")
        state = resumed(load(arguments.resume), datetime.now(UTC))
        return Job(state, arguments.resume, True, arguments.report)
    uid = new_uid()
    state = _new_state(arguments, uid)
    if arguments.state is None:
        return Job(state, default_directory(uid), False, arguments.report)
    if (arguments.state / FILE).exists():
        stored = load(arguments.state)
        if not asks_the_same(stored, state):
            raise CannotError(f"--state: {arguments.state} holds a run that asks something else; give another folder")
        if stored.status.step is not RunStep.DONE:
            state = resumed(stored, datetime.now(UTC))
    return Job(state, arguments.state, True, arguments.report)


def _new_state(arguments: argparse.Namespace, uid: str) -> TuneState:

    objective = Objective((arguments.objective or "interactive").capitalize())
    promised = any(target is not None for target in (arguments.ttft, arguments.tpot, arguments.e2e))
    if objective is Objective.INTERACTIVE and not promised:
        raise CannotError("promise something: --ttft 500ms, --tpot 40ms, --e2e 30s, or several of them")
    if objective is Objective.THROUGHPUT and promised:
        raise CannotError("--objective throughput judges no latency: leave --ttft, --tpot and --e2e out")
    key_file = _absolute(arguments.api_key_file)
    has_key = api_key_of(key_file) is not None
    workload = with_files(workload_of(arguments.workload, TRAFFIC), arguments.trace, arguments.prompts)
    try:
        slo = SloTargets.model_validate({"p99TTFT": arguments.ttft, "p99TPOT": arguments.tpot, "p99E2E": arguments.e2e})
        profile = ServingProfileSpec(
            target_ref=TargetRef(kind="Deployment", name=NAME),
            slo=slo,
            objective=objective,
            workload=workload,
            parameters=bounds_of(arguments.bounds),
            probe=Probe(
                budget=fields_of("--budget", arguments.budget, Budget),
                ladder=fields_of("--ladder", arguments.ladder, Ladder),
            ),
            endpoint=EndpointSpec(api_key_secret_ref=LocalReference(name=NAME) if has_key else None),
        )
    except ValidationError as error:
        raise CannotError(explain(error)) from error
    problem = spec_problem(profile)
    if problem is not None:
        raise CannotError(for_tune(problem.message))
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


def api_key_of(file: str | None) -> SecretStr | None:
    """From the file, else where vLLM itself looks for it. Raises CannotError."""
    found = os.environ.get("VLLM_API_KEY")
    if file is not None:
        return fields.api_key_of(Path(file))
    return SecretStr(found) if found else None
