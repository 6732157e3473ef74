"""What production's metrics hold of one engine for a fit of its law: the history, with the steps and the prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kneekeeper.domain.passive import EngineHistory
from kneekeeper.domain.production_law import CounterWindow
from kneekeeper.domain.samples import Floats


@dataclass(frozen=True, eq=False)
class EngineRecord:
    """One engine of a pod. Columns have a row for each window of the history, NaN where something is not known."""

    history: EngineHistory
    steps_per_s: Floats
    """`iteration_tokens_total_count`, a second."""
    prefill_s: Floats
    """Mean of `request_prefill_time_seconds`: from being scheduled to the first token."""
    hit_share: Floats
    """Of the prompt tokens, those that the prefix cache served; 0 where the engine counts none."""
    kv_cache_tokens: int | None
    """Tokens that fit into its KV cache."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Families without which nothing can be fitted, by vLLM's names."""
        known = {
            "iteration_tokens_total": np.isfinite(self.steps_per_s).any(),
            "request_prefill_time_seconds": np.isfinite(self.prefill_s).any(),
            "kv_cache_usage_perc": np.isfinite(self.history.kv_usage).any(),
            "cache_config_info": self.kv_cache_tokens is not None,
        }
        return tuple(name for name, is_known in known.items() if not is_known)

    @property
    def windows(self) -> tuple[CounterWindow, ...]:
        """Those of which all is known; what was computed again after a preemption tells of no ordinary step."""
        whole, each = self.history, self.history.window_s
        computed = whole.prompted_per_s * (1 - self.hit_share)
        columns = (
            self.steps_per_s,
            whole.requests_per_s,
            whole.gaps_per_s,
            computed,
            whole.decoding,
            whole.kv_usage * float(self.kv_cache_tokens or 0),
            whole.running_sd,
            self.prefill_s,
        )
        rows = np.column_stack(columns)[~(whole.preemptions_per_s > 0)]
        rows = rows[np.isfinite(rows).all(axis=1) & (rows[:, -1] > 0)]
        return tuple(
            CounterWindow(
                duration_s=each,
                steps=round(steps * each),
                requests=round(requests * each),
                generation_tokens=round(gaps * each),
                prompt_tokens=round(prompted * each),
                running=decoding,
                kv_tokens=kv_tokens,
                running_sd=running_sd,
                prefill_s=prefill_s,
            )
            for steps, requests, gaps, prompted, decoding, kv_tokens, running_sd, prefill_s in rows.tolist()
        )
