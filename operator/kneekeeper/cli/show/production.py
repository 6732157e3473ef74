"""What production's metrics tell, as lines: each replica against its knee, all of them together, the traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from kneekeeper.api.observed import KneeSource
from kneekeeper.api.quantities import counted
from kneekeeper.cli.show.listing import BAD, FAINT, GOOD, NOTHING, NOTICE, Column, Detail, bar, listing, number
from kneekeeper.domain.views.production import LengthsView, ProductionView, ReplicaView, ScaleView, TrafficView

MOST_REPLICAS = 10
"""Of a page, those with the least headroom; -o wide shows all."""

_LITTLE_HEADROOM_PERCENT = 10
_BAR = 20
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def headroom_style(percent: int | None) -> str:
    """The nearer to the knee, the louder."""
    if percent is None:
        return ""
    return BAD if percent < 0 else NOTICE if percent < _LITTLE_HEADROOM_PERCENT else GOOD


def percent(value: int | None) -> str:
    """Empty where it is not known."""
    return "" if value is None else f"{value}%"


def interval(replica: ReplicaView) -> str:
    """`27.2 to 43` of its own knee, `above 25` where that was not observed."""
    if replica.knee_interval is not None:
        return f"{number(replica.knee_interval.lower)} to {number(replica.knee_interval.upper)}"
    return "" if not replica.knee_at_least else f"above {number(replica.knee_at_least)}"


def _source(replica: ReplicaView) -> str:
    if replica.knee_source == KneeSource.PRODUCTION:
        return "itself"
    of_run = "run" if replica.knee_source else NOTHING
    return f"{of_run} ({replica.not_observed})" if replica.not_observed else of_run


_USUAL = (
    Column[ReplicaView]("POD", lambda each: each.pod),
    Column[ReplicaView]("IN FLIGHT", lambda each: number(each.concurrency)),
    Column[ReplicaView]("KNEE", lambda each: number(each.knee_concurrency)),
    Column[ReplicaView]("", lambda each: _against_the_knee(each), lambda each: headroom_style(each.headroom_percent)),
    Column[ReplicaView](
        "HEADROOM", lambda each: percent(each.headroom_percent), lambda each: headroom_style(each.headroom_percent)
    ),
)
_WIDE = (
    Column[ReplicaView]("KNEE WITHIN", interval),
    Column[ReplicaView]("KNEE FROM", _source),
    Column[ReplicaView]("LOAD", lambda each: number(each.requests_per_second, "/s")),
    Column[ReplicaView]("CAPACITY", lambda each: number(each.capacity_requests_per_second, "/s")),
    Column[ReplicaView]("SPEED", lambda each: percent(each.speed_percent)),
    Column[ReplicaView]("OUTLIER", lambda each: each.outlier, lambda each: NOTICE if each.outlier else ""),
    Column[ReplicaView]("NODE", lambda each: each.node),
    Column[ReplicaView]("GPU", lambda each: each.gpu_product),
)


def replica_lines(replicas: Sequence[ReplicaView], detail: Detail) -> Iterator[Text]:
    """A table, least headroom first, and why some stand out."""
    ordered = sorted(replicas, key=lambda each: (each.headroom_percent is None, each.headroom_percent or 0, each.pod))
    shown = ordered if detail is Detail.WIDE else ordered[:MOST_REPLICAS]
    yield from listing((*_USUAL, *(_WIDE if detail is Detail.WIDE else ())), shown, indent="  ")
    outliers = [each for each in ordered if each.outlier]
    for each in outliers if detail is Detail.WIDE else outliers[:MOST_REPLICAS]:
        yield Text(f"  {each.pod} is {each.outlier}: {each.message}", NOTICE)
    for each in shown if detail is Detail.WIDE else ():
        if each.ranks:
            ranks = ", ".join(f"{rank.rank} at {number(rank.knee_concurrency)}" for rank in each.ranks)
            yield Text(f"  knees of the ranks of {each.pod}: {ranks}", FAINT)
    left = len(ordered) - len(shown)
    if left:
        yield Text(f"  and {left} more with more headroom; -o wide shows them", FAINT)


def _against_the_knee(replica: ReplicaView) -> str:
    if replica.concurrency is None or not replica.knee_concurrency:
        return ""
    return bar(replica.concurrency / replica.knee_concurrency, _BAR)


def scale_text(scale: ScaleView, detail: Detail) -> str:
    """What all carry and what the peak takes; wide, the advice with its reasons."""
    if detail is Detail.WIDE:
        return scale.message
    return (
        f"{number(scale.capacity_requests_per_second)} requests/s; the last day's peak was "
        f"{number(scale.peak_requests_per_second)}, which takes {counted(scale.needed_replicas, 'replica')}"
    )


def traffic_facts(traffic: TrafficView, detail: Detail, now: datetime) -> Iterator[tuple[str, str]]:
    """What was learned, how sure and how old it is; wide, with where the 99th percentiles lie."""
    use = "runs measure it" if traffic.measured_with else "runs measure spec.workload instead"
    yield (
        "traffic",
        f"{_lengths('prompts', traffic.prompt, detail)}, {_lengths('answers', traffic.output, detail)}, "
        f"{traffic.arrivals}, {traffic.prefix_cache_hit_percent}% prefix hits",
    )
    if detail is Detail.WIDE:
        in_flight = f", {number(traffic.concurrency)} in flight" if traffic.concurrency is not None else ""
        yield (
            "",
            f"{number(traffic.requests_per_second)} requests/s on average, "
            f"{number(traffic.peak_requests_per_second)} in the busiest hour{in_flight}",
        )
    yield (
        "learned",
        f"{age(traffic.learned_at, now)} from {traffic.requests} requests in {number(traffic.seen_hours)} hours, "
        f"confidence {traffic.confidence.lower()}; {use}",
    )
    if traffic.drift:
        yield "moved", f"{age(traffic.drift_since, now)}: {traffic.drift}"


def _lengths(what: str, lengths: LengthsView | None, detail: Detail) -> str:
    if lengths is None:
        return f"{what} unknown"
    mean = f"{what} of {number(lengths.mean_tokens)} tokens"
    if detail is Detail.USUAL:
        return mean
    return f"{mean} (P99 {number(lengths.p99_lower_tokens)} to {number(lengths.p99_upper_tokens)})"


def age(at: str | None, now: datetime) -> str:
    """`5m ago`, `3h ago`, `2d ago`; `at` is RFC 3339."""
    if at is None:
        return "at an unknown time"
    seconds = max(0.0, (now - datetime.fromisoformat(at)).total_seconds())
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f}m ago"
    return f"{seconds / _HOUR_S:.0f}h ago" if seconds < 2 * _DAY_S else f"{seconds / _DAY_S:.0f}d ago"


def explained_lines(production: ProductionView, now: datetime) -> Iterator[Text]:
    """In sentences: all replicas together, the traffic, and each replica's knee."""
    yield Text("What production's metrics tell:", "bold")
    if production.scale is not None:
        yield Text(f"  {production.scale.message}")
    if production.traffic is not None:
        for name, told in traffic_facts(production.traffic, Detail.WIDE, now):
            sentence = f"{name} {told}" if name in ("learned", "moved") else told
            yield Text(f"  {sentence[0].upper()}{sentence[1:].rstrip('.')}.")
    for each in production.replicas:
        known = f"its knee is at {number(each.knee_concurrency)} requests in flight" if each.knee_concurrency else ""
        within = f" ({interval(each)})" if interval(each) else ""
        told = " ".join(filter(None, (f"{known}{within}." if known else "", each.message)))
        yield Text(f"  {each.pod}: {told or 'nothing yet.'}", NOTICE if each.outlier else "")
    if not production.replicas:
        yield Text("  nothing yet: no serving pod was seen.")
