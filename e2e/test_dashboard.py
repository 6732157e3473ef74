"""The dashboard on the real cluster: its account reads all that it shows, a run is watched live, actions obey RBAC."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from e2e.cluster.packages import ensure_packages
from e2e.lab import SYSTEM_NAMESPACE, Lab, condition, install
from e2e.runs import LADDER, deploy, quick, wait_condition
from tests.dashboard.browser import chromium, serious_faults
from tests.dashboard.pictures import take_profile, take_run, viewer
from tests.dashboard.prepare import PROGRAMS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NAME = "kneekeeper-dashboard"
RUN_S = 600

SATURATING = {"step_time": {"base_ms": 12.0, "per_sequence_ms": 0.9, "per_prefill_token_ms": 0.06}}
WIDER: dict[str, Any] = {
    "parameters": {"maxNumSeqs": {"min": 4, "max": 64}, "maxNumBatchedTokens": {"min": 128, "max": 4096}},
    "probe": {"allow": ["Clone"], "ladder": LADDER | {"maxConcurrency": 64}},
}
"""An engine whose knee lies within the ladder, so that the page has all there is to show."""


@pytest.fixture(scope="module")
def installed(lab: Lab) -> Iterator[Lab]:
    """The chart with the dashboard, and without it afterwards."""
    install(lab, ["dashboard.enabled=true"])
    lab.wait_rolled_out(NAME, SYSTEM_NAMESPACE)
    yield lab
    install(lab)


def ask_pod(lab: Lab, path: str) -> Any:
    """The dashboard's pod, through the API server."""
    service = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/services/{NAME}:http/proxy{path}"
    return json.loads(lab.kubectl("get", "--raw", service))


@contextmanager
def beside_the_cluster(lab: Lab, *flags: str) -> Iterator[str]:
    """The same server as a process of this machine, for the browser."""
    words = [sys.executable, "-m", "kneekeeper.dashboard", "--kubeconfig", str(lab.cluster.kubeconfig), "--port", "0"]
    with subprocess.Popen([*words, *flags], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            started = re.match(r"dashboard at (\S+)", process.stdout.readline())
            assert started
            yield started.group(1)
        finally:
            process.terminate()


def test_a_run_is_watched_live_from_start_to_end_in_every_view(installed: Lab, namespace: str, tmp_path: Path):
    ensure_packages(PROGRAMS)
    images = Path(os.environ.get("KNEEKEEPER_IMAGES", tmp_path))
    with beside_the_cluster(installed) as address, chromium() as browser:
        page = viewer(browser)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{address}#/?q={namespace}")
        deploy(installed, namespace, quick(installed, max_num_seqs=4, hardware=SATURATING), **WIDER)
        page.get_by_role("link", name="chat").click(timeout=60_000)
        steps = page.locator(".steps .now")
        expect(steps).to_have_text("Ramp", timeout=1000 * RUN_S)
        expect(steps).to_have_text("Certify", timeout=1000 * RUN_S)
        take_run(browser, page.url, images)
        expect(steps).to_have_text("Done", timeout=1000 * RUN_S)
        wait_condition(installed, namespace, "Applied", "True")
        profile = wait_condition(installed, namespace, "Ready", "True")
        setting = profile["status"]["applied"]["setting"]
        expect(page.locator(".title .badge")).to_contain_text("BelowTheKnee", timeout=60_000)
        in_force = page.locator(".facts .fact", has_text="Limits in force")
        expect(in_force).to_contain_text(str(setting["maxNumSeqs"]))
        expect(page.locator(".body.events")).to_contain_text(re.compile("Certified|Applied"))
        expect(page.locator(".replica.dot[d^=M]")).not_to_have_count(0)
        expect(page.locator(".facts .fact", has_text="Knee")).to_contain_text(re.compile(r"\d"))
        expect(page.locator(".heat .cell").first).to_be_visible(timeout=120_000)
        assert serious_faults(page) == []
        take_profile(browser, page.url, images)
        page.get_by_role("button", name="by rate").click()
        expect(page.locator("svg[aria-label*='requests/s of one replica']").first).to_be_visible()
        assert serious_faults(page) == []
        page.get_by_role("link", name="Fleet").click()
        expect(page.locator("table.fleet:not([aria-busy]) tbody tr").first).to_be_visible()
        assert serious_faults(page) == []
        assert not errors
    row = next(row for row in ask_pod(installed, "/api/fleet")["rows"] if row["namespace"] == namespace)
    assert row["in_force"]["max_num_seqs"] == setting["maxNumSeqs"]
    assert row["reason"] == condition(profile, "Ready")["reason"]
    view = ask_pod(installed, f"/api/profiles/{namespace}/chat")
    assert view["run"]["outcome"] == "Certified"
    assert view["events"]
    assert ask_pod(installed, f"/api/runs/{namespace}/{view['run']['name']}/surface")["cells"]


@pytest.mark.parametrize(
    ("verb", "group", "resource", "allowed"),
    [
        ("watch", "kneekeeper.io", "servingprofiles", True),
        ("watch", "kneekeeper.io", "tuningruns", True),
        ("patch", "kneekeeper.io", "servingprofiles", False),
        ("create", "kneekeeper.io", "tuningruns", False),
        ("get", "", "secrets", False),
        ("list", "", "pods", False),
        ("create", "authentication.k8s.io", "tokenreviews", False),
    ],
)
def test_its_account_reads_and_nothing_else(installed: Lab, verb: str, group: str, resource: str, allowed: bool):
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{SYSTEM_NAMESPACE}:{NAME}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {"group": group, "resource": resource, "verb": verb},
        },
    }
    answer = json.loads(installed.kubectl("create", "-f", "-", "-o", "json", text=json.dumps(review)))
    assert answer["status"]["allowed"] is allowed


def test_a_viewer_may_do_what_the_cluster_lets_them(lab: Lab, namespace: str):
    deploy(lab, namespace, quick(lab, replicas=1), suspend=True)
    lab.kubectl("-n", namespace, "create", "serviceaccount", "may")
    lab.kubectl("-n", namespace, "create", "serviceaccount", "may-not")
    lab.kubectl(
        "-n", namespace, "create", "role", "tuner", "--verb=get,patch", "--resource=servingprofiles.kneekeeper.io"
    )
    lab.kubectl("-n", namespace, "create", "rolebinding", "tuner", "--role=tuner", f"--serviceaccount={namespace}:may")
    tokens = {name: lab.kubectl("-n", namespace, "create", "token", name).strip() for name in ("may", "may-not")}
    with beside_the_cluster(lab, "--actions", "--namespace", namespace) as address:
        url = f"{address}api/profiles/{namespace}/chat/actions"
        lab.wait("the profile in the dashboard", lambda: namespace in _read(f"{address}api/fleet"), timeout_s=30)
        assert _act(url, "nobody's", "resume") == 401
        assert _act(url, tokens["may-not"], "resume") == 403
        assert lab.get("sp", "chat", namespace)["spec"]["suspend"] is True
        assert _act(url, tokens["may"], "resume") == 200
    assert lab.get("sp", "chat", namespace)["spec"]["suspend"] is False


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def _act(url: str, token: str, verb: str) -> int:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, json.dumps({"verb": verb}).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
