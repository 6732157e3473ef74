"""Which setting makes the most tokens where nobody waits: objective Throughput.

The twin keeps every setting's engine full, or loads it with the users that are declared, and counts. Requests are the
same under all settings, so the most requests/s are the most tokens/s. The plateau is flat: of the settings within 2%
of the best the one with the fewest sequences and then the smallest budget is taken, which leaves the most memory for
the KV cache and activations, and the least to preempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.stage import Slo
from kneekeeper.domain.binding import bound_by
from kneekeeper.domain.candidates import Candidates
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.surface import BUSIEST, FullBatch, Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

ALIKE = 0.02
"""Predicted throughputs within this share are alike: a stage tells a throughput to about that much."""

STORM = 0.1
"""Preemptions per request from which on a setting is left out where another one has fewer: the twin counts what is
computed again, but not what a real engine loses beside it (evicted prefixes, uneven batches)."""

LEAST_REQUESTS = 2000
REQUESTS_PER_SEQUENCE = 8
"""Of a run of the twin: enough for every place of the batch to be taken several times."""


@dataclass(frozen=True)
class MostTokens:
    """The setting, with the requests/s that it should make when it is full."""

    setting: Setting
    requests_per_s: float
    bound_by: BoundBy
    message: str


def most_tokens(traffic: TwinTraffic, law: Law, allowed: Candidates, users: int | None) -> MostTokens:
    """The best of the `allowed` settings; `users` are the declared ones of a closed loop, None where the engine is
    kept full. At least one setting must be allowed. Deterministic. Takes seconds."""
    most = max(setting.max_num_seqs for setting in allowed.settings)
    count = max(LEAST_REQUESTS, REQUESTS_PER_SEQUENCE * min(most, users or most))
    surface = Surface.drawn(traffic, [Slo()], [law], count)

    def full(setting: Setting) -> FullBatch:
        limits = traffic.limits(setting)
        return surface.full_batch(limits, min(limits.running, users or limits.running))

    found = {setting: full(setting) for setting in allowed.settings}
    calm = {s: batch for s, batch in found.items() if batch.preemptions_per_request <= STORM} or found
    enough = (1 - ALIKE) * max(batch.requests_per_s for batch in calm.values())
    alike = [setting for setting, batch in calm.items() if batch.requests_per_s >= enough]
    best = min(alike, key=lambda setting: (setting.max_num_seqs, setting.max_num_batched_tokens))
    rate = found[best].requests_per_s
    tokens = rate * mean_tokens(traffic.output_tokens)
    by = f"{users} users" if users is not None else "a full batch"
    return MostTokens(
        setting=best,
        requests_per_s=rate,
        bound_by=bound_by(surface, best, BUSIEST * rate, allowed),
        message=f"{best} should make {tokens:.4g} output tokens/s ({rate:.3g} requests/s) with {by}: no setting in "
        f"the bounds is predicted to make more than {ALIKE:.0%} more.",
    )
