"""A diagnosis as an expert would tell it: lines of text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kneekeeper.domain.diagnose.finding import Diagnosis, Evidence, Unit

_WIDTH = 100


def explain(diagnosis: Diagnosis) -> str:
    """Findings first, then what does not apply, then what could not be judged, and why."""
    return "\n".join(_lines(diagnosis))


def shown(evidence: Evidence) -> str:
    """One number with its unit, such as `mean TTFT 120 ms`."""
    value = evidence.value
    match evidence.unit:
        case Unit.SECONDS:
            text = f"{value * 1e3:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
        case Unit.SHARE:
            text = f"{value:.1%}"
        case Unit.PER_SECOND:
            text = f"{value:.3g}/s"
        case Unit.TOKENS | Unit.TOKENS_PER_SECOND:
            text = f"{value:.0f} {evidence.unit}"
        case _:
            text = f"{value:.3g} {evidence.unit}".rstrip()
    return f"{evidence.name} {text}"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.findings and not diagnosis.not_applicable:
        yield "Nothing is wrong" + (", as far as could be judged." if diagnosis.unjudged else ".")
    for finding in diagnosis.findings:
        yield f"{finding.reason} (confidence {str(finding.confidence).lower()})"
        yield from _wrapped(finding.message)
        yield from _wrapped("Next: " + finding.next_step)
        yield from _wrapped("Evidence: " + "; ".join(shown(evidence) for evidence in finding.evidence))
        if finding.missing:
            yield from _wrapped("Would be surer with: " + ", ".join(finding.missing))
    for boundary in diagnosis.not_applicable:
        yield f"Not applicable: {boundary.boundary}"
        yield from _wrapped(boundary.why)
        yield from _wrapped("Instead: " + boundary.instead)
    if diagnosis.unjudged:
        yield "Not judged"
        for unjudged in diagnosis.unjudged:
            yield from _wrapped(f"{unjudged.reason}: missing {', '.join(unjudged.missing)}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
