"""A tuning run as it lies on disk: after each decision, so that it can go on after an interruption."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from kneekeeper.api.model import ApiModel
from kneekeeper.api.quantities import Duration
from kneekeeper.api.serving_profile import ServingProfile, ServingProfileSpec
from kneekeeper.api.tuning_run import RunStep, TuningRun, TuningRunSpec, TuningRunStatus

FILE = "run.json"
NAME = "tune"


class StateError(Exception):
    """The state cannot be used. The message has the next step."""


class TuneState(ApiModel):
    """Everything that an interrupted run needs to go on: the command as it was given, of an API key where it lies."""

    version: Literal[1] = 1
    uid: str = Field(description="Goes into every seed.")
    words: list[str] = Field(description="The server's command.")
    profile: ServingProfileSpec = Field(description="What is asked, as in a cluster.")
    api_key_file: str | None = Field(default=None, description="Where the server's API key lies.")
    trace_file: str | None = Field(default=None, description="Where the trace of profile.workload lies.")
    prompts_file: str | None = Field(default=None, description="Where its prompts lie.")
    elapsed: Duration = Field(default=0.0, description="Time that the run took so far, interruptions left out.")
    status: TuningRunStatus = Field(default=TuningRunStatus(), description="How far it is.")

    def run(self) -> TuningRun:
        """The run as the plan sees it."""
        metadata = {"name": NAME, "uid": self.uid, "generation": 1}
        return TuningRun(metadata=metadata, spec=TuningRunSpec(profile_name=NAME), status=self.status)

    def serving_profile(self) -> ServingProfile:
        """The profile as the plan sees it."""
        return ServingProfile(metadata={"name": NAME, "generation": 1}, spec=self.profile)


def new_uid() -> str:
    """An identity that no run had."""
    return uuid.uuid4().hex


def default_directory(uid: str) -> Path:
    """Where a run's state lies unless the user says where: `$XDG_STATE_HOME`, else ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME")
    root = Path(base) if base else Path.home() / ".local" / "state"
    return root / "kneekeeper" / f"tune-{uid[:8]}"


def resumed(state: TuneState, now: datetime) -> TuneState:
    """The state from which the run goes on with a new engine start.

    That start is not the run's fault, so its budget is one larger; what waited for a start waits from now on.
    """
    status = state.status
    if status.step is RunStep.DONE or status.clone is None or status.plan is None:
        return state
    budget = state.profile.probe.budget
    probe = state.profile.probe.with_changes(budget=budget.with_changes(max_restarts=min(20, budget.max_restarts + 1)))
    profile = state.profile.with_changes(probe=probe)
    clone = status.clone if status.clone.ready_at is not None else status.clone.with_changes(since=now)
    plan = status.plan.with_changes(profile_spec=profile)
    return state.with_changes(profile=profile, status=status.with_changes(plan=plan, clone=clone))


def asks_the_same(stored: TuneState, asked: TuneState) -> bool:
    """Whether both measure the same server for the same targets; what a run may cost may differ."""

    def question(state: TuneState) -> tuple[object, ...]:
        spec = state.profile
        ladder = spec.probe.ladder
        asked = (spec.slo, spec.objective, spec.workload, spec.parameters, ladder)
        return (state.words, *asked, state.trace_file, state.prompts_file)

    return question(stored) == question(asked)


def store(directory: Path, state: TuneState) -> None:
    """Write it whole or not at all. Raises OSError."""
    partial = directory / f"{FILE}.partial"
    partial.write_text(state.model_dump_json(by_alias=True, exclude_none=True), encoding="utf-8")
    partial.replace(directory / FILE)


def load(directory: Path) -> TuneState:
    """The state that was stored there. Raises StateError."""
    path = directory / FILE
    try:
        return TuneState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise StateError(f"{path} does not exist. Give --resume the folder that the interrupted run named.") from None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}. Start the run anew.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise StateError(
            f"{path} is no run of this version ({place or 'as a whole'}: {first['msg']}). Start the run anew, with "
            "another --state."
        ) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make the folder, for this user alone, and hold it for this process.

    Raises StateError when another one has it, or when nothing can be kept there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = (directory / "lock").open("w")
    except OSError as error:
        raise StateError(f"{directory} cannot hold the run's state: {error.strerror}. Give another --state.") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"Another kneekeeper works in {directory}. Wait for it, or give another --state."
            ) from None
        yield
