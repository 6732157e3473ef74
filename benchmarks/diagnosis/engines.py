"""The engines of the fleet, and the run that measures each of them before production does."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.diagnosis.replica import Faults, Replica, SimulatedTime
from benchmarks.diagnosis.traffic import Traffic, start
from kneekeeper.api.model import Setting
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.diagnose.facts import Curve
from kneekeeper.domain.steptime import StepTime, fit_step_time
from kneekeeper.engine.hardware import GpuMemory, Hardware, StepTimeLaw

_LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)
_PREFILL_TOKENS = (128, 1024)
_MODEL_LEN = 16_384


@dataclass(frozen=True)
class Engine:
    """Hardware and the workload that the run declares. The step law is not of the shape that the fit has."""

    name: str
    law: StepTimeLaw
    prompt_tokens: float
    output_tokens: float

    @property
    def hardware(self) -> Hardware:
        memory = GpuMemory(memory_gib=80.0, weights_gib=16.0, kv_bytes_per_token=131_072)
        return Hardware(step_time=self.law, gpu=memory, model_max_len=_MODEL_LEN)

    def curve(self, step: StepTime, prompt_tokens: float, output_tokens: float, hit_share: float) -> Curve:
        per_output = prompt_tokens * (1 - hit_share) / output_tokens
        return Curve(step.base_s, step.per_sequence_s + step.per_prefill_token_s * per_output)


ENGINES = (
    Engine("slow card", StepTimeLaw(base_ms=24, per_sequence_ms=0.7, per_prefill_token_ms=0.07), 250, 90),
    Engine("middle card", StepTimeLaw(base_ms=15, per_sequence_ms=0.5, per_prefill_token_ms=0.05, noise=0.06), 200, 80),
    Engine(
        "large model", StepTimeLaw(base_ms=34, per_sequence_ms=1.3, per_prefill_token_ms=0.11, drift=0.02), 300, 100
    ),
    Engine("slow prefill", StepTimeLaw(base_ms=15, per_sequence_ms=0.5, per_prefill_token_ms=2.5), 100, 100),
)


@cache
def measure(engine: Engine) -> StepTime:
    """A closed-loop ramp and two prefill-only stages on a healthy replica, fitted by the product."""
    stages = [_stage(engine, StageKind.RAMP, users, engine.prompt_tokens, engine.output_tokens) for users in _LEVELS]
    stages += [_stage(engine, StageKind.PREFILL, 1, float(prompt), 1.0) for prompt in _PREFILL_TOKENS]
    step = fit_step_time(stages)
    if step is None:
        raise AssertionError("eight levels are enough for a fit")
    return step


def _stage(engine: Engine, kind: StageKind, users: int, prompt: float, output: float) -> StageSummary:
    time = SimulatedTime()
    arguments = ("--max-num-seqs", "256", "--max-num-batched-tokens", "8192")
    replica = Replica(time, engine.hardware, arguments, Faults(), seed=users)
    sigma = 0.0 if kind is StageKind.PREFILL else 0.5
    traffic = Traffic(users=users, prompt_tokens=prompt, output_tokens=output, prompt_sigma=sigma, output_sigma=sigma)
    warmup_s, duration_s = (0.0, 5.0) if kind is StageKind.PREFILL else (15.0, 40.0)
    start(traffic, replica.send, time, warmup_s + duration_s, random.Random(users))
    time.run_until(warmup_s + duration_s)
    ended = [seen for seen in replica.answered if seen.sent_s >= warmup_s]
    outputs = [seen.output_tokens for seen in ended]
    tpots = [(s.last_s - s.first_s) / (s.output_tokens - 1) for s in ended if s.output_tokens > 1]
    done = [seen for seen in replica.answered if seen.last_s >= warmup_s]
    return StageSummary(
        name=f"{kind}-{users}-{prompt:.0f}".lower(),
        kind=kind,
        setting=Setting(max_num_seqs=256, max_num_batched_tokens=8192),
        users=users,
        prompt_tokens_mean=float(np.mean([seen.prompt_tokens for seen in ended])),
        output_tokens_mean=float(np.mean(outputs)),
        requests=len(ended),
        duration=duration_s,
        requests_per_second=len(done) / duration_s,
        output_tokens_per_second=sum(seen.output_tokens for seen in done) / duration_s,
        mean_concurrency=float(users),
        p50_ttft=float(np.median([seen.first_s - seen.sent_s for seen in ended])),
        p50_tpot=float(np.median(tpots)) if tpots else None,
    )
