"""How long a stage waits for an answer before it gives it up as failed.

An answer that holds its targets must never be given up: a failed request is a miss, and one that more or less load
does not tell apart. A long answer at the slowest pace that a TPOT target allows takes minutes.
"""

from __future__ import annotations

from kneekeeper.api.offered_load import Lengths
from kneekeeper.api.stage import Slo
from kneekeeper.domain.lengths import longest_tokens

LEAST_PATIENCE_S = 120.0

PATIENCE = 2.0
"""Times what the targets allow the longest answer: what takes longer is missed in any case, what takes a little longer
still loads the engine."""

SLOWEST_TPOT_S = 0.1
"""Where no target says how fast: about as fast as people read."""


def patience_s(slo: Slo, output_tokens: Lengths) -> float:
    """The longest that an answer of these lengths is waited for."""
    allowed_s = slo.e2e_s
    if allowed_s is None:
        allowed_s = (slo.ttft_s or 0.0) + longest_tokens(output_tokens) * (slo.tpot_s or SLOWEST_TPOT_S)
    return max(LEAST_PATIENCE_S, PATIENCE * allowed_s)
