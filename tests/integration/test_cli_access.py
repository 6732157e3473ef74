"""How the commands find a real cluster, what they say to whom it does not let in, and that the documented ones work."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kneekeeper.cli.ending import ExitCode
from kneekeeper.cli.main import main
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import SERVING_PROFILES
from tests.integration.desk import Desk
from tests.integration.place import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## In a cluster", 1)[1].split("\n## ", 1)[0]


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
