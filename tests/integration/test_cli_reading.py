"""What the commands tell of a real cluster, to people and to programs."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from kneekeeper.api.crds import KINDS, definition
from kneekeeper.cli.ending import ExitCode
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import DEPLOYMENTS, SERVING_PROFILES
from tests.integration.desk import RUN, Desk
from tests.schema_samples import sample
from tests.unit.cli import recorded
from tests.unit.kube_objects import TEMPLATE


@pytest.fixture
def unreadable(desk: Desk) -> Iterator[str]:
    """A profile that the CRD lets in and the models do not: lengths of its status have fields of two distributions."""
    name = "of-another-version"

    async def store(kube: Kube) -> None:
        profile, _ = recorded.objects()
        body = {**profile, "metadata": {"name": name, "namespace": desk.namespace}}
        del body["status"]
        made = await kube.create(SERVING_PROFILES, desk.namespace, body)
        [schema] = [definition(kind) for kind in KINDS if kind.short_name == "sp"]
        status = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        await kube.replace_status(SERVING_PROFILES, desk.namespace, name, {**made, "status": sample(status)})

    desk.asks(store)
    yield name
    desk.asks(lambda kube: kube.delete(SERVING_PROFILES, desk.namespace, name))


def test_a_profile_that_does_not_fit_this_version_hides_no_other(desk: Desk, unreadable: str):
    code, out, err = desk.here("status")
    assert code == ExitCode.DONE
    assert [row.split()[0] for row in out.splitlines()[1:]] == ["chat", "shop"]
    assert f"ServingProfile {unreadable} does not fit this version" in err


def test_status_lists_profiles_for_people_and_for_programs(desk: Desk):
    code, out, _ = desk.here("status")
    assert code == ExitCode.DONE
    headings, *rows = out.splitlines()
    assert headings.split()[:3] == ["NAME", "TARGET", "STATE"]
    assert [row.split()[0] for row in rows] == ["chat", "shop"]
    assert rows[1].split() == ["shop", "Deployment/chat", "BelowTheKnee", "72/384", "72/384", "15.3/s", "97%"]
    _, everywhere, _ = desk.run("status", "-A")
    assert any(line.split()[:2] == [desk.namespace, "shop"] for line in everywhere.splitlines())
    assert desk.here("status", "-o", "name")[1].splitlines()[1] == "servingprofile.kneekeeper.io/shop"
    shop = json.loads(desk.here("status", "-o", "json")[1])[1]
    assert shop["capacity_requests_per_second"] == 15.27
    assert yaml.safe_load(desk.here("status", "-o", "yaml")[1])[1] == shop


def test_status_of_one_profile_is_a_page_with_its_replicas(desk: Desk):
    code, out, _ = desk.here("status", "shop")
    assert code == ExitCode.DONE
    assert f"shop in {desk.namespace}: BelowTheKnee" in out
    assert re.search(r"chat-0 +1 +34\.3", out)


def test_explain_tells_findings_and_widely_what_production_shows(desk: Desk):
    code, out, _ = desk.here("explain", "shop")
    assert (code, out) == (ExitCode.DONE, "Nothing is wrong, as far as is known.\n")
    code, out, _ = desk.here("explain", "shop", "-o", "wide")
    assert code == ExitCode.DONE
    assert "chat-0: its knee is at 34.3 requests in flight." in out


def test_explain_gives_programs_what_it_tells_people(desk: Desk):
    code, out, _ = desk.here("explain", "shop", "-o", "json")
    assert code == ExitCode.DONE
    found = json.loads(out)
    assert (found["name"], found["wrong"], found["conditions"], found["findings"]) == ("shop", False, [], [])
    assert found["production"]["replicas"][0]["pod"] == "chat-0"
    assert yaml.safe_load(desk.here("explain", "shop", "-o", "yaml")[1]) == found
    _, out, _ = desk.run("explain", "-A", "-o", "json")
    ours = [each for each in json.loads(out) if each["namespace"] == desk.namespace]
    assert [each["name"] for each in ours] == ["chat", "shop"]
    assert any(each["conditions"] for each in ours) == any(each["wrong"] for each in ours)


def test_a_profile_that_is_not_there_is_told_with_the_next_step(desk: Desk):
    code, out, err = desk.here("status", "nobody")
    assert (code, out) == (ExitCode.CANNOT, "")
    assert "there is no ServingProfile nobody" in err
    assert "kneekeeper status -A" in err


def test_the_curve_is_drawn_from_the_newest_measured_run(desk: Desk):
    code, out, _ = desk.here("curve", "shop")
    assert code == ExitCode.DONE
    assert "knee: 34.3 requests in flight (27.2 to 43)" in out
    assert "\x1b" not in out
    view = json.loads(desk.here("curve", "shop", "-o", "json")[1])
    assert view["run"] == RUN
    assert len(view["replicas"]) == 2


def test_runs_are_listed_and_shown_with_their_stages(desk: Desk):
    code, out, _ = desk.here("runs", "shop")
    assert code == ExitCode.DONE
    assert out.splitlines()[1].split()[:4] == [RUN, "shop", "New", "Certified"]
    code, out, _ = desk.here("runs", "--run", RUN)
    assert code == ExitCode.DONE
    assert "certify-1" in out
    assert desk.here("runs", "--run", "none")[0] == ExitCode.CANNOT


def test_diff_shows_the_words_that_would_change_and_exits_like_diff(desk: Desk):
    code, out, _ = desk.here("diff", "shop")
    assert code == ExitCode.NO
    lines = out.splitlines()
    assert "-- --max-num-seqs=256" in lines
    assert "+- --max-num-seqs=72" in lines
    assert any("256/2048 to 72/384" in line for line in lines)
    args = [*TEMPLATE["spec"]["containers"][1]["args"][:1], "--max-num-seqs=72", "--max-num-batched-tokens=384"]
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/1/args", "value": args}]
    before = desk.asks(lambda kube: kube.json_patch(DEPLOYMENTS, desk.namespace, "chat", patch))
    try:
        code, out, _ = desk.here("diff", "shop")
        assert (code, out) == (ExitCode.DONE, "Deployment/chat runs with the recommended limits, 72/384.\n")
    finally:
        patch[0]["value"] = TEMPLATE["spec"]["containers"][1]["args"]
        desk.asks(lambda kube: kube.json_patch(DEPLOYMENTS, desk.namespace, before["metadata"]["name"], patch))


def _watching(desk: Desk, *words: str, terminal: bool) -> tuple[subprocess.Popen[bytes], int]:
    """`status --watch` in a process of its own, and the file descriptor of what it prints."""
    reads, writes = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "kneekeeper.cli.main", "status", *words, "--watch", "-n", desk.namespace]
    environment = {**os.environ, "COLUMNS": "200", "LINES": "30", "TERM": "xterm"}
    process = subprocess.Popen([*command, "--kubeconfig", desk.kubeconfig], stdout=writes, env=environment)
    os.close(writes)
    return process, reads


def _read_until(reads: int, wanted: str) -> str:
    """What is printed until then."""
    seen = ""
    while wanted not in seen:
        ready, _, _ = select.select([reads], [], [], 60)
        assert ready, f"{wanted!r} is not printed: {seen}"
        seen += os.read(reads, 65536).decode()
    return seen


@pytest.mark.parametrize("terminal", [False, True], ids=["into a pipe", "on a terminal"])
def test_status_watches_until_it_is_interrupted(desk: Desk, terminal: bool):
    process, reads = _watching(desk, terminal=terminal)
    try:
        first = _read_until(reads, "72/384")
        assert ("\x1b[" in first) is terminal
        assert desk.here("pause", "shop")[0] == ExitCode.DONE
        changed = _read_until(reads, "Suspended")
        if not terminal:
            assert re.search(rf"^\S+Z {desk.namespace}/shop: STATE Suspended, was BelowTheKnee$", changed, re.MULTILINE)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == ExitCode.INTERRUPTED
    finally:
        process.kill()
        process.wait(30)
        os.close(reads)
        desk.here("resume", "shop")
