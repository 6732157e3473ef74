"""What production's metrics say of one engine, window after window of some minutes.

The requests that decode are counted without a gauge. Between two of its tokens a request is in exactly one gap, so
the gaps' total over a window, `inter_token_latency_seconds_sum`'s increase, divided by the window is their mean
number (Little's law), and divided by the number of gaps the mean duration of a step as tokens see it. Both are exact
whatever was scraped in between. The gauge of running requests, sampled every some seconds, only adds those that are
in their prompt and how much the number varies within a window.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from kneekeeper.domain.samples import Bools, Floats

LEAST_GAPS = 200.0
"""Of a window that counts: of fewer the mean gap is a matter of luck."""


@dataclass(frozen=True, eq=False)
class EngineHistory:
    """One engine of a pod: a data-parallel rank is an engine of its own.

    Columns have one row a window, oldest first, and NaN where something is not known. Rates are means of the window.
    """

    pod: str
    rank: str
    """The label `engine`; "" where the engine has none (vLLM before 0.8.5)."""
    window_s: float
    at_s: Floats
    """Unix time of the window's end."""
    decoding: Floats
    """Requests between two tokens: seconds of gaps, a second."""
    gaps_per_s: Floats
    running: Floats
    """Mean of the gauge: requests in the batch, those in their prompt included."""
    running_sd: Floats
    """Standard deviation of the gauge within the window."""
    waiting: Floats
    requests_per_s: Floats
    """First tokens, a second."""
    generated_per_s: Floats
    """Tokens, a second."""
    prompted_per_s: Floats
    """Prompt tokens, a second."""
    kv_usage: Floats
    """Share of the KV cache, 0 to 1."""
    preemptions_per_s: Floats

    def __len__(self) -> int:
        return int(self.at_s.size)

    def at(self, rows: Bools) -> EngineHistory:
        """Some of the windows."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen: dict[str, Any] = {n: v[rows] for n, v in columns.items() if isinstance(v, np.ndarray)}
        return replace(self, **chosen)

    @property
    def busy(self) -> EngineHistory:
        """Windows that tell of a step's duration: enough gaps, and none of them a recomputation after preemption."""
        with_gaps = (self.gaps_per_s * self.window_s >= LEAST_GAPS) & (self.decoding > 0) & (self.running > 0)
        return self.at(with_gaps & ~(self.preemptions_per_s > 0))

    @property
    def gap_s(self) -> Floats:
        """Mean duration of a step, as the tokens see it."""
        return self.decoding / self.gaps_per_s

    @property
    def tokens_per_request(self) -> float:
        """Of an answer, over the whole time; 1 where nothing is known."""
        requests = float(np.nansum(self.requests_per_s))
        return max(1.0, float(np.nansum(self.generated_per_s)) / requests) if requests > 0 else 1.0

    @property
    def newest_requests_per_s(self) -> float | None:
        """Of the newest window that is known."""
        known = self.requests_per_s[~np.isnan(self.requests_per_s)]
        return float(known[-1]) if known.size else None
