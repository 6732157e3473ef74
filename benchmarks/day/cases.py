"""Days of two mixes: what arrives by day and by night, what was promised for it, and on which engine."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.tuner.engines import QWEN14_L40S, Engine
from benchmarks.tuner.scenarios import CHAT, DOCUMENTS, WRITING, RequestClass, Scenario
from kneekeeper.api.model import Setting


@dataclass(frozen=True)
class Case:
    """`mixes` are that of the day's hours and that of the night's, both on one engine and one grid."""

    name: str
    title: str
    about: str
    mixes: tuple[Scenario, Scenario]

    @property
    def engine(self) -> Engine:
        return self.mixes[0].engine

    @property
    def grid(self) -> list[Setting]:
        """What one setting is chosen from: the grid, and what vLLM starts with where nothing is given."""
        return [*self.mixes[0].grid, self.engine.default_setting]


_DOCUMENT_GRID = ((8, 16, 24, 32, 48, 64, 96, 128), (256, 512, 1024, 2048, 4096, 8192))
_WRITING_GRID = ((8, 16, 24, 32, 48, 64, 96, 128), (256, 512, 2048, 4096))
CASES = (
    Case(
        "writing",
        "Bursts of chat by day, writing by night",
        "The chat needs few sequences at a time, so that its bursts wait for a place and not for each token; the batch "
        "writes long answers to short prompts and needs many.",
        (
            Scenario("chat", QWEN14_L40S, (RequestClass(*CHAT, 30.0, 0.08),), *_WRITING_GRID, burstiness_percent=20),
            Scenario("writing", QWEN14_L40S, (RequestClass(*WRITING, 60.0, 0.3),), *_WRITING_GRID),
        ),
    ),
    Case(
        "documents",
        "Chat by day, documents by night",
        "The mixes and targets of [examples/schedules.yaml](../../examples/schedules.yaml), with prompts cut to what "
        "the model takes. Long prompts fill the KV cache before many sequences run, and a share of prefill in the time "
        "of an answer is the same in small and in large steps: the two mixes ask for nearly the same.",
        (
            Scenario("chat", QWEN14_L40S, (RequestClass(*CHAT, 2.0, 0.06),), *_DOCUMENT_GRID),
            Scenario("documents", QWEN14_L40S, (RequestClass(*DOCUMENTS, 120.0, 0.5),), *_DOCUMENT_GRID),
        ),
    ),
)
