"""What is read of the engines in tests/cases/manifests; test_manifest_cases.py tests what is written there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.domain.arguments import (
    EngineArguments,
    Refusal,
    RefusalReason,
    Rewrite,
    entrypoint_of_image,
    fingerprint_arguments,
    read_engine_arguments,
    rewrite,
)

MANIFESTS = Path(__file__).parent.parent / "cases" / "manifests"

REWRITTEN = [
    "01-args-equals",
    "02-args-split-tokens",
    "03-sh-c-one-line-underscores",
    "04-command-only-runtime-sidecar",
    "05-kubelet-var-from-shared-configmap",
    "06-bash-exec-continuations-json",
    "07-setup-chain-then-serve",
    "08-shell-default-variables",
    "09-duplicate-flags",
    "36-spec-decode-graph-sizes",
    "38-program-in-args-mig",
]


@dataclass(frozen=True)
class Container:
    name: str
    image: str
    command: list[str] | None
    args: list[str] | None
    env: dict[str, str]

    def rewritten(self, command: list[str] | None = None, args: list[str] | None = None) -> Rewrite | Refusal:
        return rewrite(
            self.command if command is None else command,
            self.args if args is None else args,
            self.env,
            max_num_seqs=64,
            max_num_batched_tokens=4096,
            entrypoint=entrypoint_of_image(self.image),
        )

    def read(self) -> EngineArguments | Refusal:
        return read_engine_arguments(self.command, self.args, self.env, entrypoint=entrypoint_of_image(self.image))


def expected_of(case: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{case}.expected.yaml").read_text())
    return loaded


def containers_of(case: str) -> list[Container]:
    """The target's containers, with their variables as an operator without access to Secrets sees them."""
    documents = [d for d in yaml.safe_load_all((MANIFESTS / f"{case}.yaml").read_text()) if d]
    target = expected_of(case)["target"]
    found = [d for d in documents if (d["kind"], d["metadata"]["name"]) == (target["kind"], target["name"])]
    config_maps = {d["metadata"]["name"]: d.get("data", {}) for d in documents if d["kind"] == "ConfigMap"}
    return [
        Container(c["name"], c["image"], c.get("command"), c.get("args"), _env(c, config_maps))
        for c in found[0]["spec"]["template"]["spec"]["containers"]
    ]


def _env(container: dict[str, Any], config_maps: dict[str, dict[str, str]]) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        env |= config_maps.get(source.get("configMapRef", {}).get("name", ""), {})
    for variable in container.get("env", []):
        reference = variable.get("valueFrom", {}).get("configMapKeyRef")
        if "value" in variable:
            env[variable["name"]] = variable["value"]
        elif reference is not None:
            env[variable["name"]] = config_maps[reference["name"]][reference["key"]]
    return env


def target_container(case: str) -> Container:
    name = expected_of(case)["target"]["container"]
    return next(container for container in containers_of(case) if container.name == name)


@pytest.mark.parametrize("case", REWRITTEN)
def test_the_fingerprint_does_not_see_the_rewrite(case):
    container = target_container(case)
    entrypoint = entrypoint_of_image(container.image)
    after = container.rewritten()
    assert isinstance(after, Rewrite)
    assert fingerprint_arguments(
        container.command, container.args, container.env, entrypoint=entrypoint
    ) == fingerprint_arguments(after.command, after.args, container.env, entrypoint=entrypoint)


def test_among_four_containers_only_the_engine_is_read_as_vllm():
    readings = {c.name: c.read() for c in containers_of("14-routing-proxy-and-cache-sidecars")}
    reasons = {name: r.reason if isinstance(r, Refusal) else "vLLM" for name, r in readings.items()}
    assert reasons == {
        "exporter": RefusalReason.ENTRYPOINT_UNKNOWN,
        "cache": RefusalReason.NOT_VLLM,
        "modelserver": "vLLM",
    }
    engine = readings["modelserver"]
    assert isinstance(engine, EngineArguments)
    assert engine.port == 8200


def test_a_literal_api_key_is_neither_in_the_arguments_nor_in_the_fingerprints_input():
    container = target_container("04-command-only-runtime-sidecar")
    arguments = container.read()
    assert isinstance(arguments, EngineArguments)
    assert arguments.api_key_required
    assert "sk-not" not in repr(arguments)


def test_https_root_path_and_a_key_from_a_secret_are_found():
    arguments = target_container("37-https-rootpath-apikey").read()
    assert isinstance(arguments, EngineArguments)
    assert (arguments.scheme, arguments.port, arguments.root_path) == ("https", 8443, "/llm")
    assert arguments.api_key_required


def test_speculative_decoding_and_short_names_are_read():
    arguments = target_container("36-spec-decode-graph-sizes").read()
    assert isinstance(arguments, EngineArguments)
    assert arguments.tensor_parallel_size == 2
    assert arguments.speculative is not None
    assert arguments.speculative.num_speculative_tokens == 5


def test_the_role_of_a_split_decode_engine_is_read():
    arguments = target_container("19-pd-pair-decode-only").read()
    assert isinstance(arguments, EngineArguments)
    assert (arguments.kv_role, arguments.data_parallel_size) == ("kv_consumer", 2)
