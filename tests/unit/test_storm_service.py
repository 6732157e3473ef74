"""AIBrix StormService: each role is an engine of its own, even where roles name their containers alike."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.targets import Asked, Objects, Outcome
from kneekeeper.domain.targets.planning import engines_in, plan

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)


def role(name: str, container: str = "vllm", image: str = "vllm/vllm-openai:v0.24.0") -> dict[str, Any]:
    containers = [{"name": container, "image": image, "args": ["--model=m", "--max-num-seqs=8"]}]
    return {"name": name, "replicas": 1, "stateful": True, "template": {"spec": {"containers": containers}}}


def service(*roles: dict[str, Any], **spec: Any) -> ManifestObject:
    value = {
        "apiVersion": "orchestration.aibrix.ai/v1alpha1",
        "kind": "StormService",
        "metadata": {"name": "chat"},
        "spec": {"replicas": 1, "template": {"spec": {"roles": list(roles)}}} | spec,
    }
    return ManifestObject(0, (), value)


def proposed(target: ManifestObject, part: str | None) -> Any:
    return plan(target, Objects((target,)), Asked(SETTING, part))


def test_one_role_is_rewritten_and_the_other_stays():
    target = service(role("prefill"), role("decode"))
    answer = proposed(target, "decode")
    assert (answer.outcome, answer.part) == (Outcome.REWRITE, "decode")
    [edit] = answer.edits
    assert edit.path[:5] == ("spec", "template", "spec", "roles", 1)
    assert edit.value == ["--model=m", "--max-num-seqs=64", "--max-num-batched-tokens=4096"]


def test_without_a_name_several_roles_are_refused_by_their_names():
    answer = proposed(service(role("prefill"), role("decode")), None)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSE, "SeveralEngineContainers")
    assert "prefill, decode" in answer.message


@pytest.mark.parametrize("part", [None, "worker"])
def test_a_role_that_runs_something_else_needs_no_name(part: str | None):
    router = role("router", "router", "nginx")
    assert proposed(service(router, role("worker")), part).part == "worker"


def test_a_role_that_is_not_there_is_refused():
    assert proposed(service(role("worker")), "decode").reason == "ContainerNotFound"


def test_every_role_is_told_as_an_engine():
    target = service(role("prefill"), role("decode"))
    assert [getattr(engine, "part", None) for engine in engines_in(target, Objects((target,)))] == ["prefill", "decode"]


@pytest.mark.parametrize(
    "spec", [{}, {"template": None}, {"template": {"spec": {"roles": None}}}, {"template": {"spec": {"roles": [{}]}}}]
)
def test_a_service_without_roles_declares_no_engine(spec: dict[str, Any]):
    target = service(**spec)
    assert engines_in(target, Objects((target,))) == []
    assert proposed(target, None).outcome is Outcome.REFUSE
