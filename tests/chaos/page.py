"""docs/results/chaos.md, from a report."""

from __future__ import annotations

import json

from tests.chaos.campaign import Report
from tests.chaos.faults import API_FAULTS, SHARES
from tests.chaos.stories import ALL

WHOLE_RUNS = 1000


def page(report: Report, seed: int, runs: int) -> str:
    """The whole page, of so many random lives and what was lived beside them."""
    short = "" if report.runs >= WHOLE_RUNS else f"**This is a short form**: the long one has {WHOLE_RUNS:,} lives.\n\n"
    wrong = "".join(f"- {each}\n" for each in report.told) or "None.\n"
    return f"""\
# Lives under faults

Written by `make chaos`: {runs} lives under random faults, seeds {seed} to {seed + runs - 1}, and \
{report.runs - runs} others.

{short}A life is a profile from its making to where nothing is left to do: the operator's own code on a virtual clock,
through a proxy before a real API server; the kubelet, the controllers, the load agents and the engines are played.
{len(ALL)} stories are lived in turn: {", ".join(story.name for story in ALL)}. {_per_cent(SHARES)} of the calls go
wrong in one of {len(API_FAULTS)} ways ({", ".join(API_FAULTS)}), and now and then the server is away for a while.
Where a life ends is held against the same story without a fault: outcome, setting, arguments, replicas, every stage
that was measured, children made once, nothing left behind.

| lives | wrong | with something left behind | gave up and said so | faults | kills | most calls in a minute |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| {report.runs} | {report.wrong} | {report.left_behind} | {report.gave_up} | {report.faults} | {report.kills} \
| {report.most_calls_per_minute} |

A life that gave up had a server that was away for longer than a clone or an agent is waited for: the run ended with
that as its cause, and everything is as it was.

## What was wrong

{wrong}
```json
{json.dumps(report.summary())}
```
"""


def _per_cent(shares: tuple[float, ...]) -> str:
    *first, last = (f"{share:.0%}" for share in shares)
    return f"{', '.join(first)} or {last}"
