"""The findings in a profile's status, as lines of text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kneekeeper.api.findings import FindingPhase, FindingStatus
from kneekeeper.domain.diagnose.finding import Evidence
from kneekeeper.domain.diagnose.text import shown

_WIDTH = 100


def finding_lines(findings: Sequence[FindingStatus]) -> Iterator[str]:
    """What is wrong, with numbers and the next step."""
    for finding in findings:
        where = f"pod {finding.pod}" + (f" and {finding.pods - 1} more" if finding.pods > 1 else "")
        clearing = ", clearing" if finding.phase is FindingPhase.CLEARING else ""
        since = f"{finding.since:%Y-%m-%d %H:%M} UTC"
        yield f"{finding.reason} (confidence {finding.confidence.lower()}{clearing}), {where}, since {since}"
        numbers = [shown(Evidence(value.name, value.value, value.unit)) for value in finding.evidence]
        for text in (finding.message, f"Next: {finding.next_step}", f"Evidence: {'; '.join(numbers)}"):
            yield from wrapped(text)
        if finding.missing:
            yield from wrapped(f"Would be surer with: {', '.join(finding.missing)}")


def wrapped(text: str) -> list[str]:
    """Below the line that names what is wrong."""
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
