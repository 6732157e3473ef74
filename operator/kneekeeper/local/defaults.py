"""What is assumed of traffic that nobody described: a chat of middling length, sent by independent users."""

from __future__ import annotations

from kneekeeper.api.workload import TokenLengths, Workload

TRAFFIC = Workload(
    prompt_tokens=TokenLengths(mean=512, p99=2000),
    output_tokens=TokenLengths(mean=128, p99=400),
)
