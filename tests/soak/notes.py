"""What is noted on the way: runs, rollbacks, what users are promised just now, and bugs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kneekeeper.api.tuning_run import Trigger
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.plan.requests import lengths_of
from kneekeeper.handlers.ticks import RUN
from kneekeeper.kube.resources import Resource
from kneekeeper.observe.own_resources import parse_profile, parse_run
from tests.soak.production import Production, Promise
from tests.soak.users import Lengths


class _Bugs(logging.Handler):
    """What the operator's log calls a bug, in one line each."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self.told.append(f"{record.getMessage()}: {cause!r}"[:500])


@contextmanager
def bugs() -> Iterator[list[str]]:
    """Those of the block, which logs nothing else: thousands of faults are told."""
    log, heard = logging.getLogger("kneekeeper"), _Bugs()
    level, propagate = log.level, log.propagate
    log.addHandler(heard)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield heard.told
    finally:
        log.removeHandler(heard)
        log.setLevel(level)
        log.propagate = propagate


@dataclass
class Notes:
    """Taken from every profile and run that is written."""

    clock_s: Callable[[], float]
    productions: Mapping[str, Production]
    """By namespace."""
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Trigger and outcome of every run that ended, by namespace and name."""
    rollbacks: set[tuple[str, str]] = field(default_factory=set)
    _measured: dict[str, Lengths] = field(default_factory=dict)
    _promised: dict[str, tuple[object, ...]] = field(default_factory=dict)

    @property
    def retunes(self) -> int:
        """Runs of an engine or a traffic that changed, and those that were tried again."""
        return sum(trigger != Trigger.NEW for trigger, _ in self.runs.values())

    def take(self, kind: str, each: Resource) -> None:
        """An object as it stands."""
        (self._of_run if kind == RUN else self._of_profile)(each)

    def gone(self, namespace: str) -> None:
        """There is no profile any more, and no promise."""
        self._promised.pop(namespace, None)
        self._promise(namespace, None)

    def _of_run(self, run: Resource) -> None:
        status = run.get("status") or {}
        name = f"{run['metadata']['namespace']}/{run['metadata']['name']}"
        if not status.get("finishedAt") or name in self.runs:
            return
        self.runs[name] = str(run["spec"].get("trigger")), str(status.get("outcome"))
        plan = parse_run(run).status.plan
        workload = None if plan is None else plan.profile_spec.workload
        if workload is not None and workload.prompt_tokens is not None and workload.output_tokens is not None:
            means = (mean_tokens(lengths_of(each, None)) for each in (workload.prompt_tokens, workload.output_tokens))
            self._measured[name] = Lengths(*(round(mean) for mean in means))

    def _of_profile(self, profile: Resource) -> None:
        namespace, status = profile["metadata"]["namespace"], profile.get("status") or {}
        self.rollbacks |= {(namespace, str(rejected["at"])) for rejected in status.get("rejected") or []}
        ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "")
        proven = status.get("recommendation") or {}
        told = (ready, proven.get("hash"), proven.get("run"), profile["metadata"]["generation"])
        if self._promised.get(namespace) != told:
            self._promised[namespace] = told
            self._promise(namespace, profile if ready == "True" else None)

    def _promise(self, namespace: str, profile: Resource | None) -> None:
        production = self.productions[namespace]
        production.advance(self.clock_s())
        production.promise = None
        if profile is None:
            return
        parsed = parse_profile(profile)
        proven, slo = parsed.status.recommendation, parsed.spec.slo
        measured = None if proven is None else self._measured.get(f"{namespace}/{proven.run}")
        if proven is None or not proven.is_certified or measured is None:
            return
        production.promise = Promise(
            setting=proven.setting,
            per_s=proven.promised_requests_per_second,
            ttft_s=slo.p99_ttft or math.inf,
            tpot_s=slo.p99_tpot or math.inf,
            measured=measured,
        )
