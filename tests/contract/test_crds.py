"""The CRDs are what the models say, and the schema and the models judge examples alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from pydantic import ValidationError

from kneekeeper.api.crds import KINDS, SERVING_PROFILE, TUNING_RUN, Kind, chart_template, definition, manifest
from kneekeeper.api.model import API_VERSION, ApiModel
from kneekeeper.api.rules import VALIDATIONS, explain
from kneekeeper.api.serving_profile import ServingProfile, ServingProfileSpec
from kneekeeper.api.tuning_run import TuningRun
from tests.crd_cases import BROKEN_RULES, BROKEN_SHAPES, FULL_SPEC, MINIMAL_SPEC, Refused
from tests.schema_samples import sample

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
RESOURCES: dict[str, type[ServingProfile] | type[TuningRun]] = {
    "ServingProfile": ServingProfile,
    "TuningRun": TuningRun,
}

# Python makes durations from seconds too, so only the schema can refuse a number on the wire.
REFUSED = ("true",)
"""Names of fields that are there to be refused with a reason."""

SHAPES_THAT_ONLY_THE_SCHEMA_REFUSES = {"a number for a duration"}


def root_schema(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """As the API server judges with strict field validation: what is not declared is an error."""
    closed = dict(schema)
    if "properties" in closed:
        closed["properties"] = {name: strict(child) for name, child in closed["properties"].items()}
        closed["additionalProperties"] = False
    if "items" in closed:
        closed["items"] = strict(closed["items"])
    return closed


def shape_error(kind: Kind, spec: dict[str, Any]) -> str | None:
    validator = jsonschema.Draft202012Validator(strict(root_schema(kind)["properties"]["spec"]))
    error = jsonschema.exceptions.best_match(validator.iter_errors(spec))
    return None if error is None else f"{error.json_path}: {error.message}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_manifest_is_what_make_crds_would_write(kind):
    assert (ROOT / "crds" / kind.file_name).read_text(encoding="utf-8") == manifest(kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_chart_template_is_what_make_crds_would_write(kind):
    written = ROOT / "charts" / "kneekeeper-crds" / "templates" / kind.file_name
    assert written.read_text(encoding="utf-8") == chart_template(kind)


@pytest.mark.parametrize("folder", ["crds", "charts/kneekeeper-crds/templates"])
def test_no_definition_is_left_from_a_kind_that_is_gone(folder):
    assert {path.name for path in (ROOT / folder).glob("*.yaml")} == {kind.file_name for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_is_described(kind):
    fields = root_schema(kind)["properties"]
    missing = [
        path
        for part in ("spec", "status")
        for path, node in nodes(fields[part], part)
        if "description" not in node and not path.endswith("[]")
    ]
    assert not missing


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_only_structural_keywords_are_used(kind):
    forbidden = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "const", "title", "nullable"}
    assert not [(path, word) for path, node in nodes(root_schema(kind)) for word in forbidden & node.keys()]


def test_words_that_yaml_takes_for_something_else_say_that_they_need_quotes():
    """kubectl reads YAML 1.1, whose booleans have many names."""
    misread: dict[str, str] = {}
    for _, node in nodes(root_schema(SERVING_PROFILE)["properties"]["spec"]):
        fields = {name: child for name, child in node.get("properties", {}).items() if name not in REFUSED}
        values = dict.fromkeys(node.get("enum", []), node)
        for word, described in (fields | values).items():
            if yaml.safe_load(word) != word:
                misread[word] = described.get("description", "")
    assert misread.keys() == {"on", "Off"}
    assert not [word for word, description in misread.items() if "in quotes" not in description]


def test_a_status_has_neither_defaults_nor_rules():
    for kind in KINDS:
        status = root_schema(kind)["properties"]["status"]
        assert not [path for path, node in nodes(status) if "default" in node or VALIDATIONS in node]


def test_the_smallest_and_the_fullest_spec_are_accepted():
    for spec in (MINIMAL_SPEC, FULL_SPEC):
        assert shape_error(SERVING_PROFILE, spec) is None
        ServingProfileSpec.model_validate(spec)


def test_the_full_spec_sets_every_field():
    expected = {path for path, _ in nodes(root_schema(SERVING_PROFILE)["properties"]["spec"])}
    # Alternatives exclude each other, so one spec cannot hold them all; the same classes stand elsewhere.
    # `true` is there to be refused.
    exclusive = (
        ".retune.true",
        ".slo",
        ".classes",
        "Tokens.",
        ".arrivals",
        ".prompts",
        ".traceRef",
        "schedules",
        ".*",
        "[]",
    )
    present: set[str] = set()

    def walk(value: Any, path: str) -> None:
        present.add(path)
        for name, child in value.items() if isinstance(value, dict) else ():
            walk(child, f"{path}.{name}")

    walk(FULL_SPEC, "")
    assert not [path for path in sorted(expected - present) if not any(part in path for part in exclusive)]


def test_the_full_spec_survives_the_model():
    written = ServingProfileSpec.model_validate(FULL_SPEC).to_resource()
    assert ServingProfileSpec.model_validate(written).to_resource() == written
    assert shape_error(SERVING_PROFILE, written) is None
    for field in ("targetRef", "slo", "probe", "endpoint", "updatePolicy"):
        assert written[field] == FULL_SPEC[field]


@pytest.mark.parametrize("case", BROKEN_RULES, ids=lambda case: case.name)
def test_the_model_refuses(case: Refused):
    with pytest.raises(ValidationError) as refusal:
        ServingProfileSpec.model_validate(case.spec())
    assert case.message in explain(refusal.value)
    if case.message != "Duplicate value":
        assert shape_error(SERVING_PROFILE, case.spec()) is None, "the shape alone must not decide this case"


@pytest.mark.parametrize("case", BROKEN_SHAPES, ids=lambda case: case.name)
def test_the_schema_refuses(case: Refused):
    assert shape_error(SERVING_PROFILE, case.spec()) is not None
    if case.name not in SHAPES_THAT_ONLY_THE_SCHEMA_REFUSES:
        with pytest.raises(ValidationError):
            ServingProfileSpec.model_validate(case.spec())


def rules_of_schema(schema: dict[str, Any]) -> set[str]:
    return {rule["message"] for _, node in nodes(schema) for rule in node.get(VALIDATIONS, [])}


def test_every_rule_of_the_profile_has_a_case():
    spec = root_schema(SERVING_PROFILE)["properties"]["spec"]
    # Only the API server knows the old object: tests/integration covers what cannot change.
    transition = {rule["message"] for rule in spec["properties"]["targetRef"][VALIDATIONS]}
    assert rules_of_schema(spec) - transition == {case.message for case in BROKEN_RULES} - {"Duplicate value"}


def test_a_name_that_is_no_label_is_refused():
    profile = {"metadata": {"name": "x" * 64}, "spec": MINIMAL_SPEC}
    with pytest.raises(ValidationError, match="at most 63 characters"):
        ServingProfile.model_validate(profile)
    ServingProfile.model_validate(profile | {"metadata": {"name": "x" * 63}})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_full_status_survives_the_model_unchanged(kind):
    whole = full_spec_as_written()
    given = {"profileSpec": whole, "workload": whole["workload"]}
    status = sample(root_schema(kind)["properties"]["status"], given=given)
    model: type[ApiModel] = kind.status
    assert model.model_validate(status).to_resource() == status


def full_spec_as_written() -> dict[str, Any]:
    return ServingProfileSpec.model_validate(FULL_SPEC).to_resource()


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_accepted(path):
    for document in documents(path):
        if document["apiVersion"] != API_VERSION:
            continue  # test_examples.py looks at all of them
        kind = {SERVING_PROFILE.name: SERVING_PROFILE, TUNING_RUN.name: TUNING_RUN}[document["kind"]]
        assert shape_error(kind, document["spec"]) is None
        RESOURCES[document["kind"]].model_validate({"metadata": document["metadata"], "spec": document["spec"]})


def test_the_quickstart_is_among_the_examples():
    assert ROOT / "examples" / "quickstart.yaml" in EXAMPLES
