"""A real API server judges the CRDs: it takes them, applies defaults, refuses by rule, and prunes nothing."""

from __future__ import annotations

import itertools
import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import kubernetes
import pytest
from hypothesis import HealthCheck, given, settings
from kubernetes.client import ApiException, CustomObjectsApi
from pydantic import ValidationError

from kneekeeper.api.crds import KINDS, Kind, definition
from kneekeeper.api.model import API_VERSION, GROUP, VERSION
from kneekeeper.api.serving_profile import ServingProfileSpec
from tests.crd_cases import BROKEN_RULES, BROKEN_SHAPES, FULL_SPEC, MINIMAL_SPEC, Refused
from tests.crd_strategies import SPECS
from tests.schema_samples import sample

ROOT = Path(__file__).parents[2]
NAMESPACE = f"crds-{secrets.token_hex(4)}"

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(api_server: str) -> Kubectl:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", api_server, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def objects(api_server: str, kubectl: Kubectl) -> Iterator[CustomObjectsApi]:
    """The API of a server that has the committed CRDs."""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    names = [f"crd/{kind.plural}.{GROUP}" for kind in KINDS]
    kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    kubectl("create", "namespace", NAMESPACE)
    with kubernetes.config.new_client_from_config(api_server) as client:  # type: ignore[no-untyped-call]
        yield CustomObjectsApi(client)
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


_names = (f"profile-{number}" for number in itertools.count())


def profile(spec: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ServingProfile",
        "metadata": {"name": name or next(_names)},
        "spec": spec,
    }


def run_of(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "TuningRun", "metadata": {"name": name}, "spec": spec}


def create(api: CustomObjectsApi, plural: str, body: dict[str, Any], dry_run: str | None = None) -> dict[str, Any]:
    """Creates with strict field validation; raises ApiException where the server refuses."""
    made = api.create_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, plural, body, field_validation="Strict", dry_run=dry_run
    )
    return cast(dict[str, Any], made)


def refusal(api: CustomObjectsApi, spec: dict[str, Any]) -> str | None:
    """The server's message about a profile with this spec, None where it accepts it. Stores nothing."""
    try:
        create(api, "servingprofiles", profile(spec), dry_run="All")
    except ApiException as error:
        if error.status not in (400, 422):
            raise
        return str(json.loads(error.body or "{}")["message"])
    return None


def test_the_smallest_and_the_fullest_spec_are_accepted(objects):
    assert refusal(objects, MINIMAL_SPEC) is None
    assert refusal(objects, FULL_SPEC) is None


@pytest.mark.parametrize("case", BROKEN_RULES, ids=lambda case: case.name)
def test_a_broken_rule_is_refused_with_its_message(objects, case: Refused):
    assert case.message in (refusal(objects, case.spec()) or "accepted")


@pytest.mark.parametrize("case", BROKEN_SHAPES, ids=lambda case: case.name)
def test_a_broken_shape_is_refused_by_naming_the_field(objects, case: Refused):
    message = refusal(objects, case.spec())
    assert message is not None
    assert case.path.rpartition(".")[2] in message


YAML_BOOLEANS = {
    "on": ("retune: {on: [Image]}", 'YAML takes a bare on for true: write "on" in quotes'),
    "Off": ("updatePolicy: {mode: Off}", 'spec.updatePolicy.mode: Invalid value: "boolean"'),
}
"""What a user's kubectl makes of words that YAML 1.1 has for true and false, and what is said."""


@pytest.mark.parametrize("validation", ["strict", "ignore"])
@pytest.mark.parametrize(("bare", "message"), YAML_BOOLEANS.values(), ids=list(YAML_BOOLEANS))
def test_a_word_without_its_quotes_is_refused_and_never_dropped(
    objects, api_server: str, bare: str, message: str, validation: str
):
    """`ignore` is how tools write that do not ask the server for strict validation."""

    def applied(line: str) -> subprocess.CompletedProcess[str]:
        spec = f"spec:\n  targetRef: {{kind: Deployment, name: chat}}\n  slo: {{p99TPOT: 40ms}}\n  {line}\n"
        text = f"apiVersion: {API_VERSION}\nkind: ServingProfile\nmetadata: {{name: bare}}\n{spec}"
        flags = ["-n", NAMESPACE, "--dry-run=server", f"--validate={validation}", "-f", "-"]
        command = ["kubectl", "--kubeconfig", api_server, "apply", *flags]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    refused = applied(bare)
    assert refused.returncode == 1
    assert message in refused.stderr
    quoted = bare.replace("{on", '{"on"').replace("Off", '"Off"')
    assert applied(quoted).returncode == 0


def test_the_server_fills_in_the_defaults_of_the_model(objects):
    made = create(objects, "servingprofiles", profile(MINIMAL_SPEC))
    from_server = ServingProfileSpec.model_validate(made["spec"])
    assert from_server == ServingProfileSpec.model_validate(MINIMAL_SPEC)
    assert made["spec"]["probe"]["budget"] == {
        "maxMeasureDuration": "30m",
        "startTimeout": "30m",
        "maxRestarts": 3,
        "maxGPUSeconds": 7200,
    }
    assert made["spec"]["updatePolicy"]["mode"] == "Recommend"


def test_the_server_fills_in_what_a_half_written_part_leaves_out(objects):
    spec = MINIMAL_SPEC | {
        "workload": {"promptTokens": {"mean": 10, "p99": 20}},
        "probe": {"budget": {"maxRestarts": 1}},
    }
    made = create(objects, "servingprofiles", profile(spec))["spec"]
    assert made["workload"]["promptTokens"]["distribution"] == "LogNormal"
    assert made["workload"]["arrivals"] == {"process": "Poisson"}
    assert made["probe"]["budget"]["startTimeout"] == "30m"
    assert ServingProfileSpec.model_validate(made) == ServingProfileSpec.model_validate(spec)


def test_the_target_cannot_be_changed(objects):
    body = profile(MINIMAL_SPEC)
    create(objects, "servingprofiles", body)
    with pytest.raises(ApiException, match="targetRef cannot change") as error:
        objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            NAMESPACE,
            "servingprofiles",
            body["metadata"]["name"],
            {"spec": {"targetRef": {"name": "other"}}},
            _content_type="application/merge-patch+json",
        )
    assert error.value.status == 422


def test_the_rest_of_a_profile_can_be_changed(objects):
    body = profile(MINIMAL_SPEC)
    create(objects, "servingprofiles", body)
    changed = objects.patch_namespaced_custom_object(
        GROUP,
        VERSION,
        NAMESPACE,
        "servingprofiles",
        body["metadata"]["name"],
        {"spec": {"slo": {"p99TTFT": "1s", "p99TPOT": None}}},
        _content_type="application/merge-patch+json",
    )
    assert changed["spec"]["slo"] == {"p99TTFT": "1s"}


def test_a_run_cannot_be_changed(objects):
    create(objects, "tuningruns", run_of("frozen", {"profileName": "chat"}))
    with pytest.raises(ApiException, match="a TuningRun cannot change"):
        objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            NAMESPACE,
            "tuningruns",
            "frozen",
            {"spec": {"profileName": "other"}},
            _content_type="application/merge-patch+json",
        )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_name_that_is_no_label_is_refused(objects, kind: Kind):
    name = "x" * 64
    body = profile(MINIMAL_SPEC, name) if kind.name == "ServingProfile" else run_of(name, {"profileName": "a"})
    with pytest.raises(ApiException, match="at most 63 characters"):
        create(objects, kind.plural, body, dry_run="All")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_full_status_comes_back_whole(objects, kind: Kind):
    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    written_spec = ServingProfileSpec.model_validate(FULL_SPEC).to_resource()
    status = sample(schema, given={"profileSpec": written_spec, "workload": written_spec["workload"]})
    name = f"full-{kind.short_name}"
    spec = MINIMAL_SPEC if kind.name == "ServingProfile" else {"profileName": "chat"}
    create(
        objects, kind.plural, {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
    )
    objects.patch_namespaced_custom_object_status(
        GROUP,
        VERSION,
        NAMESPACE,
        kind.plural,
        name,
        {"status": status},
        field_validation="Strict",
        _content_type="application/merge-patch+json",
    )
    read = objects.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, kind.plural, name)
    assert read["status"] == status
    assert kind.status.model_validate(read["status"]).to_resource() == status


def test_a_status_written_with_the_spec_is_not_stored(objects):
    body = profile(MINIMAL_SPEC) | {"status": {"stage": "made up"}}
    assert "status" not in create(objects, "servingprofiles", body)


def test_short_names_and_the_category_work(objects, kubectl):
    create(objects, "servingprofiles", profile(MINIMAL_SPEC, "short"))
    create(objects, "tuningruns", run_of("short", {"profileName": "short"}))
    assert "servingprofile.kneekeeper.io/short" in kubectl("get", "sp", "-n", NAMESPACE, "-o", "name")
    assert "tuningrun.kneekeeper.io/short" in kubectl("get", "tr", "-n", NAMESPACE, "-o", "name")
    in_category = kubectl("get", "kneekeeper", "-n", NAMESPACE, "-o", "name")
    assert {"servingprofile.kneekeeper.io/short", "tuningrun.kneekeeper.io/short"} <= set(in_category.split())


def set_status(api: CustomObjectsApi, plural: str, name: str, status: dict[str, Any]) -> None:
    api.patch_namespaced_custom_object_status(
        GROUP,
        VERSION,
        NAMESPACE,
        plural,
        name,
        {"status": status},
        _content_type="application/merge-patch+json",
    )


def row(kubectl: Kubectl, short_name: str, name: str) -> dict[str, str]:
    """One line of `kubectl get -o wide`, by column; cells are cut at the places of the headings."""
    heading, line = kubectl("get", short_name, name, "-n", NAMESPACE, "-o", "wide").splitlines()
    starts = [i for i, char in enumerate(heading) if char != " " and (i == 0 or heading[i - 1] == " ")]
    ends = [*starts[1:], None]
    return {heading[start:end].strip(): line[start:end].strip() for start, end in zip(starts, ends, strict=True)}


def test_the_columns_of_a_profile_tell_the_story(objects, kubectl):
    create(objects, "servingprofiles", profile(MINIMAL_SPEC, "story"))
    fresh = row(kubectl, "sp", "story")
    assert (fresh["TARGET"], fresh["MODE"], fresh["READY"], fresh["SEQS"]) == ("chat", "Recommend", "", "")
    kind = next(kind for kind in KINDS if kind.short_name == "sp")
    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    status = sample(schema, given={"type": "Ready", "status": "True", "maxNumSeqs": 64})
    set_status(objects, "servingprofiles", "story", status | {"stage": "Certify 2"})
    told = row(kubectl, "sp", "story")
    assert told["READY"] == "True"
    assert told["STAGE"] == "Certify 2"
    assert told["SEQS"] == "64"
    assert told["PROMISED"] == "37.5"
    assert told["REASON"] == "Measured"


def test_the_columns_of_a_run_show_the_last_choice_and_what_was_proven(objects, kubectl):
    create(objects, "tuningruns", run_of("story", {"profileName": "chat"}))

    def choice(attempt: int, seqs: int) -> dict[str, Any]:
        return {
            "attempt": attempt,
            "setting": {"maxNumSeqs": seqs, "maxNumBatchedTokens": 2048},
            "sustainableRequestsPerSecond": "40",
            "boundBy": "TPOT",
        }

    def certification(attempt: int, verdict: str, promised: str) -> dict[str, Any]:
        return {
            "attempt": attempt,
            "setting": {"maxNumSeqs": 64, "maxNumBatchedTokens": 2048},
            "offeredRequestsPerSecond": "38",
            "promisedRequestsPerSecond": promised,
            "verdict": verdict,
            "requests": 500,
            "misses": 1,
        }

    set_status(objects, "tuningruns", "story", {"step": "Certify", "choices": [choice(1, 96)]})
    assert row(kubectl, "tr", "story")["SEQS"] == "96"
    assert row(kubectl, "tr", "story")["PROMISED"] == ""
    set_status(
        objects,
        "tuningruns",
        "story",
        {
            "step": "Done",
            "outcome": "Certified",
            "choices": [choice(1, 96), choice(2, 64)],
            "certifications": [certification(1, "Fail", "35"), certification(2, "Pass", "31.7")],
        },
    )
    told = row(kubectl, "tr", "story")
    assert (told["STEP"], told["OUTCOME"], told["SEQS"], told["PROMISED"]) == ("Done", "Certified", "64", "31.7")


def model_refusal(spec: dict[str, Any]) -> ValidationError | None:
    try:
        ServingProfileSpec.model_validate(spec)
    except ValidationError as error:
        return error
    return None


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=SPECS)
def test_the_model_and_the_server_judge_alike(objects, spec):
    from_server, from_model = refusal(objects, spec), model_refusal(spec)
    assert (from_server is None) == (from_model is None), f"server: {from_server}; model: {from_model}"
    mistakes = [] if from_model is None else [mistake["msg"] for mistake in from_model.errors()]
    # A duration that Go cannot hold, and a repeated item, are worded differently on the two sides.
    ours = [message for message in mistakes if "292 years" not in message and "Duplicate" not in message]
    for message in ours:
        for part in message.removeprefix("Value error, ").split("; "):
            assert part in str(from_server)
