"""Engines whose law is known, their traffic of the last hours, and what a passive run ought to make of it.

For the tests of `probe.allow: [Passive]`: against a real API server (tests/integration) and on a real cluster (e2e).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.passive.learned import predicted, traffic_of
from e2e import past_traffic
from e2e.past_traffic import Past
from e2e.profiles import Object, profile
from e2e.simulated import Simulated
from kneekeeper.api.model import Setting
from kneekeeper.api.observed import KneeSource
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.profile_status import RecommendationConfidence
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import RunOutcome, TuningRun
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.twin import Law
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

BASE_S, PER_SEQUENCE_S, PER_PREFILL_TOKEN_S = 0.040, 0.004, 0.0002
HARDWARE: Object = {
    "startup_s": 1.0,
    "step_time": {
        "base_ms": 1e3 * BASE_S,
        "per_sequence_ms": 1e3 * PER_SEQUENCE_S,
        "per_prefill_token_ms": 1e3 * PER_PREFILL_TOKEN_S,
    },
}
LAW = Law(base_s=BASE_S, per_sequence_s=PER_SEQUENCE_S, per_prefill_token_s=PER_PREFILL_TOKEN_S)
PROMPTS = LogNormal(mean=300, sigma=0.6, maximum=2000)
OUTPUTS = LogNormal(mean=120, sigma=0.5, maximum=600)
PAST = Past(hours=3.0, prompt_tokens=PROMPTS, output_tokens=OUTPUTS, lowest_rate=0.15, highest_rate=1.45)
TRUE = TwinTraffic(PROMPTS, OUTPUTS, kv_cache_tokens=100_000)

KNEE = 4 * BASE_S / (PER_SEQUENCE_S + PER_PREFILL_TOKEN_S * PROMPTS.mean / OUTPUTS.mean)
"""Of a batch in which each answer's tokens bring their share of a prompt along: about 36 requests."""

PRESENT = Setting(max_num_seqs=128, max_num_batched_tokens=2048)
TTFT_S, TPOT_S = 30.0, 0.15
"""Users may wait for the first token: a cap on sequences keeps the answers fast, which the present setting does not."""


def engines(image: str, replicas: int = 2) -> Simulated:
    """They need no GPU: nothing is started beside them."""
    return Simulated(
        image,
        replicas=replicas,
        gpus=0,
        hardware=HARDWARE,
        max_num_seqs=PRESENT.max_num_seqs,
        max_num_batched_tokens=PRESENT.max_num_batched_tokens,
    )


def passive_profile(namespace: str, prometheus_url: str) -> Object:
    """Without a workload, and in mode Apply."""
    made = profile(
        namespace,
        ttft_s=TTFT_S,
        tpot_s=TPOT_S,
        probe={"allow": ["Passive"]},
        metrics={"prometheusRef": {"url": prometheus_url}},
        parameters={"maxNumSeqs": {"min": 4, "max": 128}, "maxNumBatchedTokens": {"min": 512, "max": 2048}},
    )
    del made["spec"]["workload"]
    return made


def store_past(namespace: str, pods: Iterable[str], arguments: list[str], folder: Path) -> Path:
    """Where a Prometheus finds what these pods did in the last hours."""
    data = folder / "data"
    data.mkdir()
    for seed, pod in enumerate(pods):
        scrapes = past_traffic.served(PAST, arguments, HARDWARE, seed)
        lines = past_traffic.open_metrics(scrapes, time.time() - PAST.length_s, namespace, pod)
        past_traffic.store(lines, folder, data)
    return data


@dataclass(frozen=True)
class Seen:
    """The profile and its run, a while after the run was over, and what stood in the Deployment before and after."""

    pods: tuple[str, ...]
    profile: ServingProfile
    run: TuningRun
    deployment_before: Object
    deployment: Object
    children: tuple[str, ...]
    """Clones, agents and their Secrets."""

    def reason(self, type_: ConditionType) -> str:
        found = find(self.profile.status.conditions, type_)
        return "" if found is None else found.reason


def check_prediction(seen: Seen) -> None:
    """A setting is predicted without any load."""
    status = seen.run.status
    assert (status.outcome, status.cause) == (RunOutcome.PREDICTED, "Predicted"), status.message
    assert "not proven" in status.message
    assert (status.stages, status.certifications, status.cost.engine_starts) == ([], [], 0)
    setting = status.choices[-1].setting
    assert 4 <= setting.max_num_seqs <= 1.3 * KNEE
    assert setting.max_num_batched_tokens <= PRESENT.max_num_batched_tokens
    recommendation = seen.profile.status.recommendation
    assert recommendation is not None
    assert recommendation.confidence is RecommendationConfidence.PREDICTED
    assert recommendation.setting == setting
    assert seen.reason(ConditionType.RECOMMENDED) == "Predicted"


def check_nothing_is_touched(seen: Seen) -> None:
    """Nothing is started or written, though the mode is Apply."""
    assert seen.children == ()
    assert seen.deployment["spec"] == seen.deployment_before["spec"]
    assert seen.deployment["metadata"]["generation"] == seen.deployment_before["metadata"]["generation"]
    assert seen.reason(ConditionType.APPLIED) == "NotProven"


def check_knees(seen: Seen) -> None:
    """Each replica's knee is told from its own history."""
    replicas = seen.profile.status.replicas
    assert {replica.pod for replica in replicas} == set(seen.pods)
    for replica in replicas:
        assert replica.knee_source is KneeSource.PRODUCTION
        assert replica.knee_concurrency == pytest.approx(KNEE, rel=0.15)


def check_rate(seen: Seen) -> None:
    """The predicted rate is what the law behind the history carries, which is more than with the present setting."""
    choice = seen.run.status.choices[-1]
    surface = Surface.drawn(TRUE, [Slo(ttft_s=TTFT_S, tpot_s=TPOT_S)], [LAW], 4000)
    of_choice, of_present = (surface.highest_rate(TRUE.limits(each)) for each in (choice.setting, PRESENT))
    assert choice.sustainable_requests_per_second == pytest.approx(of_choice, rel=0.15)
    assert of_choice > 1.05 * of_present


def check_learned_workload(seen: Seen) -> None:
    """P99s predicted for the learned workload are within a tenth of the true ones, where only the workload differs."""
    observed = seen.profile.status.observed_workload
    assert observed is not None
    learned = traffic_of(observed.workload, TRUE.kv_cache_tokens or 0)
    for rate in (0.6, 0.9, 1.2):
        errors = predicted(learned, PRESENT, LAW, rate).error(predicted(TRUE, PRESENT, LAW, rate))
        assert max(errors) <= 0.10, f"at {rate} requests/s: TTFT and TPOT off by {errors}"


CHECKS = (check_prediction, check_nothing_is_touched, check_knees, check_rate, check_learned_workload)
