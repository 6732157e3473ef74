"""docs/results/soak.md, from a report."""

from __future__ import annotations

from collections import Counter

from tests.soak.report import Report

_WHOLE_DAYS, _WHOLE_PROFILES = 14, 20
_WORDS = {
    "image": "other images",
    "model": "other models",
    "lengths": "requests of other lengths",
    "replicas": "replicas changed by hand",
    "targets": "targets edited",
    "suspend": "profiles suspended for 3 hours",
    "delete": "profiles deleted and made anew",
    "crash": "settings that crash once rolled out",
    "evict": "clones evicted",
    "metrics": "faults of metrics, up to 2 hours each",
    "api": "stretches with faults of the API server, up to an hour each",
    "kill": "kills of the operator in the middle of a write",
    "restart": "replacements of the operator",
}


def page(report: Report, seed: int, line: str) -> str:
    """The whole page."""
    told = report.summary()
    happened = "\n".join(f"| {_WORDS[what]} | {count} |" for what, count in report.happened.items())
    rows = "\n".join(
        f"| {day.day} | {day.objects} | {day.remembered} | {day.rss_mib:.0f} | {day.open_files} | {day.tasks} "
        f"| {day.runs} | {day.rollbacks} | {day.broken / max(1.0, day.promised):.3%} |"
        for day in report.by_day
    )
    return f"""\
# Weeks of use

Written by `make soak`: {report.days:g} days of {report.profiles} profiles, seed {seed}, on a virtual clock.
{_short(report)}
The operator's own code, without kopf, looks at its objects at a real API server. The kubelet, the controllers, the
load agents, the engines and their users are played; images and models of engines have speeds of their own, and the law
of their steps is not the one that the product fits. Users come by hour and day, at weekends fewer; every second profile
learns its workload from them; an autoscaler follows the promised rate of half of the workloads; every fifth workload
has no spare GPU and lends a replica to be measured. To pass weeks in an hour, reads are answered from memory until
somebody writes to that kind in that namespace, a profile or a stage that nothing befell is looked at once a minute at
most, and a profile that idles every ten minutes.

| what happened | times |
| --- | ---: |
{happened}

{report.kills} of the kills hit a write, and {report.api_faults} calls of the API server went wrong.
{told["runs"]} runs ended: {_counted(report.outcomes)}; started for: {_counted(report.triggers)}.

## Was the promise kept?

A promise is a profile that is Ready with a certified setting in force: P99 TTFT and P99 TPOT hold up to a rate of one
replica. Every five minutes of each workload are held against it, weighted by their requests.

| requests | millions | in five minutes with a P99 beyond its target |
| --- | ---: | ---: |
| promised something, at no more than the promised rate | {report.tally.promised / 1e6:.2f} \
| {report.promise_broken_share:.3%} |
| as above, of lengths that moved by a tenth or more since they were measured | {report.tally.moved / 1e6:.2f} \
| {report.moved_broken_share:.3%} |
| promised something, at more than the promised rate | {report.tally.beyond / 1e6:.2f} | |
| all | {report.tally.all / 1e6:.2f} | |

## Did anything leak?

After each day: objects of the operator in the cluster (profiles, runs, their children and evidence), entries about
objects in its memory, and what the process holds, in which everybody else is played as well.

| day | objects | entries | RSS, MiB | open files | tasks | runs so far | rollbacks so far | promise broken so far |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

At the end all profiles were deleted. {told["objects_left"]} objects and {told["remembered_left"]} entries were left.

```json
{line}
```
"""


def _short(report: Report) -> str:
    if report.days >= _WHOLE_DAYS and report.profiles >= _WHOLE_PROFILES:
        return ""
    return (
        f"**This is a short form**: {_WHOLE_DAYS} days of {_WHOLE_PROFILES} profiles take a machine of one's own, and\n"
        "growth shows from the third day on.\n"
    )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
