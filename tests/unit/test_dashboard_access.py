"""Actions of the dashboard: who may do them, what they write, and with whose token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from kneekeeper.api.profile_status import RecommendationConfidence
from kneekeeper.dashboard.access import Actions
from kneekeeper.dashboard.files import Folder
from kneekeeper.dashboard.server import Dashboard
from kneekeeper.dashboard.store import Store
from kneekeeper.domain.views.key import Key
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden
from kneekeeper.kube.resources import Kind

RECORDED = Path(__file__).parents[1] / "dashboard" / "recorded"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PATH = "/api/profiles/support/chat/actions"
TOKEN = {"Authorization": "Bearer ada"}
Client = TestClient[Any, Any]


class Cluster:
    """Knows one token, and whom it lets patch."""

    def __init__(self) -> None:
        self.may_patch = True
        self.refuses_writes = False
        self.asked: list[dict[str, Any]] = []
        self.written: list[tuple[str, str, str, Any]] = []

    async def create(self, kind: Kind, _: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        if kind.name == "TokenReview":
            known = body["spec"]["token"] == "ada"
            return {"status": {"authenticated": known, "user": {"username": "ada", "groups": ["team"]}}}
        return {"status": {"allowed": self.may_patch}}

    @asynccontextmanager
    async def as_viewer(self, token: str) -> AsyncIterator[Kube]:
        cluster = self

        class Viewer:
            async def json_patch(self, kind: Kind, namespace: str, name: str, patch: Any) -> dict[str, Any]:
                if cluster.refuses_writes:
                    raise Forbidden("no")
                cluster.written.append((token, namespace, name, patch))
                return {}

        yield cast(Kube, Viewer())


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def store() -> Store:
    found = Store()
    Folder(RECORDED).load(found)
    return found


@pytest.fixture
async def client(cluster: Cluster, store: Store) -> AsyncIterator[Client]:
    actions = Actions(cast(Kube, cluster), cluster.as_viewer, store, lambda: NOW)
    async with TestClient(TestServer(Dashboard(store, "cluster", actions).application())) as found:
        yield found


async def test_a_retune_is_written_with_the_viewers_own_token(client: Client, cluster: Cluster):
    answer = await client.post(PATH, json={"verb": "retune"}, headers=TOKEN)
    assert answer.status == 200
    assert await answer.json() == {"verb": "retune", "user": "ada"}
    ((token, namespace, name, patch),) = cluster.written
    assert (token, namespace, name) == ("ada", "support", "chat")
    assert patch == [
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"kneekeeper.io/retune": "2026-01-02T03:04:05+00:00"},
        }
    ]


async def test_the_review_asks_for_this_very_profile(client: Client, cluster: Cluster):
    await client.post(PATH, json={"verb": "suspend"}, headers=TOKEN)
    spec = cluster.asked[-1]["spec"]
    assert spec["user"] == "ada"
    assert spec["groups"] == ["team"]
    assert spec["resourceAttributes"] == {
        "group": "kneekeeper.io",
        "resource": "servingprofiles",
        "namespace": "support",
        "name": "chat",
        "verb": "patch",
    }


@pytest.mark.parametrize(("verb", "value"), [("suspend", True), ("resume", False)])
async def test_suspend_and_resume_write_one_field(client: Client, cluster: Cluster, verb: str, value: bool):
    await client.post(PATH, json={"verb": verb}, headers=TOKEN)
    assert cluster.written[0][3] == [{"op": "add", "path": "/spec/suspend", "value": value}]


async def test_only_the_recommendation_that_was_seen_is_approved(client: Client, cluster: Cluster, store: Store):
    profile = store.profile(Key("support", "chat"))
    assert profile is not None
    assert profile.status.recommendation is not None
    refused = await client.post(PATH, json={"verb": "approve", "hash": "another"}, headers=TOKEN)
    assert refused.status == 409
    assert cluster.written == []
    seen = profile.status.recommendation.hash
    assert (await client.post(PATH, json={"verb": "approve", "hash": seen}, headers=TOKEN)).status == 200
    assert cluster.written[0][3][0]["value"] == {"kneekeeper.io/approve": seen}


async def test_what_is_predicted_and_not_proven_cannot_be_approved(client: Client, cluster: Cluster, store: Store):
    profile = store.profile(Key("support", "chat"))
    assert profile is not None
    proven = profile.status.recommendation
    assert proven is not None
    predicted = proven.with_changes(confidence=RecommendationConfidence.PREDICTED)
    store.put_profile(profile.with_changes(status=profile.status.with_changes(recommendation=predicted)))
    refused = await client.post(PATH, json={"verb": "approve", "hash": proven.hash}, headers=TOKEN)
    assert refused.status == 409
    assert cluster.written == []


async def test_an_annotation_is_added_beside_the_others(client: Client, cluster: Cluster, store: Store):
    profile = store.profile(Key("support", "chat"))
    assert profile is not None
    store.put_profile(profile.with_changes(metadata={**profile.metadata, "annotations": {"a": "b"}}))
    await client.post(PATH, json={"verb": "retune"}, headers=TOKEN)
    assert cluster.written[0][3][0]["path"] == "/metadata/annotations/kneekeeper.io~1retune"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic YWRh"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer eve"}, 401),
        ({**TOKEN, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**TOKEN, "Sec-Fetch-Site": "same-site"}, 403),
        ({**TOKEN, "Origin": "https://evil.example"}, 403),
        ({**TOKEN, "Origin": "null"}, 403),
    ],
)
async def test_strangers_and_foreign_sites_are_refused(
    client: Client, cluster: Cluster, headers: dict[str, str], status: int
):
    answer = await client.post(PATH, json={"verb": "retune"}, headers=headers)
    assert answer.status == status
    assert (await answer.json())["error"]
    assert cluster.written == []


async def test_a_form_cannot_act(client: Client, cluster: Cluster):
    answer = await client.post(PATH, data={"verb": "retune"}, headers=TOKEN)
    assert answer.status == 415
    assert cluster.written == []


async def test_who_may_not_patch_is_told_so(client: Client, cluster: Cluster):
    cluster.may_patch = False
    answer = await client.post(PATH, json={"verb": "retune"}, headers=TOKEN)
    assert answer.status == 403
    assert "ada may not patch servingprofiles/chat in support" in (await answer.json())["error"]
    assert cluster.written == []


async def test_the_api_server_has_the_last_word(client: Client, cluster: Cluster):
    cluster.refuses_writes = True
    assert (await client.post(PATH, json={"verb": "retune"}, headers=TOKEN)).status == 403


@pytest.mark.parametrize("body", [{"verb": "delete"}, {}, {"verb": "retune", "more": 1}])
async def test_an_action_that_is_none_is_refused(client: Client, cluster: Cluster, body: dict[str, Any]):
    assert (await client.post(PATH, json=body, headers=TOKEN)).status == 400
    assert cluster.written == []
