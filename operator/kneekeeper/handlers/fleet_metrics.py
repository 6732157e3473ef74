"""What Prometheus is told of every profile, run and serving pod, read from their status.

A profile's series appear with its first tick and go with the profile: nothing is told of what is gone. All of it
but the counters is read from status at scrape time, so that a restarted operator tells the same after one tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import RunOutcome, TuningRun, TuningRunStatus
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.replica_gauges import REPLICA_GAUGES, Gauge, Reading, one


class RolloutResult(StrEnum):
    KEPT = "Kept"
    ROLLED_BACK = "RolledBack"


@dataclass(frozen=True)
class RunGauge:
    """One gauge of a run that is not over."""

    name: str
    help: str
    read: Callable[[TuningRun], Iterable[Reading]]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Count:
    """One counter of a profile since the operator's start; `values` stand at 0 from its first tick on, so that the
    first increase is seen as one."""

    name: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)


def _limits(setting: Setting | None) -> Iterator[Reading]:
    if setting is not None:
        yield ("max_num_seqs",), setting.max_num_seqs
        yield ("max_num_batched_tokens",), setting.max_num_batched_tokens


def _info(profile: ServingProfile) -> Iterator[Reading]:
    target, engine = profile.spec.target_ref, profile.status.engine
    facts = (engine.model, engine.gpu_product) if engine else ("", "")
    yield (target.kind, target.name, *facts, str(profile.spec.update_policy.mode)), 1.0


def _conditions(profile: ServingProfile) -> Iterator[Reading]:
    for condition in profile.status.conditions:
        for status in ConditionStatus:
            yield (condition.type, str(status), condition.reason), float(condition.status == status)


def _targets(profile: ServingProfile) -> Iterator[Reading]:
    slo = profile.spec.slo
    for name, seconds in (("p99TTFT", slo.p99_ttft), ("p99TPOT", slo.p99_tpot), ("p99E2E", slo.p99_e2e)):
        yield from one(seconds, name)


def _certified(profile: ServingProfile) -> Iterator[Reading]:
    proven = profile.status.recommendation
    if proven is not None:
        yield from one(proven.p99_ttft, "p99TTFT")
        yield from one(proven.p99_tpot, "p99TPOT")
        yield from one(proven.p99_e2e, "p99E2E")


def _present_limits(profile: ServingProfile) -> Iterator[Reading]:
    engine = profile.status.engine
    if engine is not None:
        yield from one(engine.max_num_seqs, "max_num_seqs")
        yield from one(engine.max_num_batched_tokens, "max_num_batched_tokens")


def _of_knee(end: str) -> Callable[[ServingProfile], Iterator[Reading]]:
    return lambda profile: one(getattr(profile.status.knee, end, None))


def _of_recommendation(field: str) -> Callable[[ServingProfile], Iterator[Reading]]:
    return lambda profile: one(getattr(profile.status.recommendation, field, None))


def _promised(profile: ServingProfile) -> Iterator[Reading]:
    proven = profile.status.recommendation
    if proven is not None and proven.is_certified:
        yield from one(proven.promised_requests_per_second)


GAUGES: tuple[Gauge, ...] = (
    Gauge(
        "kneekeeper_profile_info",
        "1; its labels tell the workload and what is done with a proven setting.",
        _info,
        ("target_kind", "target_name", "model", "gpu_product", "mode"),
    ),
    Gauge(
        "kneekeeper_profile_condition",
        "1 for the status that a condition of the profile has, 0 for the others.",
        _conditions,
        ("type", "status", "reason"),
    ),
    Gauge("kneekeeper_profile_slo_target_seconds", "What users were promised.", _targets, ("target",)),
    Gauge(
        "kneekeeper_profile_certified_p99_seconds",
        "P99 of the recommended setting, as measured in certification at 1.2 times the promised rate.",
        _certified,
        ("target",),
    ),
    Gauge(
        "kneekeeper_profile_promised_requests_per_second",
        "Rate of one replica that was proven for the recommended setting.",
        _promised,
    ),
    Gauge(
        "kneekeeper_profile_sustainable_requests_per_second",
        "Highest rate of one replica that is predicted to hold the targets.",
        _of_recommendation("sustainable_requests_per_second"),
    ),
    Gauge(
        "kneekeeper_profile_present_limit", "Limits as set in the workload's arguments.", _present_limits, ("limit",)
    ),
    Gauge(
        "kneekeeper_profile_recommended_limit",
        "Limits of the recommended setting.",
        lambda profile: _limits(getattr(profile.status.recommendation, "setting", None)),
        ("limit",),
    ),
    Gauge(
        "kneekeeper_profile_applied_limit",
        "Limits that kneekeeper last wrote and kept.",
        lambda profile: _limits(getattr(profile.status.applied, "setting", None)),
        ("limit",),
    ),
    Gauge(
        "kneekeeper_profile_knee_concurrency",
        "Concurrent requests of one replica at the knee.",
        _of_knee("concurrency"),
    ),
    Gauge("kneekeeper_profile_knee_concurrency_lower", "Lower end of the knee's 90% interval.", _of_knee("lower")),
    Gauge("kneekeeper_profile_knee_concurrency_upper", "Upper end of the knee's 90% interval.", _of_knee("upper")),
    Gauge(
        "kneekeeper_profile_replicas",
        "Pods that the workload wants.",
        lambda profile: one(getattr(profile.status.engine, "replicas", None)),
    ),
    *REPLICA_GAUGES,
)


def _since(run: TuningRun) -> Iterator[Reading]:
    started = run.status.started_at
    yield from one(started.timestamp() if started else None)


def _step(run: TuningRun) -> Iterator[Reading]:
    yield (str(run.status.step), run.status.waiting_for), 1.0


def _borrows(run: TuningRun) -> Iterator[Reading]:
    borrowed = run.status.borrowed
    yield from one(None if borrowed is None else float(borrowed.returned_at is None))


RUN_GAUGES: tuple[RunGauge, ...] = (
    RunGauge(
        "kneekeeper_run_step",
        "1; its labels tell the step of a run and what it waits for.",
        _step,
        ("step", "waiting_for"),
    ),
    RunGauge("kneekeeper_run_started_timestamp_seconds", "When a run that is not over began.", _since),
    RunGauge(
        "kneekeeper_run_borrowed_replicas",
        "Replicas that a run took from the workload and did not give back yet.",
        _borrows,
    ),
)

OBSERVED = "kneekeeper_profile_observed_timestamp_seconds"
OBSERVED_HELP = "When the profile was last looked at without an error."

RUNS = Count(
    "kneekeeper_runs_finished",
    "Runs that ended, by outcome.",
    "outcome",
    tuple(str(outcome) for outcome in RunOutcome),
)
ROLLOUTS = Count(
    "kneekeeper_rollouts_finished",
    "Changes of the workload that ended, by result.",
    "result",
    tuple(str(result) for result in RolloutResult),
)
GPU_SECONDS = Count("kneekeeper_run_gpu_seconds", "GPUs times the seconds that finished runs held them.")
COUNTS: tuple[Count, ...] = (RUNS, ROLLOUTS, GPU_SECONDS)

PROFILE_LABELS = ("namespace", "profile")
RUN_LABELS = ("namespace", "profile", "run")


@dataclass(frozen=True)
class _Known:
    """A profile as it stood after its last tick."""

    profile: ServingProfile
    at_s: float


class FleetMetrics(Collector):
    """The collector. Ticks tell it what they stored; a scrape reads it from another thread, in whole copies."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """`clock_s` is Unix time."""
        self._clock_s = clock_s
        self._profiles: dict[Key, _Known] = {}
        self._runs: dict[Key, TuningRun] = {}
        self._counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
        self._counted: dict[Key, tuple[str, str]] = {}

    def profile_seen(self, key: Key, profile: ServingProfile, before: ServingProfileStatus) -> None:
        """A tick stored this status in place of `before`."""
        counts = self._counts_of(key.namespace, key.name)
        for result in finished_rollouts(before, profile.status):
            counts[ROLLOUTS.name, result] += 1
        self._profiles[key] = _Known(profile, self._clock_s())

    def run_seen(self, key: Key, run: TuningRun, before: TuningRunStatus) -> None:
        """A tick stored this status in place of `before`."""
        if run.status.finished_at is None:
            self._runs[key] = run
            return
        self._runs.pop(key, None)
        if before.finished_at is None and run.status.outcome is not None:
            counts = self._counts_of(key.namespace, run.spec.profile_name)
            self._counted[key] = (key.namespace, run.spec.profile_name)
            counts[RUNS.name, run.status.outcome] += 1
            counts[GPU_SECONDS.name, ""] += run.status.cost.gpu_seconds

    def forget(self, key: Key) -> None:
        """The profile or run is gone, and what was counted of a profile with the last that told of it: a run may
        name one that never was."""
        self._runs.pop(key, None)
        owner = self._counted.pop(key, None)
        if self._profiles.pop(key, None) is not None:
            self._counts.pop((key.namespace, key.name), None)
        elif owner is not None and owner not in self._told_of():
            self._counts.pop(owner, None)

    def profile_of(self, run: Key) -> str:
        """The profile of a run that is not over, empty where it was not seen yet."""
        known = self._runs.get(run)
        return known.spec.profile_name if known else ""

    def collect(self) -> Iterator[Metric]:
        """Called for every scrape."""
        profiles = {key: known.profile for key, known in sorted(self._profiles.items())}
        for gauge in GAUGES:
            yield _family(gauge.name, gauge.help, PROFILE_LABELS + gauge.labels, _of_profiles(profiles, gauge))
        seen = [((key.namespace, key.name), known.at_s) for key, known in sorted(self._profiles.items())]
        yield _family(OBSERVED, OBSERVED_HELP, PROFILE_LABELS, seen)
        runs = dict(sorted(self._runs.items()))
        for run_gauge in RUN_GAUGES:
            yield _family(run_gauge.name, run_gauge.help, RUN_LABELS + run_gauge.labels, _of_runs(runs, run_gauge))
        counts = dict(sorted(self._counts.items()))
        for count in COUNTS:
            yield _counter(count, counts)

    def _told_of(self) -> set[tuple[str, str]]:
        """The profiles that are there, and those of runs that were counted and are there."""
        return {(key.namespace, key.name) for key in self._profiles} | set(self._counted.values())

    def _counts_of(self, namespace: str, profile: str) -> Counter[tuple[str, str]]:
        return self._counts.setdefault((namespace, profile), Counter())


def finished_rollouts(before: ServingProfileStatus, after: ServingProfileStatus) -> tuple[RolloutResult, ...]:
    """What the step from one status to the next ended."""
    last = after.rejected[-1] if after.rejected else None
    if last is not None and last not in before.rejected:
        return (RolloutResult.ROLLED_BACK,)
    if before.rollout is not None and after.rollout is None and after.applied not in (None, before.applied):
        return (RolloutResult.KEPT,)
    return ()


def _of_profiles(profiles: Mapping[Key, ServingProfile], gauge: Gauge) -> Iterator[Reading]:
    for key, profile in profiles.items():
        for labels, value in gauge.read(profile):
            yield (key.namespace, key.name, *labels), value


def _of_runs(runs: Mapping[Key, TuningRun], gauge: RunGauge) -> Iterator[Reading]:
    for key, run in runs.items():
        for labels, value in gauge.read(run):
            yield (key.namespace, run.spec.profile_name, key.name, *labels), value


def _family(name: str, help_: str, labels: tuple[str, ...], readings: Iterable[Reading]) -> Metric:
    family = GaugeMetricFamily(name, help_, labels=labels)
    for values, value in readings:
        family.add_metric(values, value)
    return family


def _counter(count: Count, known: Mapping[tuple[str, str], Counter[tuple[str, str]]]) -> Metric:
    own = (count.label,) if count.label else ()
    family = CounterMetricFamily(count.name, count.help, labels=PROFILE_LABELS + own)
    for profile, counted in known.items():
        for value in count.values:
            family.add_metric((*profile, value) if count.label else profile, counted[count.name, value])
    return family
