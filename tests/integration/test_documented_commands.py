"""What the pages tell to type to kubectl is typed, and what they show as objects is stored, at a real API server.

Commands of `kneekeeper` are run in test_cli_access.py and in tests/local; those of Helm in test_chart_life.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import control_plane
from e2e.cluster.start import kubectl
from kneekeeper.api.crds import KINDS
from kneekeeper.api.model import API_VERSION
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS
from tests.contract.test_docs_commands import FIELDS, PAGES, PROFILE, ROOT, blocks, commands
from tests.contract.test_examples import FILES, OF_KUBERNETES, documents
from tests.integration.foreign_kinds import definition
from tests.integration.place import make_place
from tests.unit.cli import recorded
from tests.unit.kube_objects import TEMPLATE

IN_THE_TEXT = re.compile(r"(?<!`)`(kubectl [^`\n]+)`(?!`)")
LONGEST_S = 60
NEEDS_A_POD = re.compile(r" (?:port-forward|logs <pod>) ")
"""Not answered without a node; tests/contract/test_docs_commands.py looks at their words."""

EXAMPLES = ("examples/quickstart.yaml", "examples/run-by-hand.yaml")

Object = dict[str, Any]


def typed() -> list[str]:
    """All kubectl commands of pages and examples, in blocks, in the text and in comments, but for mere mentions.

    What is applied is among the examples, which have a test of their own.
    """
    texts = [path.read_text(encoding="utf-8") for path in (*PAGES, *FILES)]
    found = {line for _, line in commands() if line.startswith("kubectl ")}
    found |= {line for text in texts for line in IN_THE_TEXT.findall(text)}
    own = {line for line in found if not line.startswith(("kubectl kneekeeper ", "kubectl apply "))}
    return sorted(line for line in own if len(line.split()) > 2 and not NEEDS_A_POD.search(line))


@dataclass(frozen=True)
class Desk:
    """A kubeconfig whose namespace has the profile, run and workload of the pages."""

    kubeconfig: Path
    namespace: str

    def type(self, command: str) -> str:
        """What it prints; of a command that lasts, its first line that tells of the profile."""
        command = self._meant(re.sub(r"logs (-l \S+).*", r"get pods \1", command))
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        shell = ("bash", "-o", "pipefail", "-c", command)
        if not re.search(r" (--watch|-w)\b", command):
            done = subprocess.run(
                shell, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
            assert done.returncode == 0 or done.stdout == "no\n", done.stderr
            return done.stdout
        with subprocess.Popen(
            ("timeout", str(LONGEST_S), *command.split()), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as lasting:
            assert lasting.stdout is not None
            line = next((line for line in lasting.stdout if line.startswith("chat ")), "")
            lasting.terminate()
        return line

    def _meant(self, command: str) -> str:
        """With the names of this place where the page has placeholders, and without the file that would be written."""
        meant = {
            "<namespace>": self.namespace,
            "<the profile's namespace>": self.namespace,
            "<operator's namespace>": self.namespace,
            " -n prod ": f" -n {self.namespace} ",
            "<profile>": "chat",
            "NAME": "chat",
            "<workload>": "chat",
            "<run>": "chat-by-hand",
            "<status.borrowed.replicasBefore>": "2",
            "<account>": "kneekeeper",
            "<verb> <resource>": "list pods",
            "<hash>": recorded.objects()[0]["status"]["recommendation"]["hash"],
        }
        for placeholder, value in meant.items():
            command = command.replace(placeholder, value)
        command = command.partition(" > ")[0]
        assert "<" not in command, f"say here what is meant by the placeholder in {command}"
        return command


async def _furnish(kubeconfig: str) -> str:
    """The statuses of a profile and a run that has ended, with every form that a recommendation may have."""
    async with await Kube.connect("test", kubeconfig) as kube:
        place = await make_place(kube)
        await place.deploy(TEMPLATE)
        await kube.delete(SERVING_PROFILES, place.namespace, "chat")
        for kind, example, recorded_object in zip(
            (SERVING_PROFILES, TUNING_RUNS), EXAMPLES, recorded.objects(), strict=True
        ):
            made = await kube.create(kind, place.namespace, documents(ROOT / example)[0])
            body = {**made, "status": recorded_object["status"]}
            if kind is SERVING_PROFILES:
                body["status"]["recommendation"] |= {"kustomize": "patches: []", "helmValues": "servingEngineSpec: {}"}
            await kube.replace_status(kind, place.namespace, made["metadata"]["name"], body)
        return place.namespace


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """With an API server of its own: examples define kinds of other projects, without their schemas."""
    with control_plane() as server:
        namespace = asyncio.run(_furnish(str(server.kubeconfig)))
        kubectl(server.kubeconfig, "config", "set-context", "--current", f"--namespace={namespace}")
        yield Desk(server.kubeconfig, namespace)


@pytest.fixture(scope="module")
def served(desk: Desk) -> None:
    """The namespaces that examples name, and the kinds of other projects."""
    found = [document for path in FILES for document in documents(path)]
    namespaces = {document["metadata"].get("namespace", desk.namespace) for document in found}
    kinds = {(document["apiVersion"], document["kind"]) for document in found}
    foreign = {kind for kind in kinds if kind[0] not in (API_VERSION, *OF_KUBERNETES)}
    objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(namespaces)]
    objects += [definition(*kind) for kind in sorted(foreign)]
    kubectl(desk.kubeconfig, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    kubectl(desk.kubeconfig, "wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")


def test_the_pages_have_commands_of_kubectl():
    assert len(typed()) > 30


@pytest.mark.parametrize("command", typed())
def test_a_documented_command_of_kubectl_does_what_the_page_says(desk, served, command):
    told = desk.type(command)
    if not re.search(r"get pods| logs |status.rejected", command):
        assert told.strip(), "it shows nothing"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_applied(desk, served, path):
    """In a namespace without another profile of its name."""
    namespace = f"of-{path.stem}"
    kubectl(desk.kubeconfig, "create", "namespace", namespace)
    kubectl(desk.kubeconfig, "config", "set-context", "--current", f"--namespace={namespace}")
    try:
        told = kubectl(desk.kubeconfig, "apply", "-f", str(path))
    finally:
        kubectl(desk.kubeconfig, "config", "set-context", "--current", f"--namespace={desk.namespace}")
    assert len(told.splitlines()) == len(documents(path)) > 0


def test_every_object_of_the_pages_is_stored(desk):
    objects = []
    for block in blocks("yaml"):
        for document in yaml.safe_load_all(block.text):
            spec = document["spec"] if set(document) == {"spec"} else document
            if any(document.get("kind") == kind.name for kind in KINDS):
                objects.append(document)
            elif set(spec) <= FIELDS:
                objects.append({"apiVersion": API_VERSION, "kind": "ServingProfile", "spec": PROFILE | spec})
    for number, each in enumerate(objects):
        each["metadata"] = {"name": f"of-a-page-{number}"}
    words = ("apply", "--dry-run=server", "-f", "-")
    told = kubectl(desk.kubeconfig, *words, stdin=yaml.safe_dump_all(objects))
    assert len(told.splitlines()) == len(objects) > 15
