"""What the operator reads of a target besides its words: scripts, variables, ConfigMaps and config files."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.target import Target, TargetProblem, resolve, words_with
from kneekeeper.domain.targets.containers import config_maps_of
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.resources import CONFIG_MAPS, Kind, Resource
from kneekeeper.observe.target import read_workload
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template

REF = TargetRef(kind="Deployment", name="chat")
SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)


def made(command: list[str], env: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """The Deployment with other words of its engine."""
    pod = template()
    pod["spec"]["containers"][1] |= {"command": command, "args": None, "env": env or [], **more}
    return deployment(pod)


def resolved(found: dict[str, Any], *config_maps: Resource) -> Target | TargetProblem:
    return resolve(parse_workload(found, config_maps), REF)


def config_map(**data: str) -> Resource:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def test_a_shell_script_is_read_and_only_its_words_are_rewritten():
    script = 'ulimit -n 9999\nexec vllm serve m --max-num-seqs "${N:-8}" --max-num-batched-tokens 2048'
    target = resolved(made(["bash", "-c", script], [{"name": "N", "value": "16"}]))
    assert isinstance(target, Target)
    assert target.present == Setting(max_num_seqs=16, max_num_batched_tokens=2048)
    after = words_with(target.container, SETTING)
    assert after == ContainerWords(
        command=["bash", "-c", script.replace("${N:-8}", "64").replace("2048", "4096")], args=None
    )


def test_a_secrets_value_is_not_mistaken_for_a_default():
    secret = {"name": "N", "valueFrom": {"secretKeyRef": {"name": "s", "key": "n"}}}
    problem = resolved(made(["sh", "-c", "vllm serve m --max-num-seqs ${N:-8}"], [secret]))
    assert isinstance(problem, TargetProblem)
    assert "${N:-8}" in problem.message


def test_a_variable_may_come_from_any_key_of_a_config_map_that_is_not_read():
    words = ["sh", "-c", "vllm serve m --max-num-seqs ${N:-8}"]
    source = {"envFrom": [{"configMapRef": {"name": "c"}}]}
    assert isinstance(resolved(made(words, **source)), TargetProblem)
    target = resolved(made(words, **source), config_map(N="4"))
    assert isinstance(target, Target)
    assert target.present.max_num_seqs == 4


def test_limits_in_a_mounted_config_file_are_read_and_beaten_by_the_command_line():
    found = made(
        ["vllm", "serve", "--config", "/etc/vllm/c.yaml"], volumeMounts=[{"name": "v", "mountPath": "/etc/vllm"}]
    )
    found["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "c"}}]
    text = (
        "model: m\nmax-num-seqs: 32\nmax_num_batched_tokens: 8k\nenable-chunked-prefill: false\nmax-model-len: 4096\n"
    )
    target = resolved(found, config_map(**{"c.yaml": text}))
    assert isinstance(target, Target)
    assert target.present == Setting(max_num_seqs=32, max_num_batched_tokens=8000)
    after = words_with(target.container, SETTING)
    assert isinstance(after, ContainerWords)
    assert (after.command or [])[4:] == ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
    assert isinstance(words_with(target.container, Setting(max_num_seqs=8, max_num_batched_tokens=2048)), Refusal)


def test_a_changed_config_file_is_another_engine():
    found = made(["vllm", "serve", "m", "--config", "/c/c.yaml"], volumeMounts=[{"name": "v", "mountPath": "/c"}])
    found["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "c"}}]
    engines = [resolved(found, config_map(**{"c.yaml": f"dtype: {dtype}\n"})) for dtype in ("half", "half", "float")]
    fingerprints = [engine.fingerprint for engine in engines if isinstance(engine, Target)]
    assert len(fingerprints) == 3
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


class FakeKube:
    """Answers reads, and remembers them."""

    def __init__(self, found: Resource, config_maps: Resource | type[Exception]) -> None:
        self._found = found
        self._config_maps = config_maps
        self.read: list[str] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        if kind != CONFIG_MAPS:
            return self._found
        self.read.append(name)
        if isinstance(self._config_maps, type):
            raise self._config_maps("no")
        return self._config_maps


def as_kube(fake: FakeKube) -> Kube:
    kube: Any = fake
    return kube  # type: ignore[no-any-return]


async def test_config_maps_are_read_only_where_the_words_depend_on_them():
    plain = FakeKube(made(["vllm", "serve", "m"], envFrom=[{"configMapRef": {"name": "c"}}]), config_map())
    await read_workload(as_kube(plain), "default", REF)
    assert plain.read == []
    named = FakeKube(made(["vllm", "serve", "$(M)"], envFrom=[{"configMapRef": {"name": "c"}}]), config_map(M="m"))
    workload = await read_workload(as_kube(named), "default", REF)
    assert named.read == ["c"]
    assert workload is not None
    target = resolve(workload.view, REF)
    assert isinstance(target, Target)
    assert target.arguments.model == "m"


@pytest.mark.parametrize("error", [NotFound, Forbidden])
async def test_a_config_map_that_cannot_be_read_leaves_its_values_unknown(error):
    found = made(["vllm", "serve", "m", "--max-num-seqs=$(N)"], envFrom=[{"configMapRef": {"name": "c"}}])
    workload = await read_workload(as_kube(FakeKube(found, error)), "default", REF)
    assert workload is not None
    assert isinstance(resolve(workload.view, REF), TargetProblem)


def test_the_config_maps_that_words_depend_on_are_named():
    reference = {"name": "N", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "n"}}}
    pod = made(["vllm", "serve", "$(N)", "--config", "/c"], [reference])["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "configMap": {"name": "b"}}, {"name": "w", "emptyDir": {}}]
    assert config_maps_of(pod) == {"a", "b"}
