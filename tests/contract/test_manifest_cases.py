"""`kneekeeper patch` on forty shapes in which people run vLLM; see tests/cases/manifests/README.md."""

from __future__ import annotations

import copy
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.cli.main import main
from tests.contract.engine_stub import Stubs

MANIFESTS = Path(__file__).parent.parent / "cases" / "manifests"
CASES = sorted(path.stem for path in MANIFESTS.glob("*.yaml") if not path.stem.endswith(".expected"))
EXIT_CODES = {"rewrite": 0, "recommend-only": 3, "refuse": 4}
MODELS = {"23-rayservice-serveconfig": "big"}  # the precondition of this case: the target names the model

_STEP = re.compile(r"\[([^\]]+)\]|([^/\[\]]+)")


@dataclass(frozen=True)
class Patched:
    code: int
    text: str
    told: dict[str, Any]
    stderr: str

    @property
    def documents(self) -> list[Any]:
        return [document for document in yaml.safe_load_all(self.text) if document]


def source_of(case: str) -> str:
    return (MANIFESTS / f"{case}.yaml").read_text()


def expected_of(case: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{case}.expected.yaml").read_text())
    return loaded


@pytest.fixture
def patch(capfd, tmp_path):
    def run(text: str, *more: str) -> Patched:
        file = tmp_path / "objects.yaml"
        file.write_bytes(text.encode())
        limits = ["--max-num-seqs", "64", "--max-num-batched-tokens", "4096"]
        code = main(["patch", "--file", str(file), *limits, "--json", *more])
        out, err = capfd.readouterr()
        return Patched(code, out, json.loads(err), err)

    return run


@pytest.fixture
def patch_case(patch):
    def run(case: str, text: str | None = None) -> Patched:
        target = expected_of(case)["target"]
        part = target["container"] or MODELS.get(case)
        more = ["--container", part] if part else []
        name = f"{target['kind']}/{target['name']}"
        result: Patched = patch(source_of(case) if text is None else text, "--target", name, *more)
        return result

    return run


def keys_of(path: str) -> list[str]:
    return [named or key for named, key in _STEP.findall(path)]


def put(documents: list[Any], write: dict[str, Any]) -> None:
    """The expected value at its place."""
    found = next(d for d in documents if (d["kind"], d["metadata"]["name"]) == (write["kind"], write["name"]))
    *parents, last = keys_of(write["path"])
    for key in parents:
        found = found[key] if isinstance(found, dict) else item(found, key)
    if isinstance(found, dict):
        found[last] = write["value"]
        return
    index = next(
        (i for i, entry in enumerate(found) if last in (str(i), isinstance(entry, dict) and entry["name"])), None
    )
    if index is None:
        found.append(write["value"])
    else:
        found[index] = write["value"]


def item(found: list[Any], key: str) -> Any:
    return found[int(key)] if key.isdigit() else next(entry for entry in found if entry["name"] == key)


REWRITTEN = [case for case in CASES if expected_of(case)["outcome"] == "rewrite"]
UNTOUCHED = [case for case in CASES if expected_of(case)["outcome"] != "rewrite"]
WITH_ARGV = [case for case in REWRITTEN if "engine_argv_after" in expected_of(case)]


def test_there_are_forty_cases():
    assert len(CASES) == 40
    assert (len(REWRITTEN), len(WITH_ARGV)) == (28, 23)


@pytest.mark.parametrize("case", CASES)
def test_the_outcome_is_the_best_of_the_acceptable_ones(patch_case, case):
    result = patch_case(case)
    assert result.told["outcome"] == expected_of(case)["outcome"]
    assert result.code == EXIT_CODES[result.told["outcome"]]
    assert result.told["reason"].endswith(".")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("case", REWRITTEN)
def test_exactly_the_expected_values_change_and_everything_else_stays_equal(patch_case, case):
    wanted = [document for document in yaml.safe_load_all(source_of(case)) if document]
    for write in expected_of(case)["write"]:
        put(wanted, write)
    assert patch_case(case).documents == wanted


@pytest.mark.parametrize("case", REWRITTEN)
def test_lines_without_a_limit_stay_byte_for_byte(patch_case, case):
    before, after = source_of(case), patch_case(case).text
    left = [line for line in before.splitlines(keepends=True) if line not in after.splitlines(keepends=True)]
    for line in left:
        limit_or_end = r"max.num|MAX_NUM|TOKENS|\"?\d{1,6}[k\"]?|--|serve|env:|command|extraArgs"
        assert re.search(limit_or_end, line), line
    assert abs(len(after) - len(before)) < 200
    assert [line for line in after.splitlines() if "#" in line and line.strip().startswith("#")] == [
        line for line in before.splitlines() if "#" in line and line.strip().startswith("#")
    ]


@pytest.mark.parametrize("case", UNTOUCHED)
def test_what_is_not_written_is_printed_as_it_was(patch_case, case):
    assert patch_case(case).text == source_of(case)


@pytest.mark.parametrize("case", REWRITTEN)
def test_a_second_patch_changes_nothing(patch_case, case):
    once = patch_case(case)
    twice = patch_case(case, once.text)
    assert (twice.code, twice.text, twice.told["changes"]) == (0, once.text, [])


@pytest.mark.parametrize("case", [case for case in CASES if "engine_values_before" in expected_of(case)])
def test_the_values_before_are_those_that_vllm_runs_with(patch_case, case):
    assert patch_case(case).told["values_before"] == expected_of(case)["engine_values_before"][0]


@pytest.mark.parametrize("case", [case for case in CASES if "suggested_change" in expected_of(case)])
def test_the_suggested_change_is_the_expected_one(patch_case, case):
    told = [
        {key: change[key] for key in ("kind", "name", "path", "value")}
        for change in patch_case(case).told["suggested_change"]
    ]
    assert told == expected_of(case)["suggested_change"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("case", WITH_ARGV)
def test_a_real_shell_hands_the_expected_words_to_vllm(patch_case, case, tmp_path):
    stubs = Stubs(tmp_path)
    stubs.add("pip", "hf", "multi-node-serving.sh")
    [expected] = expected_of(case)["engine_argv_after"]
    before = words_of(case, [d for d in yaml.safe_load_all(source_of(case)) if d], stubs)
    after = words_of(case, patch_case(case).documents, stubs)
    assert after == expected["argv"]
    assert [w for w in before if is_no_limit(w)] == [w for w in after if is_no_limit(w)]


def is_no_limit(word: str) -> bool:
    return not re.fullmatch(r"(--max[-_]num[-_].*=)?\d+k?|--max[-_]num[-_].*", word)


def words_of(case: str, documents: list[Any], stubs: Stubs) -> list[str]:
    name, _, path = expected_of(case)["engine_argv_after"][0]["container"].partition(":")
    kind = expected_of(case)["target"]["kind"]
    container: Any = next(d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    for key in keys_of(path):
        container = container[key] if isinstance(container, dict) else item(container, key)
    config_maps = {d["metadata"]["name"]: d.get("data", {}) for d in documents if d["kind"] == "ConfigMap"}
    received = stubs.received(container.get("command"), container.get("args"), env_of(container, config_maps))
    return received[1:]


def env_of(container: dict[str, Any], config_maps: dict[str, dict[str, str]]) -> dict[str, str]:
    """With the value `x` for what comes from a Secret."""
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        env |= config_maps.get(source.get("configMapRef", {}).get("name", ""), {})
    for variable in container.get("env", []):
        reference = variable.get("valueFrom", {}).get("configMapKeyRef")
        value = config_maps[reference["name"]][reference["key"]] if reference else "x"
        env[variable["name"]] = variable.get("value", value)
    return env


def warned(patched: Patched, *pieces: str) -> bool:
    return any(all(piece in warning for piece in pieces) for warning in patched.told["warnings"])


@pytest.mark.parametrize(
    ("case", "pieces"),
    [
        ("03-sh-c-one-line-underscores", ("profile memory grows",)),
        ("05-kubelet-var-from-shared-configmap", ("MAX_NUM_SEQS no longer has an effect on model-a",)),
        ("06-bash-exec-continuations-json", ("4 ranks", "256 running sequences")),
        ("11-config-file", ("512 / 8192", "file")),
        ("15-lora-one-second-probes", ("/health slower than 1 s",)),
        ("15-lora-one-second-probes", ("startup is limited to 600 s",)),
        ("16-one-replica-no-spare-gpu", ("Pending",)),
        ("17-statefulset-ondelete", ("OnDelete",)),
        ("18-lws-ray-leader", ("restarts the whole group",)),
        ("18-lws-ray-leader", ("tcpSocket",)),
        ("18-lws-ray-leader", ("pipeline parallel",)),
        ("19-pd-pair-decode-only", ("TTFT", "prefill")),
        ("20-kserve-inferenceservice", ("trailing blanks",)),
        ("22-llmisvc-additional-args", ("HTTPS",)),
        ("22-llmisvc-additional-args", ("per data-parallel rank",)),
        ("23-rayservice-serveconfig", ("target_ongoing_requests 128", "64")),
        ("24-vllmruntime-cr", ("replicas",)),
        ("24-vllmruntime-cr", ("Recreate",)),
        ("25-kubeai-model-amd", ("targetRequests 1024", "64")),
        ("25-kubeai-model-amd", ("chunked prefill is off", "4096", "3000")),
        (
            "27-helm-rendered-production-stack",
            ("vllmConfig.maxNumSeqs: 64", "--max-num-batched-tokens=4096", "extraArgs"),
        ),
        ("30-argo-rollout-canary", ("promoted", "never average")),
        ("31-knative-service", ("containerConcurrency 8",)),
        ("31-knative-service", ("queue-proxy",)),
        ("36-spec-decode-graph-sizes", ("capture sizes end at 32",)),
    ],
)
def test_the_user_is_warned(patch_case, case, pieces):
    assert warned(patch_case(case), *pieces)


def test_helms_present_value_is_that_of_the_last_occurrence(patch_case):
    assert patch_case("27-helm-rendered-production-stack").told["values_before"]["max_num_seqs"] == "96"


def test_a_literal_key_is_not_told_although_it_stands_in_the_changed_list(patch_case):
    result = patch_case("04-command-only-runtime-sidecar")
    assert "sk-not-a-real-key" in result.text
    assert "sk-not" not in result.stderr


def test_variables_that_look_related_are_named_but_not_read_as_values(patch_case):
    told = patch_case("13-env-only-wrapper-image").told
    assert told["values_before"] is None
    assert all(name in told["reason"] for name in ("MAX_NUM_SEQS", "MAX_NUM_BATCHED_TOKENS", "EXTRA_ENGINE_ARGS"))


def test_an_owners_object_is_named_with_its_field(patch_case):
    reason = patch_case("21-kserve-owned-deployment").told["reason"]
    assert "InferenceService granite" in reason
    assert "spec.predictor.model.args" in reason


def test_a_ray_service_with_two_models_asks_for_the_model(patch):
    result = patch(source_of("23-rayservice-serveconfig"), "--target", "RayService/ray-llm")
    assert (result.code, result.told["reason_code"]) == (3, "ModelNotNamed")
    assert "small, big" in result.told["reason"]


def test_a_patched_copy_is_no_other_object():
    documents = list(yaml.safe_load_all(source_of("01-args-equals")))
    changed = copy.deepcopy(documents)
    put([d for d in changed if d], expected_of("01-args-equals")["write"][0])
    assert changed != documents  # the comparison above can fail
