"""`python -m benchmarks.live`: random changes of both limits of a real engine (vLLM on CPU) under load.

The last line of output is one JSON object. Ends with 1 when a request failed, a change was not in force within the
time that one request takes, vLLM's own metrics contradict the plugin, or a value above the start values was taken.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from e2e.realvllm.environment import VLLM_VERSION, prepare
from e2e.realvllm.live_changes import (
    CLIENTS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    START,
    LiveChanges,
    change_at_random,
    tuned_server,
)
from kneekeeper.load.live_limits import LiveLimits

CHANGES = 400


def main() -> int:
    """0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="where to write the results, as Markdown")
    arguments = parser.parse_args()
    token = secrets.token_urlsafe()
    with (
        tempfile.TemporaryDirectory() as folder,
        tuned_server(prepare(), Path(folder), token) as (server, channel_url),
    ):
        outcome = change_at_random(
            server, lambda: LiveLimits(channel_url, token), changes=arguments.changes, seed=arguments.seed
        )
    in_force_s = sorted(change.in_force_s for change in outcome.changes)
    numbers = {
        "changes": len(outcome.changes),
        "requests": outcome.requests,
        "failed_requests": len(outcome.failures),
        "in_force_median_s": round(median(in_force_s), 3),
        "in_force_max_s": round(in_force_s[-1], 3),
        "longest_request_s": round(outcome.longest_request_s, 3),
        "above_the_limit": outcome.above_the_limit,
        "refused_above_start": outcome.refused_above_start,
        "asked_above_start": outcome.asked_above_start,
    }
    for failure in outcome.failures[:5]:
        print(failure)
    print(f"vLLM {outcome.report.engine_version} on CPU, started with {START}")
    if arguments.page is not None and held(outcome):
        arguments.page.write_text(page(numbers))
    print(json.dumps(numbers))
    return 0 if held(outcome) else 1


def page(numbers: Mapping[str, float]) -> str:
    """What was measured, for people."""
    return f"""# Live tuning of a real engine

Written by `make bench-live`: vLLM {VLLM_VERSION} on CPU with a tiny model, started with
{START}. {CLIENTS} clients kept requests of {PROMPT_TOKENS[0]} to {PROMPT_TOKENS[1]} prompt tokens
and {OUTPUT_TOKENS} output tokens in flight while both limits were changed at random, each
change as soon as the one before was in force. In force means that a step ran
with it and with no more sequences than it allows, by the clock of the engine's own process; a lower limit waits until
enough requests have ended.

| | |
| --- | ---: |
| changes | {numbers["changes"]} |
| requests in that time | {numbers["requests"]} |
| failed requests | {numbers["failed_requests"]} |
| in force after, median | {numbers["in_force_median_s"]} s |
| in force after, longest | {numbers["in_force_max_s"]} s |
| longest time of one request in the engine | {numbers["longest_request_s"]} s |
| more sequences running than allowed, by vLLM's metrics | {numbers["above_the_limit"]} |
| values above the start values: asked for | {numbers["asked_above_start"]} |
| … and refused | {numbers["refused_above_start"]} |
"""


def held(outcome: LiveChanges) -> bool:
    """Whether the outcome shows what live tuning promises."""
    return (
        not outcome.failures
        and outcome.requests > 0
        and max(change.in_force_s for change in outcome.changes) <= outcome.longest_request_s
        and outcome.above_the_limit == 0
        and outcome.refused_above_start == outcome.asked_above_start > 0
    )


if __name__ == "__main__":
    sys.exit(main())
