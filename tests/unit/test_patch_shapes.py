"""`kneekeeper patch` on shapes that public manifests have: what becomes of a container's words, or why nothing does."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kneekeeper.cli.main import main

KINDS = {
    "Deployment": ("apps/v1", ("template",)),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", ("leaderWorkerTemplate", "workerTemplate")),
    "ServingRuntime": ("serving.kserve.io/v1alpha1", ()),
    "CronJob": ("batch/v1", ("jobTemplate", "spec", "template")),
}
NEW = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
APPENDED = " ".join(NEW)


def manifest(kind: str, container: dict[str, Any]) -> dict[str, Any]:
    """An object of the kind with one container."""
    api_version, path = KINDS[kind]
    spec: dict[str, Any] = {"containers": [{"name": "engine", "image": "example.com/llm:1", **container}]}
    for key in reversed(path):
        spec = {key: {"spec": spec} if key in ("template", "workerTemplate") else spec}
    if kind == "LeaderWorkerSet":
        spec["leaderWorkerTemplate"]["size"] = 2
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "chat"}, "spec": spec}


@pytest.fixture
def patched(tmp_path, capfd):
    """The exit code, the container afterwards, and what was told; a second rewrite changes nothing."""

    def once(text: str) -> tuple[int, str, dict[str, Any]]:
        (tmp_path / "objects.yaml").write_text(text)
        limits = ["--max-num-seqs", "64", "--max-num-batched-tokens", "4096", "--json"]
        code = main(["patch", "--file", str(tmp_path / "objects.yaml"), *limits])
        out, err = capfd.readouterr()
        return code, out, json.loads(err)

    def run(container: dict[str, Any], kind: str = "Deployment") -> tuple[int, dict[str, Any], dict[str, Any]]:
        text = yaml.safe_dump(manifest(kind, container), sort_keys=False)
        code, out, told = once(text)
        if code == 0:
            assert once(out)[:2] == (0, out)
        else:
            assert out == text
        spec = yaml.safe_load(out)["spec"]
        for key in KINDS[kind][1]:
            spec = spec[key]
        return code, spec.get("spec", spec)["containers"][0], told

    return run


def literal(**values: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    "command",
    [
        ["tini", "--", "vllm", "serve", "m"],
        ["/usr/bin/dumb-init", "vllm", "serve", "m"],
        ["/usr/bin/env", "VLLM_USE_V1=1", "vllm", "serve", "m"],
        ["tini", "--", "python3", "-m", "vllm.entrypoints.openai.api_server", "--model=m"],
    ],
)
def test_programs_that_only_run_the_words_behind_them_are_seen_through(patched, command):
    code, container, _ = patched({"command": command, "args": ["--max-num-seqs", "256"]})
    assert (code, container["args"]) == (0, ["--max-num-seqs", "64", "--max-num-batched-tokens=4096"])


@pytest.mark.parametrize(
    "script",
    [
        "exec tini -- vllm serve m",
        "tini -- nohup vllm serve m",
        'exec vllm serve m --host "$(hostname -i)"',
    ],
)
def test_in_a_script_too(patched, script):
    code, container, _ = patched({"command": ["tini", "--", "bash", "-c", script]})
    assert (code, container["command"][-1]) == (0, f"{script} {APPENDED}")


@pytest.mark.parametrize(
    ("command", "piece"),
    [
        (["numactl", "--interleave=all", "vllm", "serve", "m"], "numactl --interleave=all vllm serve m"),
        (["nsys", "profile", "vllm", "serve", "m"], "nsys profile vllm serve m"),
        (["vllm serve m --max-num-seqs 256"], "vllm serve m --max-num-seqs 256"),
        (["python3", "-c", "import os; os.system('vllm serve m')"], "vllm serve m"),
        (["conda", "run", "python", "-m", "vllm.entrypoints.openai.api_server"], "vllm.entrypoints.openai.api_server"),
    ],
)
def test_words_that_may_start_vllm_all_the_same_are_refused_and_not_called_another_program(patched, command, piece):
    code, _, told = patched({"command": command})
    assert (code, told["reason_code"]) == (4, "ArgumentNotUnderstood")
    assert piece in told["reason"]


def test_a_flag_behind_a_script_that_hands_it_to_nobody_is_told(patched):
    args = ["--", "--max-num-seqs=256", "--seed", "1"]
    _, _, told = patched({"command": ["/bin/sh", "-ec", "vllm serve m"], "args": args})
    assert told["values_before"]["max_num_seqs"] == "default"
    assert any(warning.startswith("--max-num-seqs stands behind the script") for warning in told["warnings"])
    for command in (["/bin/sh", "-ec", 'vllm serve m "$@"'], ["vllm", "serve", "m"]):
        _, _, told = patched({"command": command, "args": args[1:]})
        assert not any("behind the script" in warning for warning in told["warnings"])


def test_the_first_word_behind_a_script_is_its_name(patched):
    code, container, _ = patched({"command": ["sh", "-c", 'exec vllm serve "$0" "$@"'], "args": ["m", *NEW[:1]]})
    assert code == 0
    assert container["command"][-1] == 'exec vllm serve "$0" "$@" --max-num-batched-tokens=4096'


WIDE = """\
START_RANK=$(( ${LWS_WORKER_INDEX:-0} * LOCAL ))
exec vllm serve m --data-parallel-size $((LWS_GROUP_SIZE * LOCAL)) --data-parallel-address ${LWS_LEADER_ADDRESS} \\
  --data-parallel-start-rank $START_RANK --max-num-seqs 128"""


def test_what_a_leader_worker_set_gives_its_containers_is_known(patched):
    container = {"command": ["bash", "-c", WIDE], "env": literal(LOCAL="8")}
    code, after, told = patched(container, "LeaderWorkerSet")
    assert code == 0
    assert after["command"][-1] == WIDE.replace("128", "64 --max-num-batched-tokens=4096")
    assert any("16 ranks" in warning for warning in told["warnings"])
    assert patched(container)[2]["reason_code"] == "UnresolvedVariable"


@pytest.mark.parametrize(
    "assignment",
    [
        "RANK=$(( X + $(date +%s) ))",
        "RANK=$(( X + 1 ))\nif true; then RANK=$(cat /rank); fi",
        'RANK="$(( X + 1 )) $X"',
        "RANK=${HOSTNAME##*-}",
        'RANK="$(cat /rank)"',
    ],
)
def test_only_a_value_that_is_one_word_on_every_way_may_stand_bare(patched, assignment):
    script = f"{assignment}\nexec vllm serve m --seed $RANK"
    env = [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    code, _, _ = patched({"command": ["bash", "-c", script], "env": env})
    expected = 0 if assignment.startswith("RANK=$(( X") and "\n" not in assignment else 4
    assert code == expected


@pytest.mark.parametrize(
    ("field", "code"), [("status.podIP", 0), ("metadata.annotations['host']", 4), ("metadata.labels['host']", 4)]
)
def test_a_field_of_the_pod_is_one_word_unless_its_user_writes_it(patched, field, code):
    env = [{"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": field}}}]
    assert patched({"command": ["sh", "-c", "vllm serve m --host $HOST"], "env": env})[0] == code


def test_a_variable_that_is_another_one_above_it_has_its_value(patched):
    container = {"command": ["vllm", "serve", "m"], "args": ["--max-num-seqs=$(B)"], "env": literal(A="256", B="$(A)")}
    code, after, told = patched(container)
    assert (code, after["args"]) == (0, NEW)
    assert told["values_before"]["max_num_seqs"] == "256"
    assert after["env"] == container["env"]
    below = literal(B="$(A)", A="256")
    assert patched(container | {"env": below})[2]["reason_code"] == "UnresolvedVariable"
    part = literal(A="256", B="--max-num-seqs $(A)")
    assert patched({"command": ["sh", "-c", "vllm serve m $B"], "env": part})[0] == 4


def test_a_variable_that_is_given_twice_is_set_twice(patched):
    env = [*literal(N="1"), *literal(N="256")]
    code, after, _ = patched({"command": ["sh", "-c", "vllm serve m --max-num-seqs $N"], "env": env})
    assert (code, after["env"]) == (0, [*literal(N="64"), *literal(N="64")])


@pytest.mark.parametrize(
    ("script", "value", "code"),
    [("vllm serve m --max-num-seqs $N", "256", 0), ("vllm serve m $N", "--max-num-seqs 256 --seed 1", 4)],
)
def test_a_variable_whose_value_stands_in_a_config_map_is_not_set(tmp_path, capfd, script, value, code):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": value}}
    env = [{"name": "N", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
    objects = [config, manifest("Deployment", {"command": ["sh", "-c", script], "env": env})]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects, sort_keys=False))
    limits = ["--max-num-seqs", "64", "--max-num-batched-tokens", "4096", "--json"]
    assert main(["patch", "--file", str(tmp_path / "objects.yaml"), *limits]) == code
    out, err = capfd.readouterr()
    new = script.replace("$N", f"64 {NEW[1]}") if code == 0 else script
    assert list(yaml.safe_load_all(out)) == [
        config,
        manifest("Deployment", {"command": ["sh", "-c", new], "env": env}),
    ]
    assert "no change of single values" not in err


def test_a_variable_that_other_words_still_use_is_not_called_without_effect(patched):
    script = 'echo "$N"; exec vllm serve m --max-num-seqs $N'
    _, _, told = patched({"command": ["sh", "-c", script], "env": literal(N="256")})
    assert told["warnings"] == ["N no longer sets a limit of chat; other words of it still use it"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-num-seqs\u00a0256"], "--max-num-seqs\\\\xa0256"),
        (["--max\u2010num\u2010seqs=256"], "--max\\\\u2010num"),
        ([" --dtype=auto"], "A word with blanks at its ends belongs to no flag"),
        ([""], "An empty word belongs to no flag"),
    ],
)
def test_what_cannot_be_seen_is_told(patched, words, said):
    code, _, told = patched({"command": ["vllm", "serve", "m", *words]})
    assert code == 4
    assert said in told["reason"]


@pytest.mark.parametrize("kind", ["ServingRuntime", "CronJob"])
def test_a_kind_without_an_adapter_that_stands_alone_is_meant(patched, kind, tmp_path, capfd):
    container = {"command": ["vllm", "serve", "m"], "args": ["--max-num-seqs=256"]}
    code, _, told = patched(container, kind)
    assert (code, told["target"], told["reason_code"]) == (3, f"{kind}/chat", "UnknownKind")
    assert told["suggested_change"][0]["value"] == NEW
    assert main(["check", "--file", str(tmp_path / "objects.yaml"), "--engine-version", "0.32.0"]) == 0
    assert f"{kind}/chat, container engine: vLLM 0.32.0 accepts" in capfd.readouterr().out


def test_two_objects_of_one_name_are_told_with_the_next_step(tmp_path, capsys):
    text = yaml.safe_dump_all([manifest("Deployment", {"command": ["vllm", "serve", "m"]})] * 2)
    (tmp_path / "objects.yaml").write_text(text)
    assert (
        main(["patch", "--file", str(tmp_path / "objects.yaml"), "--max-num-seqs=1", "--max-num-batched-tokens=1"]) == 2
    )
    assert "Put the one that you mean into a file of its own" in capsys.readouterr().err


def test_a_model_of_ray_serve_gets_the_limit_that_it_lacks(tmp_path, capfd):
    text = (
        "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: llm}\nspec:\n  serveConfigV2: |\n"
        "    applications:\n      - name: llm\n        args:\n          llm_configs:\n"
        "            - model_loading_config: {model_id: chat}\n              engine_kwargs:\n"
        "                max_num_seqs: 256  # tuned\n                dtype: auto\n  rayClusterConfig: {}\n"
    )
    (tmp_path / "ray.yaml").write_text(text)
    limits = ["--max-num-seqs", "64", "--max-num-batched-tokens", "4096"]
    assert main(["patch", "--file", str(tmp_path / "ray.yaml"), *limits]) == 0
    new = "dtype: auto\n                max_num_batched_tokens: 4096\n"
    assert capfd.readouterr().out == text.replace("256", "64").replace("dtype: auto\n", new)
