"""Which cluster and namespace are meant, as kubectl takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.kube.kubeconfig import ClusterChoice, NoClusterError, connect, default_namespace


def config(current: str | None, **namespaces: str | None) -> dict[str, Any]:
    contexts = [
        {"name": name, "context": {"cluster": "one", "user": "me"} | ({"namespace": where} if where else {})}
        for name, where in namespaces.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": contexts,
    } | ({"current-context": current} if current else {})


def written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_the_namespace_is_that_of_the_context_else_default(tmp_path: Path):
    file = written(tmp_path / "config", config("a", a="prod", b="test", c=None))
    assert default_namespace(ClusterChoice(file)) == "prod"
    assert default_namespace(ClusterChoice(file, "b")) == "test"
    assert default_namespace(ClusterChoice(file, "c")) == "default"


def test_several_files_are_joined_as_in_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = written(tmp_path / "first", config("a", a="prod"))
    second = written(tmp_path / "second", config(None, b="test"))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    assert default_namespace(ClusterChoice()) == "prod"
    assert default_namespace(ClusterChoice(context="b")) == "test"


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ClusterChoice("/nowhere"), "the file does not exist"),
        (ClusterChoice(context="other"), "there is no context 'other'; there are: a"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    choice: ClusterChoice, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "config", config("a", a="prod")))
    with pytest.raises(NoClusterError, match=told):
        default_namespace(choice)


async def test_a_file_that_is_no_kubeconfig_is_told(tmp_path: Path):
    file = tmp_path / "config"
    file.write_text("{}")
    with pytest.raises(NoClusterError, match="give --kubeconfig FILE"):
        await connect(ClusterChoice(str(file)))
    with pytest.raises(NoClusterError, match="there is no context"):
        default_namespace(ClusterChoice(str(file)))


def test_a_pod_knows_its_own_cluster_unless_another_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert ClusterChoice().files is None
    assert ClusterChoice(context="b").files == "~/.kube/config"
    assert ClusterChoice("x").files == "x"
