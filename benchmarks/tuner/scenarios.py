"""What is tuned: an engine, its traffic, its targets, and the grid that a search would try.

Targets are round numbers that an owner of such a service would give. They were set by looking at the truth alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.tuner import engines
from benchmarks.tuner.engines import Engine
from kneekeeper.api.model import Setting
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.stage import Slo
from kneekeeper.domain.plan.requests import slos_of, traffic_of
from kneekeeper.domain.twin.traffic import TwinTraffic

SEQUENCES = (16, 24, 32, 40, 56, 80, 104, 144, 200, 272, 368, 512)
FEW_SEQUENCES = (4, 8, 10, 14, 16, 24, 32, 40, 56, 72, 96, 128)
BUDGETS = (512, 768, 1536, 2048, 4096, 6144, 8192, 16384)
MIDDLE_SEQUENCES = (8, 16, 24, 32, 40, 56, 72, 96, 128, 168, 208, 256)
MIDDLE_BUDGETS = (256, 384, 512, 1024, 2048, 4096, 6144, 8192)
SMALL_BUDGETS = (128, 256, 384, 512, 1024, 1536, 2048, 4096)
"""Factors of 32 from end to end."""


@dataclass(frozen=True)
class Tokens:
    """A log-normal by its mean and 99th percentile, cut to `longest`."""

    mean: int
    p99: int
    longest: int

    def declared(self) -> dict[str, Any]:
        return {"distribution": "LogNormal", "mean": self.mean, "p99": self.p99, "max": self.longest}


@dataclass(frozen=True)
class RequestClass:
    """Requests of one kind, held to their own targets in seconds."""

    prompt: Tokens
    output: Tokens
    ttft_s: float | None
    tpot_s: float | None
    weight_percent: int = 100

    def targets(self) -> dict[str, str]:
        """As a profile declares them; at least one is set."""
        both = {"p99TTFT": self.ttft_s, "p99TPOT": self.tpot_s}
        return {name: f"{seconds}s" for name, seconds in both.items() if seconds is not None}


@dataclass(frozen=True)
class Scenario:
    """One tuning task."""

    name: str
    engine: Engine
    classes: tuple[RequestClass, ...]
    sequences: tuple[int, ...] = SEQUENCES
    budgets: tuple[int, ...] = BUDGETS
    burstiness_percent: int = 100
    """Shape of the Gamma gaps; 100 is Poisson."""

    @property
    def grid(self) -> list[Setting]:
        """All pairs, budgets of at least the sequences."""
        return [
            Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in self.sequences for m in self.budgets if m >= n
        ]

    @cached_property
    def profile(self) -> ServingProfileSpec:
        """The profile that its owner would write, bounds as wide as the grid."""
        first = self.classes[0]
        workload: dict[str, Any] = {
            "arrivals": {"process": "Gamma", "burstinessPercent": self.burstiness_percent},
        }
        if len(self.classes) == 1:
            workload |= {"promptTokens": first.prompt.declared(), "outputTokens": first.output.declared()}
        else:
            workload["classes"] = [
                {
                    "name": f"class-{number}",
                    "weightPercent": kind.weight_percent,
                    "promptTokens": kind.prompt.declared(),
                    "outputTokens": kind.output.declared(),
                    "slo": kind.targets(),
                }
                for number, kind in enumerate(self.classes, start=1)
            ]
        return ServingProfileSpec.model_validate(
            {
                "targetRef": {"kind": "Deployment", "name": "engine"},
                "slo": first.targets(),
                "workload": workload,
                "parameters": {
                    "maxNumSeqs": {"min": self.sequences[0], "max": self.sequences[-1]},
                    "maxNumBatchedTokens": {"min": self.budgets[0], "max": self.budgets[-1]},
                },
                "probe": {"budget": {"maxGPUSeconds": 86_400, "maxMeasureDuration": "3h"}},
            }
        )

    @cached_property
    def traffic(self) -> TwinTraffic:
        """The declared traffic, to draw requests from."""
        declared = traffic_of(self.profile, None)
        return TwinTraffic(
            declared.prompt_tokens, declared.output_tokens, declared.burstiness, classes=declared.kinds.classes
        )

    @property
    def slos(self) -> tuple[Slo, ...]:
        """The targets of each class."""
        return slos_of(self.profile)


CHAT = (Tokens(800, 4000, 8000), Tokens(200, 800, 1500))
SHORT_CHAT = (Tokens(150, 600, 2000), Tokens(250, 900, 1500))
DOCUMENTS = (Tokens(5000, 14_000, 16_000), Tokens(150, 500, 800))
CODE = (Tokens(1800, 7000, 8000), Tokens(30, 150, 300))
WRITING = (Tokens(200, 1000, 2000), Tokens(500, 1600, 2000))


def _one(kind: tuple[Tokens, Tokens], ttft_s: float, tpot_s: float) -> tuple[RequestClass, ...]:
    return (RequestClass(*kind, ttft_s, tpot_s),)


def _mix(
    chat: tuple[float, float], documents: tuple[float, float], percent: int, kind: tuple[Tokens, Tokens] = DOCUMENTS
) -> tuple[RequestClass, ...]:
    """Chat, and `percent` of another kind with targets of its own."""
    return (RequestClass(*CHAT, *chat, 100 - percent), RequestClass(*kind, *documents, percent))


_E = engines
_MIDDLE: dict[str, Any] = {"sequences": MIDDLE_SEQUENCES, "budgets": MIDDLE_BUDGETS}
_SMALL: dict[str, Any] = {"sequences": FEW_SEQUENCES, "budgets": SMALL_BUDGETS}
SCENARIOS = (
    Scenario("8B H100 documents, tight TPOT", _E.LLAMA8_H100, _one(DOCUMENTS, 8.0, 0.03), **_MIDDLE),
    Scenario(
        "8B H100 documents, bursty", _E.LLAMA8_H100, _one(DOCUMENTS, 20.0, 0.04), **_MIDDLE, burstiness_percent=20
    ),
    Scenario("8B H100 chat, bursty", _E.LLAMA8_H100, _one(CHAT, 15.0, 0.02), burstiness_percent=15),
    Scenario("8B H100 code, tight TPOT", _E.LLAMA8_H100, _one(CODE, 3.0, 0.03), **_MIDDLE),
    Scenario("8B H100 mix", _E.LLAMA8_H100, _mix((5.0, 0.03), (20.0, 0.06), 15), **_MIDDLE),
    Scenario("8B H100 short chat, bursty", _E.LLAMA8_H100, _one(SHORT_CHAT, 15.0, 0.014), burstiness_percent=10),
    Scenario("8B A100 code, tight TTFT", _E.LLAMA8_A100, _one(CODE, 1.5, 0.2)),
    Scenario("8B A100 documents, bursty", _E.LLAMA8_A100, _one(DOCUMENTS, 40.0, 0.1), **_MIDDLE, burstiness_percent=20),
    Scenario("8B A100 writing, bursty", _E.LLAMA8_A100, _one(WRITING, 20.0, 0.025), burstiness_percent=10),
    Scenario("8B A100 mix with code", _E.LLAMA8_A100, _mix((5.0, 0.05), (20.0, 0.1), 30, CODE), **_MIDDLE),
    Scenario("8B L4 writing, bursty", _E.LLAMA8_L4, _one(WRITING, 40.0, 0.075), **_SMALL, burstiness_percent=20),
    Scenario("8B L4 documents, KV", _E.LLAMA8_L4, _one(DOCUMENTS, 120.0, 0.15), **_SMALL, burstiness_percent=30),
    Scenario("14B L40S code, bursty", _E.QWEN14_L40S, _one(CODE, 20.0, 0.15), FEW_SEQUENCES, burstiness_percent=20),
    Scenario("14B L40S writing, KV", _E.QWEN14_L40S, _one(WRITING, 30.0, 0.06), **_SMALL),
    Scenario("70B 2 A100 writing, KV", _E.LLAMA70_A100, _one(WRITING, 60.0, 0.1), **_SMALL),
    Scenario("70B 2 H100 code, KV", _E.LLAMA70_H100_SMALL_KV, _one(CODE, 20.0, 0.12), **_SMALL),
    Scenario("70B 2 H100 chat, KV, bursty", _E.LLAMA70_H100, _one(CHAT, 60.0, 0.075), **_SMALL, burstiness_percent=20),
    Scenario("70B 8 H100 documents", _E.LLAMA70_H100X8, _one(DOCUMENTS, 15.0, 0.06), **_MIDDLE),
    Scenario("70B 8 H100 mix", _E.LLAMA70_H100X8, _mix((5.0, 0.06), (20.0, 0.1), 20), **_MIDDLE),
    Scenario("176B 8 A100 chat", _E.BLOOM_A100, _one(CHAT, 30.0, 0.15), **_SMALL),
    Scenario("176B 8 H100 writing", _E.BLOOM_H100, _one(WRITING, 30.0, 0.06), **_SMALL),
    Scenario("hybrid H100 short chat, tight TTFT", _E.HYBRID_H100, _one(SHORT_CHAT, 0.5, 0.06)),
    Scenario("hybrid A100 writing, bursty", _E.HYBRID_A100, _one(WRITING, 20.0, 0.06), burstiness_percent=20),
    Scenario("hybrid A100 chat, refuses", _E.HYBRID_A100_STRICT, _one(CHAT, 5.0, 0.15)),
)
