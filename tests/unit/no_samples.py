"""What an agent gives of a stage in which nothing was sent."""

from __future__ import annotations

from kneekeeper.api.stage import Samples

NO_SAMPLES = Samples(
    warmup_s=0.0,
    intended_s=[],
    sent_s=[],
    first_s=[],
    last_s=[],
    prompt_tokens=[],
    output_tokens=[],
    first_chunk_tokens=[],
    chunks=[],
    outcome=[],
)
