"""What was measured, as JSON and as a page."""

from __future__ import annotations

import os
from dataclasses import asdict, astuple, dataclass, field
from statistics import median
from typing import Any

from benchmarks.load.levels import Client, Level, Quantiles
from benchmarks.load.measure import Measured
from benchmarks.load.truth import Plan


@dataclass
class Results:
    """Collects measurements; several of one client at one level stand for their medians."""

    plan: Plan
    output_tokens: int
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    _measured: dict[str, dict[str, list[Measured]]] = field(default_factory=dict)

    def skip(self, client: Client, why: str) -> None:
        """A client that cannot be had here."""
        self.skipped[client.name] = why

    def is_skipped(self, client: Client) -> bool:
        return client.name in self.skipped

    def fail(self, client: Client, level: Level, why: str) -> None:
        """A run without a report."""
        self.failed.setdefault(client.name, {})[level.name] = why

    def add(self, client: Client, level: Level, measured: Measured) -> None:
        self.versions[client.name] = client.version
        self._measured.setdefault(client.name, {}).setdefault(level.name, []).append(measured)

    def medians(self) -> dict[str, dict[str, Measured]]:
        """By client and level. Of the verdicts all that differ are told."""
        return {
            client: {level: _median(rounds) for level, rounds in levels.items()}
            for client, levels in self._measured.items()
        }


def _median(rounds: list[Measured]) -> Measured:
    def of_quantiles(several: list[Quantiles]) -> Quantiles:
        return Quantiles(*(median(values) for values in zip(*map(astuple, several), strict=True)))

    return Measured(
        error_ms=of_quantiles([one.error_ms for one in rounds]),
        truth_ms=of_quantiles([one.truth_ms for one in rounds]),
        achieved=median(one.achieved for one in rounds),
        cpu=median(one.cpu for one in rounds),
        verdict=" | ".join(dict.fromkeys(one.verdict for one in rounds)),
    )


def as_json(results: Results) -> dict[str, Any]:
    """The benchmark's last line."""
    medians = results.medians()

    def table(value: Any) -> dict[str, dict[str, Any]]:
        return {
            client: {level: value(measured) for level, measured in levels.items()} for client, levels in medians.items()
        }

    def rounded(quantiles: Quantiles) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(quantiles).items()}

    return {
        "plan": asdict(results.plan) | {"output_tokens": results.output_tokens},
        "error_ms": table(lambda measured: rounded(measured.error_ms)),
        "truth_ms": table(lambda measured: rounded(measured.truth_ms)),
        "achieved": table(lambda measured: round(measured.achieved, 4)),
        "cpu": table(lambda measured: round(measured.cpu, 3)),
        "verdict": {client: levels for client, levels in table(lambda m: m.verdict).items() if any(levels.values())},
        "versions": results.versions,
        "skipped": results.skipped,
        "failed": results.failed,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def as_page(results: Results) -> str:
    """The same for people."""
    plan = results.plan
    lines = [
        "# How exactly load generators measure",
        "",
        "Written by `make bench-load`. A server that stamps its own truth answers after"
        f" {plan.ttft_ms:g} ms, then sends one token every {plan.tpot_ms:g} ms, {results.output_tokens} in all."
        f" Clients and server share {os.cpu_count()} cores. Errors are the client's figure minus the truth, in ms;"
        " the offered load is that which reached the server, over that which was asked for; CPU is in cores.",
        "",
        "Each client runs as it comes, except that GuideLLM gets as many worker processes as there are cores, and that"
        " AIPerf and kneekeeper believe the server's token counts. kneekeeper starts the users of a closed loop spread"
        " out over some seconds; the others start all at once, so their tokens come in larger bursts.",
        "",
        "| client | load | TTFT P50 | TTFT P99 | TPOT P50 | TPOT P99 | offered | CPU | its own verdict |",
        "| --- | --- | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for client, levels in results.medians().items():
        for level, measured in levels.items():
            load = level if level.endswith("rps") else f"{level} streams"
            errors = " | ".join(f"{value:+.2f}" for value in astuple(measured.error_ms))
            verdict = measured.verdict.split(":")[0] or "none"
            lines.append(
                f"| {client} {results.versions[client]} | {load} | {errors} | {100 * measured.achieved:.1f}%"
                f" | {measured.cpu:.2f} | {verdict} |"
            )
    for client, why in results.skipped.items():
        lines += ["", f"{client} was left out: {why}"]
    for client, failures in results.failed.items():
        for level, why in failures.items():
            lines += ["", f"{client} failed at {level}: {' '.join(why.split())}"]
    return "\n".join(lines) + "\n"
