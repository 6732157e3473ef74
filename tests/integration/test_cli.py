"""The commands for a cluster against a real API server, as a person runs them."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import secrets
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from kneekeeper.api.crds import KINDS, definition
from kneekeeper.cli.cluster import ExitCode, Scope
from kneekeeper.cli.main import main
from kneekeeper.cli.retune import POLL_S, follow
from kneekeeper.domain.names import ANNOTATION_APPROVE, ANNOTATION_RETUNE
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import ServerTrouble
from kneekeeper.kube.resources import DEPLOYMENTS, SERVING_PROFILES, TUNING_RUNS, Kind, Resource
from tests.integration.place import NAMESPACES, ROOT, make_place
from tests.schema_samples import sample
from tests.unit.cli import recorded
from tests.unit.kube_objects import TEMPLATE

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## In a cluster", 1)[1].split("\n## ", 1)[0]
RUN = recorded.objects()[1]["metadata"]["name"]
HASH = recorded.objects()[0]["status"]["recommendation"]["hash"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Desk:
    """A namespace with a profile that was measured, its run and its workload, and a command line that knows it."""

    kubeconfig: str
    namespace: str
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main([*words, "--kubeconfig", self.kubeconfig])
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def here(self, *words: str) -> tuple[int, str, str]:
        return self.run(*words, "-n", self.namespace)

    def asks(self, work: Callable[[Kube], Awaitable[Result]]) -> Result:
        return asyncio.run(_with_kube(self.kubeconfig, work))

    def profile(self) -> Resource:
        return self.asks(lambda kube: kube.get(SERVING_PROFILES, self.namespace, "shop"))


async def _with_kube(kubeconfig: str, work: Callable[[Kube], Awaitable[Result]]) -> Result:
    async with await Kube.connect("test", kubeconfig) as kube:
        return await work(kube)


async def _furnish(kube: Kube) -> str:
    """The recorded objects in a namespace of their own, under the name `shop`."""
    place = await make_place(kube)
    profile, run = recorded.objects()
    await place.deploy(TEMPLATE)
    profile["metadata"] = {"name": "shop", "namespace": place.namespace}
    run["metadata"] = {"name": RUN, "namespace": place.namespace}
    run["spec"]["profileName"] = "shop"
    for kind, body in ((SERVING_PROFILES, profile), (TUNING_RUNS, run)):
        made = await kube.create(kind, place.namespace, {k: v for k, v in body.items() if k != "status"})
        await kube.replace_status(kind, place.namespace, made["metadata"]["name"], {**made, "status": body["status"]})
    return place.namespace


@pytest.fixture(scope="module")
def namespace(api_server: str) -> Iterator[str]:
    made = asyncio.run(_with_kube(api_server, _furnish))
    yield made
    asyncio.run(_with_kube(api_server, lambda kube: kube.delete(NAMESPACES, "", made)))


@pytest.fixture
def unreadable(api_server: str, namespace: str) -> Iterator[str]:
    """A profile that the CRD lets in and the models do not: lengths of its status have fields of two distributions."""
    name = "of-another-version"

    async def store(kube: Kube) -> None:
        profile, _ = recorded.objects()
        body = {**profile, "metadata": {"name": name, "namespace": namespace}}
        del body["status"]
        made = await kube.create(SERVING_PROFILES, namespace, body)
        [schema] = [definition(kind) for kind in KINDS if kind.short_name == "sp"]
        status = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        await kube.replace_status(SERVING_PROFILES, namespace, name, {**made, "status": sample(status)})

    asyncio.run(_with_kube(api_server, store))
    yield name
    asyncio.run(_with_kube(api_server, lambda kube: kube.delete(SERVING_PROFILES, namespace, name)))


@pytest.fixture
def desk(api_server: str, namespace: str, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(api_server, namespace, capsys)


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


def test_what_is_in_force_needs_no_approval_and_a_stale_hash_gets_none(desk: Desk):
    code, out, _ = desk.here("approve", "shop")
    assert (code, out) == (ExitCode.DONE, "shop: 72/384 is in force already.\n")
    code, _, err = desk.here("approve", "shop", "--hash", "0123456789")
    assert code == ExitCode.CANNOT
    assert HASH in err
    assert ANNOTATION_APPROVE not in (desk.profile()["metadata"].get("annotations") or {})


def test_an_approval_names_the_recommendation(desk: Desk):
    async def with_other_limits(kube: Kube, limit: int) -> None:
        found = await kube.get(SERVING_PROFILES, desk.namespace, "shop")
        found["status"]["engine"]["maxNumSeqs"] = limit
        await kube.replace_status(SERVING_PROFILES, desk.namespace, "shop", found)

    desk.asks(lambda kube: with_other_limits(kube, 256))
    try:
        code, out, _ = desk.here("approve", "shop", "--hash", HASH)
        assert code == ExitCode.DONE
        assert "approved 72/384 for Deployment chat" in out
        assert desk.profile()["metadata"]["annotations"][ANNOTATION_APPROVE] == HASH
    finally:
        desk.asks(lambda kube: with_other_limits(kube, 72))


def test_a_profile_is_paused_and_goes_on(desk: Desk):
    assert desk.here("pause", "shop")[:2] == (ExitCode.DONE, "shop: paused.\n")
    assert desk.profile()["spec"]["suspend"] is True
    code, _, err = desk.here("retune", "shop")
    assert code == ExitCode.CANNOT
    assert "kneekeeper resume shop" in err
    code, out, err = desk.here("resume", "shop", "nobody", "chat")
    assert code == ExitCode.CANNOT
    assert "nobody" in err
    assert out.splitlines() == ["shop: goes on.", "chat: not paused already."]
    assert desk.profile()["spec"]["suspend"] is False


def test_a_run_is_asked_for_by_the_annotation_that_the_operator_looks_at(desk: Desk):
    assert desk.here("retune", "shop")[0] == ExitCode.DONE
    assert re.match(r"\d{4}-\d\d-\d\dT", desk.profile()["metadata"]["annotations"][ANNOTATION_RETUNE])


class Shaky(Kube):
    """An API server that is overloaded now and then."""

    _calls = 0

    async def list(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Resource]:
        self._calls += 1
        if self._calls % 3 == 0:
            raise ServerTrouble("too many requests", 0.1)
        return await super().list(kind, namespace, labels=labels)


def test_a_new_run_is_followed_to_its_end_also_through_troubles(desk: Desk):
    name = f"story-{secrets.token_hex(3)}"

    async def story(kube: Kube) -> int:
        """What the operator does, a step at each look."""
        stages = recorded.objects()[1]["status"]["stages"]

        async def start() -> None:
            body = recorded.objects()[1]
            made = {"apiVersion": body["apiVersion"], "kind": body["kind"], "spec": {"profileName": "chat"}}
            await kube.create(TUNING_RUNS, desk.namespace, {**made, "metadata": {"name": name}})

        async def tell(**status: Any) -> None:
            found = await kube.get(TUNING_RUNS, desk.namespace, name)
            await kube.replace_status(TUNING_RUNS, desk.namespace, name, {**found, "status": status})

        steps = iter(
            (
                start,
                lambda: tell(step="Ramp", stages=stages[:1]),
                lambda: tell(step="Ramp", stages=stages[:3]),
                lambda: tell(step="Done", stages=stages[:3], outcome="Failed", finishedAt="2026-01-01T00:00:00Z"),
            )
        )

        async def sleep(seconds: float) -> None:
            if seconds == POLL_S:
                await next(steps)()

        async with await Shaky.connect("test", desk.kubeconfig) as shaky:
            return await follow(Scope(shaky, desk.namespace), "chat", {"chat-1"}, sleep)

    try:
        assert desk.asks(story) == ExitCode.NO
    finally:
        desk.asks(lambda kube: kube.delete(TUNING_RUNS, desk.namespace, name))
    lines = desk.capsys.readouterr().out.splitlines()
    stages = [stage["name"] for stage in recorded.objects()[1]["status"]["stages"][:3]]
    assert lines[0].startswith("Waits for the operator to start a run")
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  ")] == stages
    assert lines[-1] == f"{name} ended: Failed."


def test_the_doctor_finds_what_is_missing(desk: Desk):
    async def see(kube: Kube) -> None:
        """What the operator does with a change of the spec."""
        found = await kube.get(SERVING_PROFILES, desk.namespace, "shop")
        found["status"]["observedGeneration"] = found["metadata"]["generation"]
        await kube.replace_status(SERVING_PROFILES, desk.namespace, "shop", found)

    desk.asks(see)
    code, out, _ = desk.here("doctor", "-o", "json")
    checks = {check["name"]: check for check in json.loads(out)}
    assert code == ExitCode.NO
    for name in ("cluster", "resources", "definitions", "your permissions"):
        assert checks[name]["health"] == "Good", checks[name]
    assert checks["operator"]["health"] == "Bad"
    assert checks["operator"]["next_step"] == "Install the chart kneekeeper."
    assert checks[f"{desk.namespace}/shop"]["health"] == "Good"
    assert checks[f"{desk.namespace}/chat"]["health"] == "Notice"


def test_somebody_without_a_role_is_told_which_permissions_are_missing(desk: Desk, tmp_path: Path):
    kubectl = ("kubectl", "--kubeconfig", desk.kubeconfig, "-n", desk.namespace)
    token = subprocess.run([*kubectl, "create", "token", "default"], capture_output=True, text=True, check=True).stdout
    config = yaml.safe_load(Path(desk.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    other = tmp_path / "kubeconfig"
    other.write_text(yaml.safe_dump(config))
    stranger = Desk(str(other), desk.namespace, desk.capsys)
    code, out, _ = stranger.here("doctor")
    assert code == ExitCode.NO
    assert "missing: get servingprofiles.kneekeeper.io (for status, explain, diff)" in out
    code, _, err = stranger.here("status")
    assert code == ExitCode.CANNOT
    assert "kneekeeper doctor" in err


def test_a_cluster_that_does_not_answer_is_told(desk: Desk, tmp_path: Path):
    config = yaml.safe_load(Path(desk.kubeconfig).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    gone = tmp_path / "kubeconfig"
    gone.write_text(yaml.safe_dump(config))
    nowhere = Desk(str(gone), desk.namespace, desk.capsys)
    code, _, err = nowhere.here("status")
    assert code == ExitCode.CANNOT
    assert "Is the cluster reachable?" in err
    code, out, _ = nowhere.here("doctor")
    assert code == ExitCode.NO
    assert out.startswith("bad ")


def test_kubectl_finds_the_plugin(desk: Desk):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["kubectl", "kneekeeper", "status", "nobody", "-n", desk.namespace, "--kubeconfig", desk.kubeconfig],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=60,
        check=False,
    )
    assert done.returncode == ExitCode.CANNOT, done.stderr
    assert done.stderr.startswith("kubectl kneekeeper: there is no ServingProfile nobody")


@pytest.mark.parametrize("line", re.findall(r"^kneekeeper .*$", SECTION, flags=re.MULTILINE))
def test_every_documented_command_works(desk: Desk, line: str):
    words = shlex.split(line.replace("chat -n prod", f"shop -n {desk.namespace}"))[1:]
    code, out, err = desk.run(*words) if words[0] != "completion" else (main(words), "", "")
    assert code in (ExitCode.DONE, ExitCode.NO), err
    assert out or words[0] == "completion"


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
