"""A probe's result as JSON for programs, CSV for tables, and HTML for people; HTML needs nothing beside itself."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from kneekeeper import __version__
from kneekeeper.domain.contradictions import Contradiction
from kneekeeper.domain.load_level import LoadLevel, verdict_of_levels
from kneekeeper.local.probing import ProbeResult
from kneekeeper.local.svg import Curve, line_chart
from kneekeeper.local.wording import verdict_word


@dataclass(frozen=True)
class ProbeReport:
    """Everything that a probe found. `verdict` is None without targets."""

    url: str
    model: str
    verdict: str | None
    interrupted: bool
    server_metrics: bool
    levels: tuple[LoadLevel, ...]
    contradictions: tuple[Contradiction, ...]
    kneekeeper: str


def report_of(result: ProbeResult) -> ProbeReport:
    """Sum up what was measured."""
    verdict = verdict_of_levels(result.levels)
    return ProbeReport(
        url=result.url,
        model=result.model,
        verdict=None if verdict is None else verdict.value,
        interrupted=result.interrupted,
        server_metrics=result.has_metrics,
        levels=tuple(result.levels),
        contradictions=tuple(result.contradictions),
        kneekeeper=__version__,
    )


def to_json(report: ProbeReport) -> str:
    return orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def to_csv(report: ProbeReport) -> str:
    """One row for each level; nested values as `ttft_p99_s`."""
    text = io.StringIO()
    rows = [_flat(asdict(level)) for level in report.levels]
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _flat(values: dict[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{inner}": inner_value for inner, inner_value in value.items()}
        else:
            flat[name] = value
    return flat


def to_html(report: ProbeReport) -> str:
    """One page with the table, three charts and the contradictions; no script, nothing is loaded."""
    title = f"Probe of {html.escape(report.model)} at {html.escape(report.url)}"
    verdict = f"<p class=verdict>{html.escape(verdict_word(report.verdict))}</p>" if report.verdict else ""
    broken_off = "<p>The probe was interrupted; the last level is not complete.</p>" if report.interrupted else ""
    told = "".join(f"<li>{html.escape(c.level)}: {html.escape(c.message)}</li>" for c in report.contradictions)
    reasons = "".join(
        f"<li>{html.escape(f'{level.name}: {verdict_word(level.verdict)}. {level.message}')}</li>"
        for level in report.levels
        if level.verdict is not None and level.message
    )
    verdicts = f"<h2>Verdicts</h2><ul>{reasons}</ul>" if reasons else ""
    warm_up = f"<p>{warm_up_note(report.levels)}</p>"
    against = f"<h2>Contradictions between client and server</h2><ul>{told}</ul>" if told else ""
    blind = "" if report.server_metrics else "<p>The server has no vLLM metrics; nothing was compared.</p>"
    charts = "".join(_charts(report.levels))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{title}</h1>{verdict}{broken_off}{charts}{_table(report.levels)}"
        f"{warm_up}{verdicts}{against}{blind}"
        f"<footer>kneekeeper {report.kneekeeper}</footer></body></html>\n"
    )


def warm_up_note(levels: Sequence[LoadLevel]) -> str:
    """How many requests are left out of all numbers, and why, for people; empty where none is."""
    cut, counted = sum(level.warmup_requests for level in levels), sum(level.requests for level in levels)
    if not cut:
        return ""
    return f"Warm-up: {cut} of {cut + counted} requests were sent before the load was steady, and are left out."


FORMATS: dict[str, Callable[[ProbeReport], str]] = {".json": to_json, ".csv": to_csv, ".html": to_html}


def write(report: ProbeReport, path: Path) -> None:
    """In the format that the name's end says, one of FORMATS. Raises OSError."""
    path.write_text(FORMATS[path.suffix](report), encoding="utf-8")


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1b1f24}"
    "h1{font-size:1.4em}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.3em .7em;text-align:right;border-bottom:1px solid #ddd}th:first-child,td:first-child,"
    "td.text{text-align:left}.verdict{font-size:1.3em;font-weight:bold}svg{margin:0 1em 1em 0}footer{color:#777}"
)

_COLUMNS: tuple[tuple[str, Callable[[LoadLevel], str]], ...] = (
    ("level", lambda level: level.name),
    ("warm-up", lambda level: str(level.warmup_requests)),
    ("requests", lambda level: str(level.requests)),
    ("failed", lambda level: str(level.failed)),
    ("requests/s", lambda level: f"{level.requests_per_s:.3g}"),
    ("tokens/s", lambda level: f"{level.output_tokens_per_s:.4g}"),
    ("in flight", lambda level: f"{level.mean_concurrency:.3g}"),
    ("TTFT p50, ms", lambda level: _ms(level.ttft.p50_s)),
    ("p99", lambda level: _ms(level.ttft.p99_s)),
    ("TPOT p50, ms", lambda level: _ms(level.tpot.p50_s)),
    ("p99", lambda level: _ms(level.tpot.p99_s)),
    ("E2E p99, ms", lambda level: _ms(level.e2e.p99_s)),
    ("missed", lambda level: str(level.misses)),
    ("verdict", lambda level: verdict_word(level.verdict)),
)


def _table(levels: Sequence[LoadLevel]) -> str:
    head = "".join(f"<th>{name}</th>" for name, _ in _COLUMNS)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell(level))}</td>' for _, cell in _COLUMNS)}</tr>" for level in levels
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _charts(levels: Sequence[LoadLevel]) -> list[str]:
    curves = (
        Curve("requests/s", tuple((level.mean_concurrency, level.requests_per_s) for level in levels)),
        Curve("P99 TTFT, ms", _points(levels, lambda level: level.ttft.p99_s)),
        Curve("P99 TPOT, ms", _points(levels, lambda level: level.tpot.p99_s)),
    )
    return [line_chart(curve, "requests in flight") for curve in curves if len(curve.points) >= 2]


def _points(
    levels: Sequence[LoadLevel], seconds: Callable[[LoadLevel], float | None]
) -> tuple[tuple[float, float], ...]:
    known = ((level.mean_concurrency, seconds(level)) for level in levels)
    return tuple((x, 1e3 * y) for x, y in known if y is not None)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.4g}"
