"""Metric families by release of vLLM and by who renames them: read alike, and what is missing is named, never zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.api.stage import Slo
from kneekeeper.observe.engine_metrics import (
    E2E,
    TPOT,
    TTFT,
    Buckets,
    MetricsMissing,
    buckets,
    engine_metrics,
    parse_samples,
)
from kneekeeper.observe.exposition import Sample
from kneekeeper.observe.violations import targets_of, violation_share

FOLDER = Path(__file__).parent / "golden"
GOLDEN = yaml.safe_load((FOLDER / "vllm-families.yaml").read_text())
TAKEN = (FOLDER / "vllm-0.32-metrics.txt").read_text()

RANKS = 2
BOUNDS = ("0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "+Inf")
SLO = Slo(ttft_s=0.5, tpot_s=0.05, e2e_s=2.5)


@dataclass(frozen=True)
class Renaming:
    """Who puts which prefix in front, and which labels are added."""

    prefix: str
    labels: tuple[str, ...] = ()


RENAMINGS = {
    "vLLM": Renaming("vllm:"),
    "Ray": Renaming("ray_vllm_", ("ReplicaId", "WorkerId")),
    "Ray without its own prefix": Renaming("vllm_", ("ReplicaId",)),
    "KServe": Renaming("kserve_vllm:", ("llm_svc_name",)),
}
CASES = [
    pytest.param(release, renaming, id=f"{release['version']}-{name}")
    for release in GOLDEN["releases"]
    for name, renaming in RENAMINGS.items()
]


def families(release: dict[str, Any], kind: str) -> list[str]:
    return [*GOLDEN["everywhere"][kind], *release[kind]]


def exposition(release: dict[str, Any], renaming: Renaming, without: str = "") -> str:
    """Two ranks of the release's engine where it tells them apart, one where it does not."""
    ranks = RANKS if "engine" in release["labels"] else 1
    return "".join(_of_rank(release, renaming, without, str(rank)) for rank in range(ranks))


def _of_rank(release: dict[str, Any], renaming: Renaming, without: str, rank: str) -> str:
    known = {"model_name": "m", "engine": rank}
    base = {name: known[name] for name in release["labels"]} | dict.fromkeys(renaming.labels, "x")
    lines: list[str] = []

    def series(name: str, value: float, **more: str) -> None:
        labels = ",".join(f'{key}="{text}"' for key, text in (base | more).items())
        lines.append(f"{renaming.prefix}{name}{{{labels}}} {value}\n")

    for name in set(families(release, "gauges")) - {without}:
        series(name, 0.5 if name.endswith("_perc") else 3)
    for name in set(families(release, "counters")) - {without}:
        series(f"{name}_total", 40)
    for name in set(families(release, "histograms")) - {without}:
        for at, bound in enumerate(BOUNDS):
            series(f"{name}_bucket", 10 * (at + 1), le=bound)
        series(f"{name}_sum", 9)
        series(f"{name}_count", 10 * len(BOUNDS))
    for name, labels in release.get("info", {}).items():
        series(name, 1, **labels)
    return "".join(lines)


def histograms(samples: tuple[Sample, ...]) -> dict[str, Buckets]:
    found = {family: buckets(samples, family) for family in targets_of(SLO)}
    return {family: counts for family, counts in found.items() if counts is not None}


def missing_in(samples: tuple[Sample, ...]) -> list[str]:
    """All that both readers name."""
    names: list[str] = []
    for read in (lambda: engine_metrics(samples), lambda: violation_share(SLO, histograms(samples))):
        try:
            read()
        except MetricsMissing as missing:
            names += missing.names
    return names


@pytest.mark.parametrize(("release", "renaming"), CASES)
def test_each_release_is_read_under_each_name_and_what_it_lacks_is_named(release, renaming):
    samples = parse_samples(exposition(release, renaming))
    assert missing_in(samples) == release["missing"]
    if "num_preemptions_total" in release["missing"]:
        return
    ranks = RANKS if "engine" in release["labels"] else 1
    metrics, reads = engine_metrics(samples), release["reads"]
    assert (metrics.running, metrics.waiting, metrics.generation_tokens_total) == (3 * ranks, 3 * ranks, 40 * ranks)
    assert metrics.kv_cache_tokens == (reads["kv_cache_tokens"] * ranks if "kv_cache_tokens" in reads else None)
    assert metrics.kv_cache_usage == (0.5 if reads.get("kv_cache_usage") else None)
    assert metrics.prefix_cache_hits_total == (40 * ranks if reads.get("prefix_cache") else None)


@pytest.mark.parametrize("release", GOLDEN["releases"], ids=lambda release: release["version"])
@pytest.mark.parametrize("family", ["num_requests_running", "num_requests_waiting", "generation_tokens"])
def test_a_family_that_a_later_release_drops_or_renames_is_missing_by_name(release, family):
    samples = parse_samples(exposition(release, RENAMINGS["vLLM"], without=family) + f"vllm:new_{family} 7\n")
    counter = f"{family}_total" if family == "generation_tokens" else family
    assert counter in missing_in(samples)


@pytest.mark.parametrize("family", [TTFT, E2E])
def test_a_histogram_that_is_gone_is_missing_by_name(family):
    release = GOLDEN["releases"][-1]
    assert missing_in(parse_samples(exposition(release, RENAMINGS["vLLM"], without=family))) == [family]


def test_what_needs_a_newer_release_says_which():
    release = next(r for r in GOLDEN["releases"] if r["version"] == "0.10.2")
    samples = parse_samples(exposition(release, RENAMINGS["vLLM"]))
    with pytest.raises(MetricsMissing, match=rf"{TPOT} \(vLLM 0\.11 and later\)"):
        violation_share(SLO, histograms(samples))


def test_the_newest_release_written_down_is_the_one_that_was_taken():
    release = GOLDEN["releases"][-1]
    taken = {sample.name for sample in parse_samples(TAKEN)}
    written = {
        *families(release, "gauges"),
        *(f"{name}_total" for name in families(release, "counters")),
        *(f"{name}_bucket" for name in families(release, "histograms")),
        *release["info"],
    }
    # These appear with their first event, or with an option.
    assert written - taken <= {"corrupted_requests_total"}
    histogram = buckets(parse_samples(TAKEN), TTFT)
    assert histogram is not None
    assert math.inf in histogram
