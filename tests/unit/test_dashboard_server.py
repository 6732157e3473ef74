"""The dashboard's API over a folder of recorded objects: what it answers, what it refuses, what it tells of changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from kneekeeper.dashboard.files import Folder, FolderError
from kneekeeper.dashboard.server import Dashboard
from kneekeeper.dashboard.store import Store
from kneekeeper.domain.views.key import Key

RECORDED = Path(__file__).parents[1] / "dashboard" / "recorded"
CHAT = Key("prod", "chat")
Client = TestClient[Any, Any]


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((RECORDED / "applied.yaml").read_text()))


@pytest.fixture
def store() -> Store:
    found = Store()
    Folder(RECORDED).load(found)
    return found


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with TestClient(TestServer(Dashboard(store, "files", None).application())) as found:
        yield found


async def test_the_fleet_says_what_the_status_says(client: Client, recorded: list[dict[str, Any]]):
    answer = await (await client.get("/api/fleet")).json()
    (row,) = [row for row in answer["rows"] if row["namespace"] == "prod"]
    status = recorded[0]["status"]
    setting = status["recommendation"]["setting"]
    assert row["recommended"] == {
        "max_num_seqs": setting["maxNumSeqs"],
        "max_num_batched_tokens": setting["maxNumBatchedTokens"],
    }
    assert row["capacity_requests_per_second"] == float(status["recommendation"]["promisedRequestsPerSecond"])
    assert row["knee"]["concurrency"] == float(status["knee"]["concurrency"])
    given = {"p99_ttft_ms": 2000.0, "p99_tpot_ms": 60.0}
    assert row["slo"] == {"p99_e2e_ms": None, "availability_percent": None} | given
    assert answer["summary"] == {
        "profiles": 3,
        "below_their_knee": 1,
        "being_measured": 1,
        "need_attention": answer["summary"]["need_attention"],
        "above_capacity": 0,
    }


async def test_a_profile_comes_with_its_newest_measured_run(client: Client, recorded: list[dict[str, Any]]):
    answer = await (await client.get("/api/profiles/prod/chat")).json()
    run = recorded[-1]
    assert answer["run"]["name"] == run["metadata"]["name"]
    assert [stage["name"] for stage in answer["run"]["stages"]] == [s["name"] for s in run["status"]["stages"]]
    assert answer["run"]["after"]["verdict"] == "Pass"
    assert answer["run"]["before"]["verdict"] == "Fail"
    assert answer["recommendation"]["patch"] == recorded[0]["status"]["recommendation"]["patch"]


async def test_any_kept_run_can_be_asked_for(client: Client):
    newest = await (await client.get("/api/profiles/support/chat")).json()
    assert len(newest["history"]) == 2
    first = newest["history"][0]["name"]
    older = await (await client.get(f"/api/profiles/support/chat?run={first}")).json()
    assert older["run"]["name"] == first != newest["run"]["name"]


async def test_the_band_holds_the_fit_and_reaches_beyond_the_highest_level(client: Client, store: Store):
    (run,) = store.runs_of(CHAT)
    answer = await (await client.get(f"/api/runs/prod/{run.metadata['name']}/band")).json()
    assert all(point["lower"] <= point["requests_per_second"] <= point["upper"] for point in answer)
    assert answer[-1]["concurrency"] > max(stage.users or 0 for stage in run.status.stages)


async def test_what_if_predicts_more_trouble_at_a_higher_rate(client: Client, store: Store):
    name = store.runs_of(CHAT)[0].metadata["name"]
    setting = store.runs_of(CHAT)[0].status.choices[-1].setting
    query = f"maxNumSeqs={setting.max_num_seqs}&maxNumBatchedTokens={setting.max_num_batched_tokens}"
    calm = await (await client.get(f"/api/runs/prod/{name}/what-if?{query}&requestsPerSecond=5")).json()
    busy = await (await client.get(f"/api/runs/prod/{name}/what-if?{query}&requestsPerSecond=100")).json()
    assert calm["holds"]
    assert not busy["holds"]
    assert calm["p99_ttft_ms"] < busy["p99_ttft_ms"]
    assert calm["highest_requests_per_second"] == busy["highest_requests_per_second"] > 5


async def test_a_run_without_a_ramp_says_so(client: Client, store: Store):
    run = store.runs_of(Key("staging", "chat"))[0]
    store.put_run(run.with_changes(status=run.status.with_changes(stages=[])))
    answer = await client.get(f"/api/runs/staging/{run.metadata['name']}/surface")
    assert answer.status == 409
    assert "no usable ramp" in (await answer.json())["error"]


@pytest.mark.parametrize(
    "query",
    [
        "maxNumSeqs=8",
        "maxNumSeqs=x&maxNumBatchedTokens=512&requestsPerSecond=1",
        "maxNumSeqs=0&maxNumBatchedTokens=512&requestsPerSecond=1",
        "maxNumSeqs=8&maxNumBatchedTokens=512&requestsPerSecond=nan",
        "maxNumSeqs=8&maxNumBatchedTokens=512&requestsPerSecond=1e9",
        "maxNumSeqs=8&maxNumBatchedTokens=512&requestsPerSecond=1&p99TTFTms=-1",
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(client: Client, store: Store, query: str):
    name = store.runs_of(CHAT)[0].metadata["name"]
    answer = await client.get(f"/api/runs/prod/{name}/what-if?{query}")
    assert answer.status == 400
    assert (await answer.json())["error"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/static/main.js", 200),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/api/fleet", 200),
        ("/api/profiles/prod/nobody", 404),
        ("/api/profiles/prod/chat?run=nothing", 404),
        ("/api/runs/prod/nothing/surface", 404),
        ("/nowhere", 404),
    ],
)
async def test_every_answer_carries_the_strict_headers(client: Client, path: str, status: int):
    answer = await client.get(path)
    assert answer.status == status
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_without_consent_of_the_operator_there_is_no_way_to_act(client: Client):
    answer = await client.post("/api/profiles/prod/chat/actions", json={"verb": "retune"})
    assert answer.status == 404
    assert not (await (await client.get("/api/fleet")).json())["actions"]


async def test_a_change_is_told_to_every_viewer_once(client: Client, store: Store):
    profile = store.profile(CHAT)
    assert profile is not None
    async with client.get("/api/changes") as first, client.get("/api/changes") as second:
        for stream in (first, second):
            assert (await stream.content.readline()).startswith(b": connected")
        store.put_profile(profile)  # nothing changed
        store.put_profile(profile.with_changes(status=profile.status.with_changes(stage="Elsewhere")))
        for stream in (first, second):
            assert await asyncio.wait_for(_told(stream), 30) == ["Elsewhere"]
        store.drop_profile(CHAT)
        for stream in (first, second):
            assert await asyncio.wait_for(_told(stream), 30) == []


async def _told(stream: Any) -> list[str]:
    """The stages of the rows in the next message."""
    async for line in stream.content:
        if line.startswith(b"data: "):
            return [row["stage"] for row in json.loads(line[6:])["rows"]]
    raise AssertionError("the stream ended")


def test_a_half_written_file_changes_nothing_and_a_missing_one_is_gone(tmp_path: Path):
    file = tmp_path / "chat.yaml"
    file.write_text((RECORDED / "applied.yaml").read_text())
    store, folder = Store(), Folder(tmp_path)
    folder.load(store)
    file.write_text("kind: ServingProfile\nmetadata: {")
    folder.load(store)
    assert [profile.metadata["name"] for profile in store.profiles()] == ["chat"]
    file.unlink()
    folder.load(store)
    assert store.profiles() == []
    assert store.runs_of(CHAT) == []


def test_a_later_versions_status_is_shown_without_what_is_new_and_a_spec_that_cannot_be_read_hides_no_other(
    tmp_path: Path, recorded: list[dict[str, Any]]
):
    asked = {**recorded[0], "metadata": {"name": "asked", "namespace": "prod"}}
    asked["spec"] = {**asked["spec"], "unheardOf": 1}
    told = {**recorded[0], "metadata": {"name": "told", "namespace": "prod"}, "status": {"unheardOf": 1}}
    (tmp_path / "all.json").write_text(json.dumps({"items": [asked, told, *recorded]}))
    store = Store()
    Folder(tmp_path).load(store)
    assert [profile.metadata["name"] for profile in store.profiles()] == ["chat", "told"]


def test_a_folder_that_is_none_is_named(tmp_path: Path):
    with pytest.raises(FolderError, match="nowhere is no folder"):
        Folder(tmp_path / "nowhere")
