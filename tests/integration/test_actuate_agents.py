"""Load agents at a real API server: made once, ordered with their token, and what they measured is stored."""

from __future__ import annotations

import pytest

from kneekeeper.actuate.apply import ActionsFailed, NotReadyToAct
from kneekeeper.actuate.samples import unpack
from kneekeeper.api.model import LocalReference
from kneekeeper.api.offered_load import Fixed, Open
from kneekeeper.api.stage import Limits, Outcome, Samples, StageSpec, Target
from kneekeeper.domain.actions import DeleteAgent, EnsureAgent, ScaleWorkload, StartStage, StoreSamples
from kneekeeper.kube.resources import CONFIG_MAPS, DEPLOYMENTS, JOBS, SECRETS
from kneekeeper.kube.secrets import SecretUnusable, read_agent_token, read_secret_value
from tests.unit.kube_objects import pod, template

STAGE = StageSpec(
    id="ramp-1",
    target=Target(host="10.244.0.9", port=8000, model="m"),
    prompt_tokens=Fixed(value=1),
    output_tokens=Fixed(value=1),
    arrivals=Open(rate=1),
    limits=Limits(min_requests=1, max_requests=1, max_duration_s=1),
    seed=1,
)


async def test_an_agent_is_made_once_and_its_token_never_changes(place):
    await place.do(EnsureAgent())
    token = await read_agent_token(place.kube, place.namespace, "chat-1")
    job = await place.get(JOBS, "chat-1-agent")
    await place.do(EnsureAgent())
    assert token is not None
    assert len(token.get_secret_value()) >= 40
    assert await read_agent_token(place.kube, place.namespace, "chat-1") == token
    assert (await place.get(JOBS, "chat-1-agent"))["metadata"]["uid"] == job["metadata"]["uid"]


async def test_an_agent_whose_job_failed_is_made_again(place):
    await place.do(EnsureAgent())
    job = await place.get(JOBS, "chat-1-agent")
    when = "2026-01-01T00:00:00Z"
    failed = {"status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": when}
    job["status"] = {
        "startTime": when,
        "conditions": [{"type": "FailureTarget", **failed}, {"type": "Failed", **failed}],
    }
    await place.kube.replace_status(JOBS, place.namespace, "chat-1-agent", job)
    await place.do(EnsureAgent())
    await place.do(EnsureAgent())
    assert (await place.get(JOBS, "chat-1-agent"))["metadata"]["uid"] != job["metadata"]["uid"]


async def test_an_agent_is_deleted_whole_and_being_gone_is_no_error(place):
    await place.do(EnsureAgent())
    await place.do(DeleteAgent())
    await place.do(DeleteAgent())
    assert await place.remaining(JOBS) == []
    assert await place.remaining(SECRETS) == []


async def test_the_api_keys_only_key_is_found(place):
    await place.kube.create(SECRETS, place.namespace, {"metadata": {"name": "keys"}, "stringData": {"k": "v\n"}})
    await place.do(EnsureAgent(), endpoint={"apiKeySecretRef": {"name": "keys"}})
    volumes = (await place.get(JOBS, "chat-1-agent"))["spec"]["template"]["spec"]["volumes"]
    [volume] = [v for v in volumes if v["name"] == "api-key"]
    assert volume["secret"]["items"] == [{"key": "k", "path": "api-key"}]
    value = await read_secret_value(place.kube, place.namespace, LocalReference(name="keys"))
    assert value.get_secret_value() == "v"


async def test_an_api_key_that_is_not_there_is_told(place):
    with pytest.raises(ActionsFailed, match="Secret keys does not exist") as failed:
        await place.do(EnsureAgent(), endpoint={"apiKeySecretRef": {"name": "keys"}})
    assert isinstance(failed.value.failures[0].error, SecretUnusable)
    assert await place.names(JOBS) == []


async def test_a_stage_is_ordered_at_the_agents_address_with_its_token(place):
    await place.do(EnsureAgent())
    token = await read_agent_token(place.kube, place.namespace, "chat-1")
    assert token is not None
    await place.do(StartStage(STAGE), agent=pod("chat-1-agent-x"))
    assert place.agent.reached == ("10.244.0.9", 8080, token.get_secret_value())
    assert place.agent.orders == [STAGE]


def stage_samples(rows: int) -> Samples:
    times = [float(row) for row in range(rows)]
    ones = [1] * rows
    return Samples(
        warmup_s=0.0,
        intended_s=times,
        sent_s=times,
        first_s=times,
        last_s=times,
        prompt_tokens=ones,
        output_tokens=ones,
        first_chunk_tokens=ones,
        chunks=ones,
        outcome=[Outcome.OK] * rows,
    )


async def test_samples_are_stored_once_and_can_be_read_back(place):
    samples = stage_samples(20)
    await place.do(StoreSamples("ramp-8", samples))
    stored = await place.get(CONFIG_MAPS, "chat-1-ramp-8")
    await place.do(StoreSamples("ramp-8", stage_samples(1)))
    assert (await place.get(CONFIG_MAPS, "chat-1-ramp-8"))["metadata"] == stored["metadata"]
    assert unpack(stored["binaryData"]["samples.json.gz"]) == samples


async def test_an_action_that_fails_does_not_keep_the_others_from_being_done(place):
    await place.deploy(template())
    with pytest.raises(ActionsFailed) as failed:
        await place.do(StartStage(STAGE), ScaleWorkload(expected=2, wanted=1))
    [failure] = failed.value.failures
    assert failure.action == StartStage(STAGE)
    assert isinstance(failure.error, NotReadyToAct)
    assert (await place.get(DEPLOYMENTS, "chat"))["spec"]["replicas"] == 1
