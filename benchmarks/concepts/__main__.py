"""`python -m benchmarks.concepts`: writes docs/images/concepts, and the numbers below each figure of docs/concepts.md.

The last line that it prints is what the figures rest on, as one JSON object. Half a minute of one core.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.concepts import figures
from benchmarks.concepts.svg import Axis, Curve, HeatMap, Mark, Panel, Scale, heat_maps, panels
from kneekeeper.api.stage import Slo

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts.md"
IMAGES = ROOT / "docs" / "images" / "concepts"

USERS_AXIS = Axis("requests in flight", (1, 4, 16, 64, 256), Scale.LOG)
ALIKE = 0.02
"""Of the best rate: settings that differ by less are shown as equally good."""

SEQUENCES, BUDGETS = (8, 16, 32, 64, 128, 256), (256, 512, 1024, 2048, 4096, 8192)
SERVED = (
    ("Chat: 800 tokens in, 200 out", figures.CHAT, Slo(ttft_s=1.5, tpot_s=0.05)),
    ("Documents: 6000 in, 150 out", figures.DOCUMENTS, Slo(ttft_s=6.0, tpot_s=0.15)),
    ("Writing: 150 in, 700 out", figures.WRITING, Slo(ttft_s=0.5, tpot_s=0.025)),
)


@dataclass(frozen=True)
class Figure:
    """One picture, what stands below it, and what both rest on."""

    name: str
    svg: str
    caption: str
    numbers: Any


def knee() -> Figure:
    """Throughput flattens while the time of a token goes on growing."""
    levels = figures.ramp(figures.CHAT)
    at = figures.knee_of(levels)
    alone, last = levels[0], levels[-1]
    mark = (Mark(at, "knee"),)
    svg = panels(
        [
            Panel(
                "Throughput",
                USERS_AXIS,
                Axis("requests/s", (0, 2, 4, 6, 8, 10)),
                [Curve("", [(level.users, level.requests_per_s) for level in levels])],
                mark,
            ),
            Panel(
                "Time per output token",
                USERS_AXIS,
                Axis("ms", (0, 50, 100, 150, 200)),
                [
                    Curve("P99", [(level.users, 1000 * level.p99_tpot_s) for level in levels]),
                    Curve("median", [(level.users, 1000 * level.p50_tpot_s) for level in levels]),
                ],
                mark,
            ),
        ],
        "Throughput grows and flattens with the requests in flight; the time per output token never stops growing.",
    )
    before, after = (next(level for level in levels if level.users == users) for users in (64, 256))
    caption = (
        f"From 1 to 64 requests in flight, throughput grows from {alone.requests_per_s:.2g} to "
        f"{before.requests_per_s:.2g} requests/s; four times as many bring it to {after.requests_per_s:.2g}, and P99 "
        f"TPOT from {1000 * before.p99_tpot_s:.0f} to {1000 * after.p99_tpot_s:.0f} ms. The knee, where 1% more "
        f"requests in flight bring 0.2% more throughput, lies at {at:.0f}."
    )
    return Figure("knee", svg, caption, {"knee": at, "highest": asdict(last), "levels": [asdict(x) for x in levels]})


def tail() -> Figure:
    """The mean says nothing of the tail, and a closed loop nothing of a queue."""
    under = figures.limits(64, figures.BUDGET_TOKENS)
    top = figures.closed_loops(under, (64,))[0].requests_per_s
    opened = figures.open_loops(under, [float(share * top) for share in np.linspace(0.3, 0.9, 13)])
    closed = figures.closed_loops(under, (4, 8, 12, 16, 24, 32, 48, 64))
    svg = panels(
        [
            Panel(
                "Time to first token, the same engine",
                Axis("requests/s", (0, 2, 4, 6, 8)),
                Axis("ms", (100, 1000, 10_000), Scale.LOG),
                [
                    Curve("open loop, P99", [(o.requests_per_s, 1000 * o.p99_ttft_s) for o in opened]),
                    Curve("open loop, mean", [(o.requests_per_s, 1000 * o.mean_ttft_s) for o in opened]),
                    Curve("closed loop, P99", [(c.requests_per_s, 1000 * c.p99_ttft_s) for c in closed]),
                ],
            )
        ],
        "In an open loop P99 TTFT leaves the mean behind and rises steeply near saturation; a closed loop hides it.",
    )
    busy, fullest = opened[10], closed[-1]
    caption = (
        f"64 users who wait for their answers draw {fullest.requests_per_s:.2g} requests/s from this engine and "
        f"see a P99 of {1000 * fullest.p99_ttft_s:.0f} ms: they cannot queue more than themselves. At "
        f"{busy.requests_per_s / top:.0%} of that rate in an open loop, the mean is {1000 * busy.mean_ttft_s:.0f} ms "
        f"and P99 {1000 * busy.p99_ttft_s:.0f} ms."
    )
    return Figure("tail", svg, caption, {"open": [asdict(o) for o in opened], "closed": [asdict(c) for c in closed]})


def prefill() -> Figure:
    """A long prompt in the batch stops all others for as long as its step takes."""
    shown = {tokens: figures.gaps(tokens) for tokens in (8192, 512)}
    longest = {tokens: max(step.duration_s for step in result.log) for tokens, result in shown.items()}
    first = {tokens: float(result.ttft_s[-1]) for tokens, result in shown.items()}

    def steps(tokens: int) -> Iterator[tuple[float, float]]:
        for step in shown[tokens].log:
            if 0.4 <= step.start_s <= 2.4:
                yield step.start_s, 1000 * step.duration_s
                yield step.start_s + step.duration_s, 1000 * step.duration_s

    svg = panels(
        [
            Panel(
                "Gap between two tokens of every other answer",
                Axis("seconds", (0.4, 0.8, 1.2, 1.6, 2.0, 2.4)),
                Axis("ms", (1, 10, 100, 1000, 5000), Scale.LOG),
                [Curve(f"{tokens} tokens a step", list(steps(tokens))) for tokens in shown],
            )
        ],
        "With a large token budget one step lasts about a second; with a small one, a number of steps last longer.",
    )
    caption = (
        f"A prompt of 8,000 tokens arrives while 32 answers are written. With 8,192 tokens a step all of them stand "
        f"still for {1000 * longest[8192]:.0f} ms; with 512 the longest gap is {1000 * longest[512]:.0f} ms, and the "
        f"prompt's own first token comes after {1000 * first[512]:.0f} instead of {1000 * first[8192]:.0f} ms."
    )
    return Figure("prefill", svg, caption, {"longest_gap_s": longest, "ttft_s": first})


def kv_cache() -> Figure:
    """Beyond what the KV cache holds, more sequences only take room from each other."""
    sizes = {"420,000 tokens": figures.KV_TOKENS, "40,000 tokens": figures.SMALL_KV_TOKENS}
    ramps = {label: figures.ramp(figures.CHAT, tokens) for label, tokens in sizes.items()}
    svg = panels(
        [
            Panel(
                "Throughput by size of the KV cache",
                USERS_AXIS,
                Axis("requests/s", (0, 2, 4, 6, 8, 10)),
                [Curve(label, [(x.users, x.requests_per_s) for x in levels]) for label, levels in ramps.items()],
            ),
            Panel(
                "P99 time to first token",
                USERS_AXIS,
                Axis("ms", (10, 100, 1000, 10_000, 100_000), Scale.LOG),
                [Curve(label, [(x.users, 1000 * x.p99_ttft_s) for x in levels]) for label, levels in ramps.items()],
            ),
        ],
        "With a small KV cache throughput stops growing early and the time to first token rises by waiting.",
    )
    small, large = ramps["40,000 tokens"][-1], ramps["420,000 tokens"][-1]
    caption = (
        f"256 requests in flight: {large.requests_per_s:.2g} requests/s with room for 420,000 tokens, "
        f"{small.requests_per_s:.2g} with room for 40,000, where {small.preempted_share:.0%} of the requests were "
        f"preempted and computed again, and P99 TTFT is {small.p99_ttft_s:.2g} s instead of {large.p99_ttft_s:.2g} s."
    )
    return Figure("kv-cache", svg, caption, {label: [asdict(x) for x in levels] for label, levels in ramps.items()})


def settings() -> Figure:
    """Which setting is taken depends on the traffic."""
    maps = []
    taken: dict[str, tuple[int, int]] = {}
    shares: dict[str, list[list[float]]] = {}
    for title, traffic, slo in SERVED:
        rates = figures.capacities(traffic, slo, SEQUENCES, BUDGETS)
        top = max(max(row) for row in rates)
        name = title.partition(":")[0].lower()
        shares[name] = [[rate / top for rate in row] for row in rates]
        taken[name] = _taken(shares[name])
        maps.append(HeatMap(title, SEQUENCES, BUDGETS, shares[name], taken[name]))
    told = []
    for ours, theirs in (("documents", "chat"), ("chat", "writing"), ("writing", "documents")):
        row, column = taken[ours]
        share = shares[theirs][row][column]
        setting = f"{SEQUENCES[column]}/{BUDGETS[row]}"
        told.append(f"that of {ours} ({setting}) carries {share:.0%} of the best rate of {theirs}")
    svg = heat_maps(
        maps,
        "max_num_seqs",
        "max_num_batched_tokens",
        "Three heat maps of the rate inside the targets; the framed setting lies elsewhere in each.",
    )
    caption = (
        "Percent of the highest rate that holds the targets. Framed is the setting with the fewest sequences within "
        f"{ALIKE:.0%} of the best. Among these three settings, {'; '.join(told)}."
    )
    return Figure("settings", svg, caption, {name: {"taken": taken[name], "shares": shares[name]} for name in shares})


def _taken(shares: list[list[float]]) -> tuple[int, int]:
    """Row and column of the fewest sequences, and there of the smallest budget, that are alike to the best."""
    return next((r, c) for c in range(len(SEQUENCES)) for r in range(len(BUDGETS)) if shares[r][c] >= 1 - ALIKE)


def with_caption(page: str, figure: Figure) -> str:
    """The page with the figure's numbers in their place."""
    begin, end = f"<!-- make figures: {figure.name} -->", "<!-- end -->"
    place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not place.search(page):
        raise SystemExit(f"docs/concepts.md has no place for {figure.name}: add {begin} and {end}")
    return place.sub(lambda _: f"{begin}\n\n*{figure.caption}*\n\n{end}", page)


def main() -> None:
    """Draw all, and write them."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    page = PAGE.read_text(encoding="utf-8")
    numbers = {}
    for draw in (knee, tail, prefill, kv_cache, settings):
        figure = draw()
        (IMAGES / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        page, numbers[figure.name] = with_caption(page, figure), figure.numbers
        print(f"{figure.name}: {figure.caption}")
    PAGE.write_text(page, encoding="utf-8")
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
