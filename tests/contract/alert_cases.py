"""For every alert: series with which it fires, what it then says, and series with which it stays quiet."""

from __future__ import annotations

from dataclasses import dataclass

Series = dict[str, str]
"""By series in PromQL's notation, values a minute apart in promtool's: `0+1x5` counts up, `_` is a gap."""


@dataclass(frozen=True)
class AlertCase:
    """Both sides of one alert, looked at after `minutes`. Its expression holds from `begins` minutes on, so that the
    alert is still quiet when what `for` asks has nearly passed since then."""

    alert: str
    minutes: int
    fires: Series
    labels: dict[str, str]
    summary: str
    quiet: Series
    begins: int = 0


CHAT = 'namespace="prod",profile="chat"'
OF_CHAT = {"namespace": "prod", "profile": "chat"}


def condition(type_: str, status: str, reason: str) -> str:
    return f'kneekeeper_profile_condition{{{CHAT},type="{type_}",status="{status}",reason="{reason}"}}'


def _condition_case(
    alert: str, minutes: int, type_: str, status: str, reason: str, summary: str, *, by_reason: bool = True
) -> AlertCase:
    other = "True" if status == "False" else "False"
    return AlertCase(
        alert=alert,
        minutes=minutes,
        fires={condition(type_, status, reason): "1x500", condition(type_, other, reason): "0x500"},
        labels=OF_CHAT | ({"reason": reason} if by_reason else {}),
        summary=summary,
        quiet={condition(type_, status, reason): "0x500", condition(type_, other, reason): "1x500"},
    )


FORBIDDEN = 'kneekeeper_kube_requests_total{method="PATCH",code="403"}'
HEADROOM = f'kneekeeper_replica_headroom_ratio{{{CHAT},pod="chat-a",node="n1",gpu_product="L40S"}}'
OBSERVED = f"kneekeeper_profile_observed_timestamp_seconds{{{CHAT}}}"
STEP = f'kneekeeper_run_step{{{CHAT},run="chat-1",step="Ramp",waiting_for="%s"}}'
STARTED = f'kneekeeper_run_started_timestamp_seconds{{{CHAT},run="chat-1"}}'
BORROWED = f'kneekeeper_run_borrowed_replicas{{{CHAT},run="chat-1"}}'
OF_REPLICA = OF_CHAT | {"pod": "chat-a", "node": "n1", "gpu_product": "L40S"}

CASES: tuple[AlertCase, ...] = (
    AlertCase(
        "KneekeeperDown",
        minutes=30,
        fires={'kneekeeper_build_info{version="1"}': "1x5 _x60"},
        labels={},
        summary="No kneekeeper operator is scraped.",
        quiet={'kneekeeper_build_info{version="1"}': "1x60"},
        begins=10,
    ),
    AlertCase(
        "KneekeeperTicksFailing",
        minutes=60,
        fires={
            'kneekeeper_tick_failures_total{kind="TuningRun"}': "0+3x100",
            'kneekeeper_tick_duration_seconds_count{kind="TuningRun"}': "0+6x100",
        },
        labels={"kind": "TuningRun"},
        summary="50% of the steps for TuningRun objects fail.",
        quiet={
            'kneekeeper_tick_failures_total{kind="TuningRun"}': "0+1x100",
            'kneekeeper_tick_duration_seconds_count{kind="TuningRun"}': "0+6x100",
        },
        begins=5,
    ),
    AlertCase(
        "KneekeeperForbidden",
        minutes=60,
        fires={FORBIDDEN: "0+1x100"},
        labels={"method": "PATCH"},
        summary="The API server forbids PATCH requests of kneekeeper.",
        quiet={FORBIDDEN: "5x100", 'kneekeeper_kube_requests_total{method="PATCH",code="200"}': "0+1x100"},
        begins=5,
    ),
    AlertCase(
        "KneekeeperProfileNotObserved",
        minutes=60,
        fires={OBSERVED: "0x100"},
        labels=OF_CHAT,
        summary="Profile prod/chat was not looked at for 1h 0m 0s.",
        quiet={OBSERVED: "0+60x100"},
        begins=35,
    ),
    _condition_case(
        "KneekeeperProfileRefused",
        20,
        "Accepted",
        "False",
        "NotSupported",
        "Profile prod/chat is not accepted: NotSupported.",
    ),
    _condition_case(
        "KneekeeperTargetNotFound",
        20,
        "TargetFound",
        "False",
        "ContainerNotFound",
        "The workload of profile prod/chat is not found or not understood: ContainerNotFound.",
    ),
    _condition_case(
        "KneekeeperMetricsMissing",
        40,
        "MetricsAvailable",
        "False",
        "MetricsMissing",
        "Pods of profile prod/chat tell no metrics.",
        by_reason=False,
    ),
    _condition_case(
        "KneekeeperDegraded",
        10,
        "Degraded",
        "True",
        "OutOfMemory",
        "The workload of profile prod/chat is degraded: OutOfMemory.",
    ),
    AlertCase(
        "KneekeeperRolledBack",
        minutes=30,
        fires={f'kneekeeper_rollouts_finished_total{{{CHAT},result="RolledBack"}}': "0x10 1x100"},
        labels=OF_CHAT | {"result": "RolledBack"},
        summary="A setting of profile prod/chat was taken back.",
        quiet={
            f'kneekeeper_rollouts_finished_total{{{CHAT},result="RolledBack"}}': "0x100",
            f'kneekeeper_rollouts_finished_total{{{CHAT},result="Kept"}}': "0x10 1x100",
        },
    ),
    _condition_case(
        "KneekeeperDrifted",
        40,
        "Drifted",
        "True",
        "ChangedByOther",
        "Somebody changed the limits of profile prod/chat: ChangedByOther.",
    ),
    _condition_case(
        "KneekeeperContested",
        40,
        "Contested",
        "True",
        "WritesOverHelm",
        "Another tool owns the arguments of profile prod/chat.",
        by_reason=False,
    ),
    AlertCase(
        "KneekeeperImpossibleSLO",
        minutes=10,
        fires={condition("Recommended", "False", "ImpossibleSLO"): "1x20"},
        labels=OF_CHAT,
        summary="No setting holds the targets of profile prod/chat.",
        quiet={condition("Recommended", "False", "NotCertified"): "1x20"},
    ),
    AlertCase(
        "KneekeeperReplicaBeyondKnee",
        minutes=20,
        fires={HEADROOM: "-0.2x60"},
        labels=OF_REPLICA,
        summary="Pod prod/chat-a works beyond its knee.",
        quiet={HEADROOM: "-0.2x10 0.3x60"},
    ),
    AlertCase(
        "KneekeeperLittleHeadroom",
        minutes=90,
        fires={HEADROOM: "0.05x100", HEADROOM.replace("chat-a", "chat-b"): "0.8x100"},
        labels=OF_CHAT,
        summary="The fullest replica of profile prod/chat has 5% to spare.",
        quiet={HEADROOM: "-0.2x100"},
    ),
    AlertCase(
        "KneekeeperRunsWithoutResult",
        minutes=120,
        fires={
            f'kneekeeper_runs_finished_total{{{CHAT},outcome="Failed"}}': "0x10 1x200",
            f'kneekeeper_runs_finished_total{{{CHAT},outcome="Inconclusive"}}': "0x60 1x200",
        },
        labels=OF_CHAT,
        summary="Runs of profile prod/chat keep ending without a result.",
        quiet={
            f'kneekeeper_runs_finished_total{{{CHAT},outcome="Failed"}}': "0x200",
            f'kneekeeper_runs_finished_total{{{CHAT},outcome="Certified"}}': "0+1x200",
        },
    ),
    AlertCase(
        "KneekeeperRunWaiting",
        minutes=400,
        fires={STEP % "NoSpareGPU": "1x500"},
        labels=OF_CHAT | {"run": "chat-1", "waiting_for": "NoSpareGPU"},
        summary="Run prod/chat-1 waits for NoSpareGPU.",
        quiet={STEP % "": "1x500"},
    ),
    AlertCase(
        "KneekeeperRunTooLong",
        minutes=420,
        fires={STARTED: "0x500", STEP % "": "1x500"},
        labels=OF_CHAT | {"run": "chat-1"},
        summary="Run prod/chat-1 goes on for 7h 0m 0s.",
        quiet={STARTED: "0x500", STEP % "NoSpareGPU": "1x500"},
        begins=365,
    ),
    AlertCase(
        "KneekeeperReplicaNotReturned",
        minutes=200,
        fires={BORROWED: "1x300"},
        labels=OF_CHAT | {"run": "chat-1"},
        summary="Run prod/chat-1 holds a replica of profile chat for hours.",
        quiet={BORROWED: "0x300"},
    ),
)

RECORDED: dict[str, tuple[Series, dict[str, str], float]] = {
    "profile:kneekeeper_replica_capacity_requests_per_second:avg": (
        {
            f'kneekeeper_replica_capacity_requests_per_second{{{CHAT},pod="chat-a"}}': "8x20",
            f'kneekeeper_replica_capacity_requests_per_second{{{CHAT},pod="chat-b"}}': "4x20",
        },
        OF_CHAT,
        6.0,
    ),
    "profile:kneekeeper_replica_knee_concurrency:avg": (
        {
            f'kneekeeper_replica_knee_concurrency{{{CHAT},pod="chat-a"}}': "48x20",
            f'kneekeeper_replica_knee_concurrency{{{CHAT},pod="chat-b"}}': "32x20",
        },
        OF_CHAT,
        40.0,
    ),
    "profile:kneekeeper_replica_headroom_ratio:min": (
        {HEADROOM: "0.25x20", HEADROOM.replace("chat-a", "chat-b"): "0.5x20"},
        OF_CHAT,
        0.25,
    ),
    "kind:kneekeeper_tick_failures:ratio_rate10m": (
        {
            'kneekeeper_tick_failures_total{kind="TuningRun"}': "0+3x20",
            'kneekeeper_tick_duration_seconds_count{kind="TuningRun"}': "0+6x20",
        },
        {"kind": "TuningRun"},
        0.5,
    ),
}
"""For every recorded series: what it is made of, its labels, and its value after 15 minutes."""
