import csv
import io
import json
import re
from pathlib import Path

from kneekeeper.api.stage import Slo, StageState
from kneekeeper.domain.contradictions import Contradiction, ContradictionKind
from kneekeeper.local.probe_report import report_of, to_csv, to_html, to_json, write
from kneekeeper.local.probing import ProbeResult
from tests.unit.level_builders import level_of

RESULT = ProbeResult(
    url="http://127.0.0.1:8000",
    model="org/<model>",
    has_metrics=True,
    levels=[level_of(800, users=1, slo=Slo(ttft_s=1.0)), level_of(2000, users=8, slo=Slo(ttft_s=1.0), slow=200)],
    contradictions=[Contradiction("users-8", ContradictionKind.REQUESTS, 1.0, 2.0, "The server counts <more>.")],
)


def test_json_has_every_level_and_the_worst_verdict() -> None:
    found = json.loads(to_json(report_of(RESULT)))
    assert found["verdict"] == "Fail"
    assert [level["verdict"] for level in found["levels"]] == ["Pass", "Fail"]
    assert found["levels"][0]["ttft"]["p99_s"] > 0
    assert found["contradictions"][0]["kind"] == "Requests"


def test_csv_has_a_row_for_each_level_with_flat_columns() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(report_of(RESULT)))))
    assert [row["users"] for row in rows] == ["1", "8"]
    assert float(rows[0]["tpot_p99_s"]) > 0


def test_html_loads_nothing_runs_nothing_and_escapes_what_others_named() -> None:
    page = to_html(report_of(RESULT))
    assert page.count("<svg") == 3
    assert not re.search(r"<script|<link|<img|src=|@import|url\(", page)
    assert "org/&lt;model&gt;" in page
    assert "counts &lt;more&gt;" in page


def test_every_report_says_what_was_cut_as_warm_up_and_the_page_says_why() -> None:
    report = report_of(ProbeResult(url="http://h", levels=[level_of(60, warmup_s=0.45), level_of(60)]))
    assert [level["warmup_requests"] for level in json.loads(to_json(report))["levels"]] == [5, 0]
    assert [row["warmup_requests"] for row in csv.DictReader(io.StringIO(to_csv(report)))] == ["5", "0"]
    assert "Warm-up: 5 of 120 requests were sent before the load was steady" in to_html(report)
    assert "Warm-up:" not in to_html(report_of(ProbeResult(url="http://h", levels=[level_of(60)])))


def test_the_page_says_why_each_verdict_was_given() -> None:
    page = to_html(report_of(RESULT))
    assert "users-1: PASS. 0 of 800 requests missed the SLO" in page
    assert "users-8: FAIL. 200 of 2000 requests missed the SLO" in page
    assert "Verdicts" not in to_html(report_of(ProbeResult(url="http://h", levels=[level_of(60)])))


def test_a_probe_that_was_broken_off_before_its_first_level_can_be_written(tmp_path: Path) -> None:
    report = report_of(ProbeResult(url="http://h", interrupted=True))
    for suffix in (".json", ".csv", ".html"):
        write(report, tmp_path / f"report{suffix}")
    assert "interrupted" in (tmp_path / "report.html").read_text()
    assert report.verdict is None


def test_a_level_without_a_single_answer_is_written_with_empty_cells() -> None:
    report = report_of(ProbeResult(url="http://h", levels=[level_of(0, state=StageState.CANCELLED)]))
    assert json.loads(to_json(report))["levels"][0]["ttft"]["p99_s"] is None
    assert "<td></td>" in to_html(report)
