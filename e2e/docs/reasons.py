"""Conditions and their reasons as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from e2e.docs.reason_words import ARGUMENTS, CAUSES, NOT_ACTED_ON, STARTS, WAITS, Told, told
from kneekeeper.domain.arguments.refusal import RefusalReason
from kneekeeper.domain.plan.conditions import ConditionType
from kneekeeper.domain.startup_failures import FailureKind, next_step_of

PAGE_NAME = "conditions.md"


def _anchor(section: str) -> str:
    return section.lower().replace(" ", "-")


_ABOUT = {
    ConditionType.ACCEPTED: "Whether the profile is one that this version acts on. False: nothing is done.",
    ConditionType.TARGET_FOUND: "Whether the workload and its vLLM container were found and understood.",
    ConditionType.METRICS_AVAILABLE: "Whether the serving pods' metrics can be read.",
    ConditionType.PROBING: "Whether a run is under way; False while one waits, or none is wanted. "
    f"While one is, its reason is [what the run waits for](#{_anchor(WAITS)}).",
    ConditionType.RECOMMENDED: "Whether a setting is proven, or the present one is as good.",
    ConditionType.APPLIED: "Whether the workload runs with the recommended setting.",
    ConditionType.DRIFTED: "Whether others changed what was applied.",
    ConditionType.DEGRADED: "Whether something is wrong that needs a person: a rollback, pods that crash.",
    ConditionType.CONTESTED: "Whether a tool that owns the object may put its own values back.",
    ConditionType.LIVE_CHANGES: "Whether production's limits are switched without a restart "
    "([settings by the hour](../schedules.md#switched-live)); set where the profile allows it. False: by rollout.",
    ConditionType.READY: "The sum: True where nothing is left to do. Else its reason is that of the condition that "
    "decides, or one of these.",
    ConditionType.SUCCEEDED: "Of a TuningRun: True where it proved a setting, or that the present one is as good. Its "
    f"reason is [the cause](#{_anchor(CAUSES)}) of the end; while the run goes on, it is Unknown, with "
    f"[what it waits for](#{_anchor(WAITS)}) or its step.",
    ConditionType.PROMPTS_REPRESENTATIVE: "Of a TuningRun: False where drawn prompts make its numbers a rough guide.",
    ConditionType.LIVE_TUNING: "Of a TuningRun: whether the present setting was compared without a restart "
    "([live tuning](../livetune.md)).",
}
_INTRODUCTION = """\
# Conditions and reasons

<!-- Written by `make reference` from the code that sets them. -->

Types and reasons are part of the API: programs may rely on them. Messages are for people, and `…` stands for what is
filled in. `kubectl describe sp NAME` shows all of a profile; `kubectl wait --for=condition=Ready sp/NAME` waits.
What to do about what goes wrong: [failure modes](../failure_modes.md).
"""


def page() -> str:
    """The whole page."""
    known = told()
    lines = [_INTRODUCTION]
    for type_ in ConditionType:
        lines += [f"## {type_}", "", _ABOUT[type_], "", *_table("status", (t for t in known if t.section == type_))]
    lines += [
        *_heading(NOT_ACTED_ON),
        "Part of the API, and refused by this version with `Accepted=False/NotSupported`:",
        "",
    ]
    lines += [*(f"- {_cell(one.message)}" for one in known if one.section == NOT_ACTED_ON), ""]
    lines += [*_heading(WAITS), "`status.waitingFor` of a TuningRun.", ""]
    lines += _table("", (one for one in known if one.section == WAITS))
    lines += [
        *_heading(CAUSES),
        "`status.outcome` and `status.cause` of a TuningRun; the cause is also the reason of the",
    ]
    lines += ["profile's `Recommended`. Reasons of `Accepted` and `TargetFound` are causes as well.", ""]
    lines += _table("outcome", (one for one in known if one.section == CAUSES))
    lines += [
        *_heading(STARTS),
        "Read off the log of a pod that ended: in `status.cloneFailures` of a run, as its cause,",
    ]
    lines += ["and as the reason of `Degraded`.", "", "| reason | next step |", "| --- | --- |"]
    lines += [f"| `{kind}` | {_cell(next_step_of(kind))} |" for kind in FailureKind]
    lines += ["", *_heading(ARGUMENTS), "[Their page](../arguments.md#what-is-refused) has examples. The reasons are"]
    lines += [", ".join(f"`{reason}`" for reason in RefusalReason) + ".", ""]
    return "\n".join(lines)


def _heading(section: str) -> Iterator[str]:
    yield from (f"## {section}", "")


def _table(status: str, rows: Iterable[Told]) -> Iterator[str]:
    """Rows of one section; a reason with several messages has one row. `status` is the first column's title, if any."""
    messages: dict[tuple[str, str], list[str]] = {}
    for one in rows:
        messages.setdefault((one.status, one.reason), []).append(_cell(one.message))
    if not messages:
        return
    yield f"| {status} | reason | message |" if status else "| reason | message |"
    yield "| --- | --- | --- |" if status else "| --- | --- |"
    for (state, reason), texts in messages.items():
        said = " *or* ".join(dict.fromkeys(text for text in texts if text))
        yield f"| {state} | {_reason(reason)} | {said} |" if status else f"| {_reason(reason)} | {said} |"
    yield ""


def _reason(reason: str) -> str:
    return f"{reason.lower()}(#{_anchor(reason.strip('[]'))})" if reason.startswith("[") else f"`{reason}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
