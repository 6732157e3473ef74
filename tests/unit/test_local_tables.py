import io

import pytest
from rich.console import Console
from rich.table import Table

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, Verdict
from kneekeeper.local.chart import Point, chart
from kneekeeper.local.tables import WIDE, chart_of_stages, duration, table_of_stages
from kneekeeper.local.watcher import chart_of_levels, table_of_levels
from tests.unit.level_builders import level_of
from tests.unit.stage_builders import summary


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    out = console.file
    assert isinstance(out, io.StringIO)
    return out.getvalue()


STAGES = [
    summary("warm-up-1-1", StageKind.WARM_UP),
    summary("ramp-8", mean_concurrency=7.5),
    summary(
        "certify-1-retry-1",
        StageKind.CERTIFY,
        users=None,
        offered_requests_per_second=12.3,
        verdict=Verdict.INCONCLUSIVE,
        requests=100_000,
        misses=1234,
    ),
]


@pytest.mark.parametrize("width", [WIDE, 140])
def test_a_wide_table_has_every_column_whole(width: int) -> None:
    text = printed(table_of_stages(STAGES, width), width)
    assert "…" not in text
    for heading in ("tok/s", "in flight", "TTFT p50", "missed"):
        assert heading in text


def test_a_table_fits_a_terminal_of_eighty_columns_without_a_cut() -> None:
    for table in (table_of_stages(STAGES, 80), table_of_levels([level_of(800, slo=Slo(ttft_s=1.0))], 80)):
        text = printed(table, 80)
        assert "…" not in text
        assert "TPOT p99" in text


def test_warm_ups_are_not_shown() -> None:
    assert "warm-up" not in printed(table_of_stages(STAGES, 140), 140)


def test_an_open_loop_is_told_by_its_rate() -> None:
    text = printed(table_of_stages(STAGES, 140), 140)
    assert "12.3/s" in text
    assert "8 users" in text
    assert "INCONCLUSIVE" in text


def test_durations_have_three_digits_and_none_is_a_dash() -> None:
    assert [duration(value) for value in (None, 0.123456, 12.0)] == ["-", "123ms", "12s"]


def test_a_chart_shows_throughput_and_both_latencies() -> None:
    picture = chart([Point(1, 2, 30, 5), Point(8, 12, 80, 7)])
    for title in ("requests/s", "P99 TTFT", "P99 TPOT"):
        assert title in picture
    assert "\x1b" not in picture


def test_one_point_makes_no_chart_and_a_missing_latency_no_panel() -> None:
    assert chart([Point(1, 2, 30, 5)]) == ""
    assert "P99 TPOT" not in chart([Point(1, 2, 30, None), Point(2, 3, 40, None)])


def test_a_chart_leaves_out_what_says_nothing_of_the_engine() -> None:
    ramp = [summary(f"ramp-{n}", users=n, mean_concurrency=float(n)) for n in (1, 2)]
    assert chart_of_stages(ramp) != ""
    assert chart_of_stages([ramp[0], ramp[1].with_changes(verdict=Verdict.VOID)]) == ""
    assert chart_of_levels([level_of(10, users=1), level_of(10, users=2)]) != ""
    assert chart_of_levels([level_of(10, users=1), level_of(0, users=2)]) == ""
