"""Alerts, recording rules and dashboards of the chart: tested by Prometheus's own tool, and naming what exists."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.packages import ensure_packages
from kneekeeper.domain.names import LABEL_ROLE
from kneekeeper.domain.plan.events import EventReason
from kneekeeper.handlers import telemetry
from kneekeeper.handlers.fleet_metrics import COUNTS, GAUGES, OBSERVED, RUN_GAUGES
from kneekeeper.kube.labels import parse_selector
from tests.contract.alert_cases import CASES, RECORDED, AlertCase, Series
from tests.contract.chart_rendering import CHART, MONITORING, of_kind, render

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
METRICS_PAGE = ROOT / "docs" / "metrics.md"
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        *(ROOT / "charts").glob("*/README.md"),
        *(ROOT / "examples").glob("*.yaml"),
    ]
)
SUFFIXES = ("", "_total", "_count", "_sum", "_bucket")
WORD = re.compile(r"\b(?:\w+:)?kneekeeper_[a-z0-9_]+(?::\w+)?\b")
EVALUATED_EVERY_MINUTES = 5


@cache
def groups() -> list[dict[str, Any]]:
    spec: dict[str, Any] = of_kind(render(CHART, MONITORING), "PrometheusRule")[0]["spec"]
    return list(spec["groups"])


def rules(kind: str) -> dict[str, dict[str, Any]]:
    return {rule[kind]: rule for group in groups() for rule in group["rules"] if kind in rule}


def dashboards() -> dict[str, dict[str, Any]]:
    data = of_kind(render(CHART, MONITORING), "ConfigMap")[0]["data"]
    return {name: json.loads(text) for name, text in data.items()}


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """Of all panels and variables."""
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [*panels, *(v["definition"] for v in dashboard["templating"]["list"] if v["type"] == "query")]


def metric_names() -> set[str]:
    """All that the code tells, without the suffixes of samples."""
    own = (telemetry.BUILD, telemetry.REQUESTS, telemetry.TICKS, telemetry.FAILURES)
    return {family.name for metric in own for family in metric.collect()} | {
        *(gauge.name for gauge in GAUGES),
        *(gauge.name for gauge in RUN_GAUGES),
        *(count.name for count in COUNTS),
        OBSERVED,
    }


def sample_names() -> set[str]:
    return {name + suffix for name in metric_names() for suffix in SUFFIXES} | set(RECORDED)


def named_in(text: str) -> set[str]:
    return set(WORD.findall(text))


def minutes_of(duration: str) -> int:
    value, unit = int(duration[:-1]), duration[-1]
    return value * {"m": 1, "h": 60}[unit]


def inputs(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def alert_test(case: AlertCase, series: Series, minutes: int, *, fires: bool) -> dict[str, Any]:
    rule = rules("alert")[case.alert]
    told = {
        "exp_labels": case.labels | rule["labels"],
        "exp_annotations": rule["annotations"] | {"summary": case.summary},
    }
    return {
        "interval": "1m",
        "input_series": inputs(series),
        "alert_rule_test": [
            {"eval_time": f"{minutes}m", "alertname": case.alert, "exp_alerts": [told] if fires else []}
        ],
    }


def alert_tests(case: AlertCase) -> list[dict[str, Any]]:
    """It fires, it is quiet on the other side, and it is patient where it is said to be."""
    wait = minutes_of(rules("alert")[case.alert].get("for", "0m"))
    tests = [
        alert_test(case, case.fires, case.minutes, fires=True),
        alert_test(case, case.quiet, case.minutes, fires=False),
    ]
    if wait > 0:
        tests.append(alert_test(case, case.fires, case.begins + wait - EVALUATED_EVERY_MINUTES, fires=False))
    return tests


def record_test(name: str) -> dict[str, Any]:
    series, labels, value = RECORDED[name]
    words = ",".join(f'{key}="{text}"' for key, text in labels.items())
    sample = {"labels": f"{name}{{{words}}}", "value": value}
    return {
        "interval": "1m",
        "input_series": inputs(series),
        "promql_expr_test": [{"expr": name, "eval_time": "15m", "exp_samples": [sample]}],
    }


def promtool(*arguments: str) -> None:
    ensure_packages({"promtool": "prometheus"})
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": groups()}), encoding="utf-8")
    return path


def test_prometheus_accepts_the_rules(rule_file):
    promtool("check", "rules", str(rule_file))


def test_every_alert_and_recorded_series_has_a_test():
    assert [case.alert for case in CASES] == list(rules("alert"))
    assert list(RECORDED) == list(rules("record"))


def test_alerts_fire_when_they_should_and_only_then(rule_file):
    tests = [test for case in CASES for test in alert_tests(case)] + [record_test(name) for name in RECORDED]
    content = {"rule_files": [rule_file.name], "evaluation_interval": f"{EVALUATED_EVERY_MINUTES}m", "tests": tests}
    path = rule_file.with_name("tests.yaml")
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    promtool("test", "rules", str(path))


def test_rules_and_dashboards_name_only_metrics_that_exist():
    told = "\n".join(rule["expr"] for kind in ("alert", "record") for rule in rules(kind).values())
    assert named_in(told)
    assert named_in(told) <= sample_names()
    for name, dashboard in dashboards().items():
        for expression in expressions(dashboard):
            assert named_in(expression) <= sample_names(), f"{name}: {expression}"


def test_every_metric_is_on_a_dashboard_or_in_a_rule():
    told = [rule["expr"] for kind in ("alert", "record") for rule in rules(kind).values()]
    told += [expression for dashboard in dashboards().values() for expression in expressions(dashboard)]
    used = named_in("\n".join(told))
    unused = {name for name in metric_names() if not {name + suffix for suffix in SUFFIXES} & used}
    assert unused == {"kneekeeper_profile_sustainable_requests_per_second"}


def test_the_page_of_metrics_names_all_that_exist_and_nothing_else():
    page = named_in(METRICS_PAGE.read_text(encoding="utf-8"))
    assert page <= sample_names()
    missing = {name for name in metric_names() if not {name, f"{name}_total"} & page}
    assert not missing
    assert set(RECORDED) <= page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_or_example_names_only_metrics_that_exist(page):
    assert named_in(page.read_text(encoding="utf-8")) <= sample_names()


def test_the_page_of_metrics_names_the_reasons_of_events():
    section = METRICS_PAGE.read_text(encoding="utf-8").split("\n## Events\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(EventReason)


def test_dashboard_queries_are_what_prometheus_understands(tmp_path):
    """As recording rules, with Grafana's variables filled in."""
    filled = [
        {
            "record": f"panel:{index}",
            "expr": re.sub(r"\$__rate_interval", "5m", re.sub(r"\$(namespace|profile)", ".*", e)),
        }
        for dashboard in dashboards().values()
        for index, e in enumerate(expressions(dashboard))
        if not e.startswith("label_values(")
    ]
    assert filled
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": filled}]}), encoding="utf-8")
    promtool("check", "rules", "--lint=none", str(path))


def test_a_dashboard_has_panels_with_one_id_each_that_lie_side_by_side():
    for dashboard in dashboards().values():
        panels = dashboard["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
        assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    pages = {path.stem for path in RUNBOOKS.glob("Kneekeeper*.md")}
    assert pages == set(rules("alert"))
    for name, rule in rules("alert").items():
        assert rule["annotations"]["runbook_url"] == f"https://runbooks.example/kneekeeper/{name}.md"
        text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
            "What it means",
            "What is at stake",
            "What to look at",
            "What to do",
        ]


def test_without_a_place_for_runbooks_an_alert_names_the_page():
    rule = of_kind(render(CHART, {"prometheusRule": {"enabled": True}}), "PrometheusRule")[0]
    for group in rule["spec"]["groups"]:
        for alert in (each for each in group["rules"] if "alert" in each):
            assert (ROOT / alert["annotations"]["runbook"]).is_file()
            assert "runbook_url" not in alert["annotations"]


def test_an_alert_can_be_left_out():
    values = {"prometheusRule": {"enabled": True, "disabledAlerts": ["KneekeeperDrifted", "KneekeeperDown"]}}
    rule = of_kind(render(CHART, values), "PrometheusRule")[0]
    left = {each.get("alert") for group in rule["spec"]["groups"] for each in group["rules"]} - {None}
    assert left == set(rules("alert")) - {"KneekeeperDrifted", "KneekeeperDown"}


def test_monitoring_is_off_unless_asked_for():
    kinds = {item["kind"] for item in render(CHART)}
    assert not kinds & {"PrometheusRule", "ServiceMonitor", "PodMonitor", "ConfigMap", "PodDisruptionBudget"}


def test_the_service_monitor_finds_the_metrics_port_and_keeps_the_labels_of_replicas():
    objects = render(CHART, MONITORING)
    monitor, deployment = of_kind(objects, "ServiceMonitor")[0], of_kind(objects, "Deployment")[0]
    pod = deployment["spec"]["template"]
    service = next(s for s in of_kind(objects, "Service") if s["metadata"]["name"].endswith("-metrics"))
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    port = service["spec"]["ports"][0]
    assert port["targetPort"] in {each["name"] for each in pod["spec"]["containers"][0]["ports"]}
    endpoint = monitor["spec"]["endpoints"][0]
    assert endpoint["port"] == port["name"]
    assert endpoint["honorLabels"] is True
    assert monitor["metadata"]["labels"]["release"] == "stack"


def test_the_pod_monitor_never_scrapes_a_clone():
    monitor = of_kind(render(CHART, MONITORING), "PodMonitor")[0]
    selector = parse_selector(monitor["spec"]["selector"])
    assert monitor["metadata"]["namespace"] == "monitoring"
    assert selector.selects({"app": "chat"})
    assert not selector.selects({"app": "chat", LABEL_ROLE: "clone"})
