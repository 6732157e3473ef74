"""Engines whose step times have another shape than the product's fit.

Batches are padded to captured graph sizes, attention grows with the pairs of tokens, a step with a prompt runs without
a graph beyond the largest, each step has noise, the machine's speed drifts, and the token budget takes memory from the
KV cache. Some models have a hard limit on sequences.

Where the numbers come from:

- `BLOOM_A100`, `BLOOM_H100`, `LLAMA70_A100`, `LLAMA70_H100`, `LLAMA70_H100X8` are read off the measurements that
  accompany Splitwise (Patel et al., "Splitwise: Efficient Generative LLM Inference Using Phase Splitting", ISCA 2024;
  repository Mutinifni/splitwise-sim, data/perf_model.csv): decode time by batch size, prompt time by prompt length.
- The others are rooflines of published data: weights / memory bandwidth + 1.5 ms for a step, 2 FLOP per parameter and
  token at half of the dense peak, KV bytes / (0.8 of the bandwidth). Data sheets: NVIDIA H100 SXM (3.35 TB/s, 989
  TFLOP/s in BF16, 80 GB), A100 SXM (2.04 TB/s, 312 TFLOP/s, 80 GB), L40S (0.864 TB/s, 362 TFLOP/s, 48 GB), L4 (0.3
  TB/s, 121 TFLOP/s, 24 GB); model cards of Llama 3.1 8B (16 GB, 131 kB of KV a token), Qwen 2.5 14B (29.5 GB, 197 kB)
  and Nemotron-H 8B (16 GB, four attention layers: 16 kB).
- Hard limits: a hybrid model's sequences need a block of state each. vLLM issue 49064 reports 969 and 161 of them.

Noise, drift, API times and start times are assumptions; they are the same for every method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from kneekeeper.api.model import Setting
from kneekeeper.domain.twin.law import Law, log_normal_noise
from kneekeeper.domain.twin.simulate import Load, TwinLimits, TwinResult, simulate

BLOCK_TOKENS = 16
GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""As vLLM captures them by default."""


class HardLimit(Enum):
    """What an engine does with more sequences than it has state blocks."""

    REFUSES = "does not start"
    WAITS = "lets them wait"


@dataclass(frozen=True)
class Engine:
    """A model on a machine. `law` has neither noise nor drift."""

    name: str
    law: Law
    kv_cache_tokens: int
    """With a token budget of 0."""
    kv_tokens_per_budget_token: float
    """What activations of one more token in a step take from the KV cache."""
    start_s: float
    default_setting: Setting
    """What vLLM starts with on this machine where nothing is given."""
    noise: float = 0.04
    drift: float = 0.015
    drift_period_s: float = 500.0
    most_sequences: int | None = None
    hard_limit: HardLimit = HardLimit.WAITS

    def starts(self, setting: Setting) -> bool:
        """Whether an engine with this setting starts."""
        refused = self.hard_limit is HardLimit.REFUSES and setting.max_num_seqs > (self.most_sequences or np.inf)
        return not refused and self.kv_tokens(setting) > 0

    def kv_tokens(self, setting: Setting) -> int:
        """Tokens that the KV cache holds, as the engine tells."""
        left = self.kv_cache_tokens - self.kv_tokens_per_budget_token * setting.max_num_batched_tokens
        return max(0, int(left) // BLOCK_TOKENS * BLOCK_TOKENS)

    def serve(self, load: Load, setting: Setting, seed: int, begun_s: float = 0.0) -> TwinResult:
        """Serve `load` from idle; `begun_s` is where in its drift the machine is."""
        law = replace(
            self.law,
            noise=log_normal_noise(self.noise, seed),
            drift=self.drift,
            drift_period_s=self.drift_period_s,
            drift_phase=2 * np.pi * begun_s / self.drift_period_s,
        )
        limits = TwinLimits(
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=max(setting.max_num_batched_tokens, setting.max_num_seqs),
            kv_blocks=self.kv_tokens(setting) // BLOCK_TOKENS,
            block_size_tokens=BLOCK_TOKENS,
            max_num_active_seqs=self._most_running(setting),
        )
        return simulate(load, limits, law)

    def with_kv(self, name: str, kv_cache_tokens: int) -> Engine:
        """The same engine with another KV cache: a smaller share of the memory, or a longer context."""
        return replace(self, name=name, kv_cache_tokens=kv_cache_tokens)

    def _most_running(self, setting: Setting) -> int | None:
        most = self.most_sequences
        return most if most is not None and most < setting.max_num_seqs else None


_SMALL_DEFAULT = Setting(max_num_seqs=256, max_num_batched_tokens=2048)
_LARGE_DEFAULT = Setting(max_num_seqs=1024, max_num_batched_tokens=8192)
_API = Law(base_s=0.0, api_request_s=6e-4, api_prompt_token_s=2e-7, api_step_s=2e-4, api_token_s=4e-6, overhead_s=1e-3)
"""What every server costs around its engine."""


def _law(
    base_s: float,
    sequence_s: float,
    kv_token_s: float,
    prompt_token_s: float,
    pair_s: float,
    prefill_step_s: float = 1e-3,
    eager_s: float = 2e-3,
) -> Law:
    return replace(
        _API,
        base_s=base_s,
        per_sequence_s=sequence_s,
        per_kv_token_s=kv_token_s,
        per_prefill_token_s=prompt_token_s,
        per_prefill_pair_s=pair_s,
        prefill_step_s=prefill_step_s,
        eager_s=eager_s,
        graph_sizes=GRAPH_SIZES,
    )


# Splitwise's measurements. Decode at batch 1 and 16 give base and sequence; prompts of 512, 2048 and 8192 tokens give
# prompt token and pair; KV reads are bytes of a token's KV / memory bandwidth.
BLOOM_A100 = Engine(
    "BLOOM-176B, 8 A100", _law(47.8e-3, 5.8e-4, 2.6e-7, 2.3e-4, 4.9e-8), 56_000, 0.4, 110.0, _SMALL_DEFAULT
)
BLOOM_H100 = Engine(
    "BLOOM-176B, 8 H100", _law(35.5e-3, 3.4e-4, 1.6e-7, 1.0e-4, 2.0e-8), 56_000, 0.4, 110.0, _LARGE_DEFAULT
)
LLAMA70_A100 = Engine(
    "Llama 2 70B, 2 A100", _law(54.2e-3, 6.9e-4, 8.0e-8, 3.1e-4, 1.1e-8), 21_000, 0.5, 100.0, _SMALL_DEFAULT
)
LLAMA70_H100 = Engine(
    "Llama 2 70B, 2 H100", _law(36.7e-3, 3.3e-4, 4.9e-8, 1.3e-4, 6.0e-9), 21_000, 0.5, 100.0, _LARGE_DEFAULT
)
LLAMA70_H100_SMALL_KV = LLAMA70_H100.with_kv("Llama 2 70B, 2 H100, less memory", 13_500)
LLAMA70_H100X8 = Engine(
    "Llama 2 70B, 8 H100", _law(29.7e-3, 1.6e-4, 1.3e-8, 4.6e-5, 1.5e-9), 1_250_000, 1.0, 90.0, _LARGE_DEFAULT
)

# Rooflines of data sheets and model cards.
LLAMA8_H100 = Engine(
    "Llama 3.1 8B, H100", _law(6.3e-3, 2.0e-5, 4.9e-8, 3.3e-5, 4.0e-10), 420_000, 4.0, 45.0, _LARGE_DEFAULT
)
LLAMA8_A100 = Engine(
    "Llama 3.1 8B, A100", _law(9.4e-3, 5.0e-5, 8.0e-8, 1.03e-4, 1.0e-9), 420_000, 4.0, 45.0, _SMALL_DEFAULT
)
LLAMA8_L4 = Engine(
    "Llama 3.1 8B, L4", _law(54.8e-3, 1.4e-4, 5.5e-7, 2.65e-4, 3.0e-9), 38_000, 1.0, 60.0, _SMALL_DEFAULT
)
QWEN14_L40S = Engine(
    "Qwen 2.5 14B, L40S", _law(35.6e-3, 8.0e-5, 2.9e-7, 1.63e-4, 2.0e-9), 68_000, 1.5, 60.0, _SMALL_DEFAULT
)
HYBRID_H100 = Engine(
    "Nemotron-H 8B, H100, 161 states",
    _law(6.8e-3, 6.0e-5, 6.0e-9, 3.6e-5, 5.0e-11),
    3_000_000,
    30.0,
    50.0,
    _LARGE_DEFAULT,
    most_sequences=161,
)
HYBRID_A100 = Engine(
    "Nemotron-H 8B, A100, 96 states",
    _law(9.9e-3, 1.0e-4, 1.0e-8, 1.1e-4, 1.0e-10),
    3_000_000,
    30.0,
    50.0,
    _SMALL_DEFAULT,
    most_sequences=96,
)
HYBRID_A100_STRICT = replace(
    HYBRID_A100,
    name="Nemotron-H 8B, A100, 96 states, refuses more",
    hard_limit=HardLimit.REFUSES,
)
