"""Metrics of profiles, runs and serving pods: told as their status tells, and no longer than they are there."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import Rejected
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.handlers import telemetry
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.fleet_metrics import COUNTS, GAUGES, RUN_GAUGES, FleetMetrics, RolloutResult, finished_rollouts

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHAT = Key("ServingProfile", "prod", "chat")
RUN = Key("TuningRun", "prod", "chat-1")
SETTING = {"maxNumSeqs": 64, "maxNumBatchedTokens": 4096}
WORDS = {"args": ["--max-num-seqs=64"]}
APPLIED = {"setting": SETTING, "before": WORDS, "after": WORDS, "at": NOW, "verified": True}
ROLLOUT = {"step": "Verify", "setting": SETTING, "before": WORDS, "after": WORDS, "startedAt": NOW}

STATUS: dict[str, Any] = {
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "Probing", "lastTransitionTime": NOW},
    ],
    "engine": {
        "container": "vllm",
        "image": "vllm:1",
        "model": "tiny",
        "gpuProduct": "L40S",
        "replicas": 2,
        "maxNumSeqs": 256,
        "fingerprint": "f",
    },
    "recommendation": {
        "setting": SETTING,
        "hash": "h",
        "run": "chat-1",
        "fingerprint": "f",
        "sustainableRequestsPerSecond": "12",
        "promisedRequestsPerSecond": "10",
        "boundBy": "TPOT",
        "p99TPOT": "38ms",
        "improvement": "",
        "patch": "",
    },
    "knee": {"concurrency": "48", "lower": "40", "upper": "60"},
    "applied": APPLIED,
    "replicas": [
        {
            "pod": "chat-a",
            "node": "n1",
            "gpuProduct": "L40S",
            "kneeConcurrency": "48",
            "capacityRequestsPerSecond": "10",
            "running": 30,
            "waiting": 6,
            "headroomPercent": 25,
        },
        {"pod": "chat-b"},
    ],
}


def profile(status: dict[str, Any] | None = None) -> ServingProfile:
    spec = {
        "targetRef": {"kind": "Deployment", "name": "chat"},
        "slo": {"p99TTFT": "500ms", "p99TPOT": "40ms"},
    }
    return ServingProfile.model_validate({"metadata": {"name": "chat"}, "spec": spec, "status": status or {}})


def run(**status: Any) -> TuningRun:
    return TuningRun.model_validate({"metadata": {}, "spec": {"profileName": "chat"}, "status": status})


@pytest.fixture
def fleet() -> FleetMetrics:
    return FleetMetrics(lambda: 1000.0)


def samples(fleet: FleetMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As a Prometheus server reads them, without the two labels that all have."""
    registry = CollectorRegistry()
    registry.register(fleet)
    text = generate_latest(registry).decode()
    return {
        (
            sample.name,
            tuple(sorted((k, v) for k, v in sample.labels.items() if k not in ("namespace", "profile"))),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(fleet: FleetMetrics, name: str, **labels: str) -> float | None:
    return samples(fleet).get((name, tuple(sorted(labels.items()))))


def test_an_idle_operator_tells_nothing(fleet):
    assert samples(fleet) == {}


def test_a_profile_tells_what_was_promised_and_what_is_recommended(fleet):
    fleet.profile_seen(CHAT, profile(STATUS), ServingProfileStatus())
    assert of(fleet, "kneekeeper_profile_slo_target_seconds", target="p99TTFT") == 0.5
    assert of(fleet, "kneekeeper_profile_slo_target_seconds", target="p99E2E") is None
    assert of(fleet, "kneekeeper_profile_certified_p99_seconds", target="p99TPOT") == pytest.approx(0.038)
    assert of(fleet, "kneekeeper_profile_promised_requests_per_second") == 10
    assert of(fleet, "kneekeeper_profile_recommended_limit", limit="max_num_seqs") == 64
    assert of(fleet, "kneekeeper_profile_present_limit", limit="max_num_seqs") == 256
    assert of(fleet, "kneekeeper_profile_present_limit", limit="max_num_batched_tokens") is None
    assert of(fleet, "kneekeeper_profile_knee_concurrency_lower") == 40
    assert of(fleet, "kneekeeper_profile_observed_timestamp_seconds") == 1000
    assert of(fleet, "kneekeeper_profile_condition", type="Ready", status="False", reason="Probing") == 1
    assert of(fleet, "kneekeeper_profile_condition", type="Ready", status="True", reason="Probing") == 0


def test_a_prediction_promises_nothing(fleet):
    predicted = STATUS | {"recommendation": STATUS["recommendation"] | {"confidence": "Predicted"}}
    fleet.profile_seen(CHAT, profile(predicted), ServingProfileStatus())
    assert of(fleet, "kneekeeper_profile_promised_requests_per_second") is None
    assert of(fleet, "kneekeeper_profile_sustainable_requests_per_second") == 12


def test_a_replica_tells_its_capacity_and_where_it_works(fleet):
    fleet.profile_seen(CHAT, profile(STATUS), ServingProfileStatus())
    chat_a = {"pod": "chat-a", "node": "n1", "gpu_product": "L40S"}
    assert of(fleet, "kneekeeper_replica_capacity_requests_per_second", **chat_a) == 10
    assert of(fleet, "kneekeeper_replica_headroom_ratio", **chat_a) == 0.25
    assert of(fleet, "kneekeeper_replica_waiting_requests", **chat_a) == 6


OBSERVED_REPLICAS: list[dict[str, Any]] = [
    {
        "pod": "chat-a",
        "node": "n1",
        "gpuProduct": "L40S",
        "kneeConcurrency": "50",
        "kneeLower": "44",
        "kneeUpper": "58",
        "requestsPerSecond": "7.5",
        "speedPercent": 80,
        "outlier": "Slow",
    },
    {"pod": "chat-b", "node": "n2", "gpuProduct": "L40S", "notObserved": "TrafficTooLow"},
]
SCALE = {
    "replicas": 2,
    "neededReplicas": 3,
    "peakRequestsPerSecond": "20",
    "capacityRequestsPerSecond": "16",
    "imbalancePercent": 125,
}


def test_what_production_shows_of_replicas_and_of_all_of_them_is_told(fleet):
    status = STATUS | {"replicas": OBSERVED_REPLICAS, "scale": SCALE}
    fleet.profile_seen(CHAT, profile(status), ServingProfileStatus())
    chat_a = {"pod": "chat-a", "node": "n1", "gpu_product": "L40S"}
    chat_b = {"pod": "chat-b", "node": "n2", "gpu_product": "L40S"}
    assert of(fleet, "kneekeeper_replica_knee_concurrency_lower", **chat_a) == 44
    assert of(fleet, "kneekeeper_replica_knee_concurrency_upper", **chat_a) == 58
    assert of(fleet, "kneekeeper_replica_requests_per_second", **chat_a) == 7.5
    assert of(fleet, "kneekeeper_replica_speed_ratio", **chat_a) == 0.8
    assert of(fleet, "kneekeeper_replica_outlier", **chat_a, reason="Slow") == 1
    assert of(fleet, "kneekeeper_replica_knee_not_observed", **chat_b, reason="TrafficTooLow") == 1
    assert of(fleet, "kneekeeper_profile_needed_replicas") == 3
    assert of(fleet, "kneekeeper_profile_capacity_requests_per_second") == 16
    assert of(fleet, "kneekeeper_profile_peak_requests_per_second") == 20
    assert of(fleet, "kneekeeper_profile_router_imbalance_ratio") == 1.25


def test_what_a_status_does_not_tell_has_no_series(fleet):
    fleet.profile_seen(CHAT, profile(STATUS), ServingProfileStatus())
    assert not [labels for _, labels in samples(fleet) if ("pod", "chat-b") in labels]
    fleet.profile_seen(CHAT, profile(), ServingProfileStatus())
    assert of(fleet, "kneekeeper_profile_promised_requests_per_second") is None


def test_every_metric_is_told_by_a_full_status(fleet):
    replicas = [*STATUS["replicas"], *({**each, "pod": f"{each['pod']}-2"} for each in OBSERVED_REPLICAS)]
    fleet.profile_seen(CHAT, profile(STATUS | {"replicas": replicas, "scale": SCALE}), ServingProfileStatus())
    fleet.run_seen(RUN, run(startedAt=NOW, borrowed={"replicasBefore": 2, "takenAt": NOW}), run().status)
    told = {name.removesuffix("_total") for name, _ in samples(fleet)}
    assert {m.name for m in GAUGES} | {m.name for m in RUN_GAUGES} | {m.name for m in COUNTS} <= told


def test_a_profile_that_is_gone_has_no_series(fleet):
    fleet.profile_seen(CHAT, profile(STATUS), ServingProfileStatus())
    fleet.run_seen(RUN, run(), run().status)
    fleet.forget(RUN)
    fleet.forget(CHAT)
    assert samples(fleet) == {}


def test_a_run_is_told_while_it_goes_on_and_counted_once_when_it_ends(fleet):
    fleet.profile_seen(CHAT, profile(), ServingProfileStatus())
    assert of(fleet, "kneekeeper_runs_finished_total", outcome="Certified") == 0
    going = run(startedAt=NOW, step="Ramp", borrowed={"replicasBefore": 2, "takenAt": NOW})
    fleet.run_seen(RUN, going, run().status)
    assert of(fleet, "kneekeeper_run_step", run="chat-1", step="Ramp", waiting_for="") == 1
    assert of(fleet, "kneekeeper_run_started_timestamp_seconds", run="chat-1") == NOW.timestamp()
    assert of(fleet, "kneekeeper_run_borrowed_replicas", run="chat-1") == 1
    over = run(startedAt=NOW, finishedAt=NOW, step="Done", outcome="Certified", cost={"gpuSeconds": 90})
    fleet.run_seen(RUN, over, going.status)
    fleet.run_seen(RUN, over, over.status)
    assert of(fleet, "kneekeeper_runs_finished_total", outcome="Certified") == 1
    assert of(fleet, "kneekeeper_run_gpu_seconds_total") == 90
    assert not [labels for _, labels in samples(fleet) if ("run", "chat-1") in labels]


@pytest.mark.parametrize("had_a_profile", [False, True])
def test_counts_of_a_profile_that_is_not_there_go_with_the_last_of_its_runs(fleet, had_a_profile):
    if had_a_profile:  # whose runs are collected after it
        fleet.profile_seen(CHAT, profile(STATUS), ServingProfileStatus())
        fleet.forget(CHAT)
    over = run(startedAt=NOW, finishedAt=NOW, outcome="Cancelled")
    keys = [Key("TuningRun", "prod", name) for name in ("by-hand-1", "by-hand-2")]
    for key in keys:
        fleet.run_seen(key, over, run().status)
    assert of(fleet, "kneekeeper_runs_finished_total", outcome="Cancelled") == 2
    fleet.forget(keys[0])
    assert of(fleet, "kneekeeper_runs_finished_total", outcome="Cancelled") == 2
    fleet.forget(keys[1])
    assert samples(fleet) == {}


def test_counts_of_a_profile_outlive_its_runs(fleet):
    fleet.profile_seen(CHAT, profile(STATUS), ServingProfileStatus())
    fleet.run_seen(RUN, run(startedAt=NOW, finishedAt=NOW, outcome="Certified"), run().status)
    fleet.forget(RUN)
    assert of(fleet, "kneekeeper_runs_finished_total", outcome="Certified") == 1


def test_a_rollout_that_stays_is_kept_and_one_that_was_worse_is_rolled_back(fleet):
    under_way = profile({"rollout": ROLLOUT}).status
    kept = profile({"applied": APPLIED}).status
    rejected = Rejected.model_validate({"setting": SETTING, "fingerprint": "f", "cause": "slow", "at": NOW})
    back = under_way.with_changes(rollout=None, rejected=[rejected])
    assert finished_rollouts(under_way, kept) == (RolloutResult.KEPT,)
    assert finished_rollouts(under_way, back) == (RolloutResult.ROLLED_BACK,)
    assert finished_rollouts(kept, kept) == ()
    assert finished_rollouts(back, back) == ()
    assert finished_rollouts(under_way, under_way) == ()
    fleet.profile_seen(CHAT, profile().with_changes(status=back), under_way)
    assert of(fleet, "kneekeeper_rollouts_finished_total", result="RolledBack") == 1
    assert of(fleet, "kneekeeper_rollouts_finished_total", result="Kept") == 0


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, fleet: FleetMetrics) -> FleetMetrics:
    monkeypatch.setattr(telemetry, "FLEET", fleet)
    return fleet


def test_a_log_line_is_one_json_object_with_its_profile_and_run(told):
    told.run_seen(RUN, run(), run().status)
    for key, keys in ((CHAT, {"profile": "chat"}), (RUN, {"profile": "chat", "run": "chat-1"})):
        record = logging.makeLogRecord({"name": "kneekeeper", "msg": "two\nlines", "levelno": 20, "levelname": "INFO"})
        record.__dict__.update(telemetry.fields(key))
        line = telemetry.JsonFormatter().format(record)
        entry = json.loads(line)
        assert "\n" not in line
        assert entry["message"] == "two\nlines"
        assert {name: entry.get(name) for name in ("profile", "run") if name in entry} == keys
        assert entry["namespace"] == "prod"


def test_a_run_that_was_not_seen_yet_is_logged_by_its_name_alone(told):
    assert telemetry.fields(RUN) == {"namespace": "prod", "run": "chat-1"}
