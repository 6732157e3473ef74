"""The simulated engine exposes what a real vLLM 0.32 exposed: families, types, labels, buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.engine_process import FAST, Engine, running_engine

_GOLDEN = Path(__file__).parent / "golden" / "vllm-0.32-metrics.txt"
_MODEL_LENGTH_OF_GOLDEN = "2048"


def families_of(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def label_sets(family: Metric) -> set[tuple[str, frozenset[str]]]:
    """Sample names, each with the names of its labels."""
    return {(sample.name, frozenset(sample.labels)) for sample in family.samples}


def enumerations(family: Metric) -> set[tuple[str, str]]:
    """The values of labels that name a kind, such as a reason or a source."""
    kinds = (
        "reason",
        "source",
        "finished_reason",
        "sleep_state",
        "engine",
        "handler",
        "method",
        "status",
        "generation",
    )
    return {item for sample in family.samples for item in sample.labels.items() if item[0] in kinds}


def bounds(family: Metric) -> list[str]:
    return sorted({sample.labels["le"] for sample in family.samples if "le" in sample.labels}, key=float)


GOLDEN = families_of(_GOLDEN.read_text())


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(FAST, "serve", "tiny", "--max-model-len", _MODEL_LENGTH_OF_GOLDEN) as engine:
        for tokens in (8, 6):
            answer = engine.post("/v1/completions", prompt=[1] * 40, max_tokens=tokens, ignore_eos=True)
            assert answer.status_code == 200
        yield engine


@pytest.fixture(scope="module")
def simulated(engine: Engine) -> dict[str, Metric]:
    return families_of(httpx.get(f"{engine.url}/metrics").text)


def test_there_are_the_same_families_and_no_others(simulated: dict[str, Metric]) -> None:
    assert set(simulated) == set(GOLDEN)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_family_has_the_real_type_labels_and_buckets(simulated: dict[str, Metric], name: str) -> None:
    real, ours = GOLDEN[name], simulated[name]
    assert ours.type == real.type
    assert label_sets(ours) == label_sets(real)
    assert enumerations(ours) == enumerations(real)
    assert bounds(ours) == bounds(real)


@pytest.mark.parametrize(
    "name",
    [
        "vllm:prompt_tokens",
        "vllm:generation_tokens",
        "vllm:prefix_cache_queries",
        "vllm:request_success",
        "vllm:iteration_tokens_total",
        "vllm:request_params_max_tokens",
        "vllm:request_num_preemptions",
    ],
)
def test_the_same_two_requests_leave_the_same_counts(simulated: dict[str, Metric], name: str) -> None:
    def counts(family: Metric) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    assert counts(simulated[name]) == counts(GOLDEN[name])


def test_the_content_type_is_that_of_the_text_format(engine: Engine) -> None:
    assert httpx.get(f"{engine.url}/metrics").headers["content-type"].startswith("text/plain; version=")
