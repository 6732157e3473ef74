"""What is stored when a status is written over one that a later version wrote."""

from __future__ import annotations

from typing import Any, cast

from kneekeeper.actuate.status import write_conditions, write_status
from kneekeeper.api.model import Condition
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import SERVING_PROFILES, Kind
from kneekeeper.observe.own_resources import parse_profile
from tests.unit.kube_objects import PROFILE_SPEC


class RecordingKube:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def replace_status(self, kind: Kind, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self.written.append(body["status"])
        return body


def condition(type_: str, **more: Any) -> dict[str, Any]:
    told = {"type": type_, "status": "True", "reason": "R", "message": "m"}
    return told | {"lastTransitionTime": "2026-01-01T00:00:00Z"} | more


STORED = {
    "stage": "Ramp",
    "conditions": [condition("Ready", later=1), condition("Applied", later=2)],
    "engine": {"container": "vllm", "image": "i", "model": "m", "replicas": 2, "fingerprint": "f", "later": 3},
    "later": {"borrowed": 4},
}


async def written(**changes: Any) -> list[dict[str, Any]]:
    kube = RecordingKube()
    observed = {"metadata": {"name": "chat", "namespace": "n"}, "spec": PROFILE_SPEC, "status": STORED}
    read = parse_profile(observed).status
    await write_status(cast(Kube, kube), SERVING_PROFILES, observed, read.with_changes(**changes), read)
    return kube.written


async def test_fields_of_a_later_version_stay_where_they_stand():
    [status] = await written(stage="New")
    assert {name: value for name, value in status.items() if value is not None} == STORED | {"stage": "New"}


async def test_they_stay_beside_what_changes_and_go_with_what_goes():
    news = Condition.model_validate(condition("Recommended"))
    kept = Condition.model_validate(condition("Applied"))
    [status] = await written(stage="", conditions=[news, kept], engine=None)
    assert "stage" not in status or status["stage"] == ""
    assert "engine" not in status
    assert status["later"] == {"borrowed": 4}
    assert [each.get("later") for each in status["conditions"]] == [None, 2]


async def test_nothing_is_written_where_only_what_is_not_known_differs():
    assert await written() == []


async def test_conditions_are_put_into_a_status_that_is_not_understood_and_nothing_else_is_touched():
    stored = {"stage": 3, "conditions": [condition("Ready"), condition("Later", status="Perhaps")], "later": 1}
    observed = {"metadata": {"name": "chat", "namespace": "n"}, "status": stored}
    told = [Condition.model_validate(condition(type_, reason="NotUnderstood")) for type_ in ("Ready", "Accepted")]
    kube = RecordingKube()
    await write_conditions(cast(Kube, kube), SERVING_PROFILES, observed, told)
    [status] = kube.written
    types = [(each["type"], each["reason"]) for each in status["conditions"]]
    assert types == [("Ready", "NotUnderstood"), ("Later", "R"), ("Accepted", "NotUnderstood")]
    assert {**status, "conditions": stored["conditions"]} == stored
    await write_conditions(cast(Kube, kube), SERVING_PROFILES, {**observed, "status": status}, told)
    assert len(kube.written) == 1
