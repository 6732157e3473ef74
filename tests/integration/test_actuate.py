"""Every action against a real API server: done twice it is done once, and others' objects are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.actuate.apply import ActionsFailed, ChildRefused, NotReadyToAct, ProfileSubject, Writers, perform
from kneekeeper.actuate.children import ForeignObject
from kneekeeper.actuate.samples import unpack
from kneekeeper.actuate.status import write_status
from kneekeeper.api.model import LocalReference
from kneekeeper.api.offered_load import Fixed, Open
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.stage import Limits, Outcome, Samples, StageSpec, Target
from kneekeeper.api.tuning_run import Trigger
from kneekeeper.domain.actions import (
    CreateRun,
    DeleteAgent,
    DeleteClone,
    DeleteRun,
    EmitEvent,
    EnsureAgent,
    EnsureClone,
    EventType,
    ScaleWorkload,
    StartStage,
    StoreSamples,
    WriteWords,
)
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Conflict, Invalid, ServerTrouble
from kneekeeper.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    SECRETS,
    SERVICES,
    SERVING_PROFILES,
    TUNING_RUNS,
    VOLUME_CLAIMS,
    Kind,
    Resource,
)
from kneekeeper.kube.secrets import SecretUnusable, read_agent_token, read_secret_value
from kneekeeper.observe.own_resources import parse_profile, parse_run
from kneekeeper.observe.target import read_workload
from tests.integration.place import NAMESPACES, NOW, REF, SETTINGS, Place
from tests.unit.kube_objects import pod, template, tuning_run

BEFORE = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=256"])
AFTER = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=64"])
STAGE = StageSpec(
    id="ramp-1",
    target=Target(host="10.244.0.9", port=8000, model="m"),
    prompt_tokens=Fixed(value=1),
    output_tokens=Fixed(value=1),
    arrivals=Open(rate=1),
    limits=Limits(min_requests=1, max_requests=1, max_duration_s=1),
    seed=1,
)
ENSURE_CLONE = EnsureClone(start=1, container="vllm", words=AFTER, deadline_s=600)


# Clones


async def test_a_clone_is_made_once(place):
    await place.deploy(template())
    await place.do(ENSURE_CLONE)
    first = await place.get(PODS, "chat-1-clone-1")
    await place.do(ENSURE_CLONE)
    assert (await place.get(PODS, "chat-1-clone-1"))["metadata"]["uid"] == first["metadata"]["uid"]
    assert first["spec"]["priority"] == -1000
    assert first["spec"]["preemptionPolicy"] == "Never"
    assert first["spec"]["enableServiceLinks"] is False
    assert first["spec"]["containers"][0]["args"] == AFTER.args


async def test_a_template_with_everything_makes_a_clone_that_the_api_server_takes(place):
    node_term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    rule = {"labelSelector": {"matchLabels": {"app": "chat"}}, "topologyKey": "kubernetes.io/hostname"}
    full = template(
        hostNetwork=True,
        dnsPolicy="ClusterFirstWithHostNet",
        initContainers=[
            {"name": "fetch", "image": "registry.example.com/fetch:1"},
            {
                "name": "cache",
                "image": "registry.example.com/cache:1",
                "restartPolicy": "Always",
                "ports": [{"containerPort": 9000}],
                "startupProbe": {"tcpSocket": {"port": 9000}},
            },
        ],
        affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [node_term]}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]},
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
        terminationGracePeriodSeconds=300,
        readinessGates=[{"conditionType": "example.com/routed"}],
        hostname="chat",
        subdomain="chat",
    )
    await place.deploy(full)
    await place.do(ENSURE_CLONE)
    spec = (await place.get(PODS, "chat-1-clone-1"))["spec"]
    assert "hostNetwork" not in spec
    assert [c["name"] for c in spec["initContainers"]] == ["fetch", "cache"]


async def test_a_clone_is_deleted_once_and_being_gone_is_no_error(place):
    await place.deploy(template())
    await place.do(ENSURE_CLONE)
    await place.do(DeleteClone(1))
    await place.do(DeleteClone(1))
    assert "chat-1-clone-1" not in await gone(place, PODS)


async def gone(place: Place, kind: Kind) -> list[str]:
    """Names of what is not being deleted; an unscheduled pod goes at once."""
    return [
        o["metadata"]["name"]
        for o in await place.kube.list(kind, place.namespace)
        if "deletionTimestamp" not in o["metadata"]
    ]


async def test_a_pod_of_somebody_else_with_the_clones_name_is_left_alone(place):
    await place.deploy(template())
    foreign = {"metadata": {"name": "chat-1-clone-1"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    await place.kube.create(PODS, place.namespace, foreign)
    for action in (ENSURE_CLONE, DeleteClone(1)):
        with pytest.raises(ActionsFailed) as failed:
            await place.do(action)
        assert isinstance(failed.value.failures[0].error, ForeignObject)
    assert await gone(place, PODS) == ["chat-1-clone-1"]


async def test_a_clone_of_a_pod_with_a_single_writer_volume_is_refused(place):
    claim = {
        "metadata": {"name": "weights"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await place.kube.create(VOLUME_CLAIMS, place.namespace, claim)
    await place.deploy(template(volumes=[{"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}]))
    with pytest.raises(ActionsFailed) as failed:
        await place.do(ENSURE_CLONE)
    assert isinstance(failed.value.failures[0].error, ChildRefused)
    assert await place.names(PODS) == []


async def test_a_clone_that_a_service_would_select_is_refused(place):
    await place.deploy(template())
    service = {"metadata": {"name": "all-of-ml"}, "spec": {"selector": {"team": "ml"}, "ports": [{"port": 80}]}}
    await place.kube.create(SERVICES, place.namespace, service)
    await place.do(ENSURE_CLONE)
    await place.do(DeleteClone(1))
    with pytest.raises(ActionsFailed, match="Service all-of-ml"):
        await place.do(ENSURE_CLONE, probe={"clone": {"keep": ["team"]}})
    assert await gone(place, PODS) == []


# Load agents


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
    assert await gone(place, JOBS) == []
    assert await gone(place, SECRETS) == []


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


# Evidence


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


# The workload


async def test_words_are_written_and_nothing_else(place):
    await place.deploy(template())
    before = await place.get(DEPLOYMENTS, "chat")
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    after = await place.get(DEPLOYMENTS, "chat")
    assert after["spec"]["template"]["spec"]["containers"][1]["args"] == AFTER.args
    before["spec"]["template"]["spec"]["containers"][1]["args"] = AFTER.args
    assert after["spec"] == before["spec"]
    workload = await read_workload(place.kube, place.namespace, REF)
    assert workload is not None
    assert workload.view.last_writer == "kneekeeper"


async def test_words_are_written_once(place):
    await place.deploy(template())
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    generation = (await place.get(DEPLOYMENTS, "chat"))["metadata"]["generation"]
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    assert (await place.get(DEPLOYMENTS, "chat"))["metadata"]["generation"] == generation


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ContainerWords(command=["vllm", "serve"]), AFTER),
        (ContainerWords(args=["a"]), ContainerWords(command=["b"], args=["c"])),
        (ContainerWords(), ContainerWords(args=["a"])),
        (AFTER, ContainerWords(command=["only"])),
    ],
)
async def test_words_that_are_absent_are_added_and_removed_and_can_be_taken_back(place, before, after):
    made = template()
    engine = made["spec"]["containers"][1]
    engine.pop("command")
    engine.pop("args")
    engine |= before.to_resource()
    await place.deploy(made)
    for old, new in ((before, after), (after, before)):
        await place.do_for_profile(WriteWords("vllm", old, new))
        workload = await read_workload(place.kube, place.namespace, REF)
        assert workload is not None
        assert workload.view.containers[1].words == new


async def test_words_of_somebody_else_are_left_alone(place):
    await place.deploy(template())
    theirs = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b", "--max-num-seqs=128"])
    await place.do_for_profile(WriteWords("vllm", BEFORE, theirs))
    await place.do_for_profile(WriteWords("vllm", BEFORE, AFTER))
    workload = await read_workload(place.kube, place.namespace, REF)
    assert workload is not None
    assert workload.view.containers[1].words == theirs


class Meddler(Kube):
    """Somebody else writes right after each read of a Deployment."""

    meddle: Any = None

    async def get(self, kind: Kind, namespace: str, name: str) -> Resource:
        found = await super().get(kind, namespace, name)
        if kind == DEPLOYMENTS and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        return found


async def meddled(place: Place, api_server: str, patch: list[dict[str, Any]], action: WriteWords) -> None:
    async with await Meddler.connect("test", api_server) as kube:

        async def meddle() -> None:
            await place.kube.json_patch(DEPLOYMENTS, place.namespace, "chat", patch)

        kube.meddle = meddle
        writers = Writers(kube, place.agent.connect, SETTINGS)
        await perform(writers, ProfileSubject(parse_profile(place.profile)), [action], NOW)


async def test_words_that_change_between_reading_and_writing_are_left_alone(place, api_server):
    await place.deploy(template())
    theirs = ["example/chat-8b", "--max-num-seqs=128"]
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/1/args", "value": theirs}]
    await meddled(place, api_server, patch, WriteWords("vllm", BEFORE, AFTER))
    container = (await place.get(DEPLOYMENTS, "chat"))["spec"]["template"]["spec"]["containers"][1]
    assert container["args"] == theirs


async def test_containers_that_change_places_between_reading_and_writing_are_left_alone(place, api_server):
    await place.deploy(template())
    patch = [{"op": "move", "from": "/spec/template/spec/containers/1", "path": "/spec/template/spec/containers/0"}]
    await meddled(place, api_server, patch, WriteWords("vllm", BEFORE, AFTER))
    containers = (await place.get(DEPLOYMENTS, "chat"))["spec"]["template"]["spec"]["containers"]
    assert [c.get("args") for c in containers] == [BEFORE.args, None]


async def test_other_writes_between_reading_and_writing_do_no_harm(place, api_server):
    await place.deploy(template())
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {"example.com/note": "x"}}]
    await meddled(place, api_server, patch, WriteWords("vllm", BEFORE, AFTER))
    found = await place.get(DEPLOYMENTS, "chat")
    assert found["spec"]["template"]["spec"]["containers"][1]["args"] == AFTER.args
    assert found["metadata"]["annotations"]["example.com/note"] == "x"


async def test_refused_words_are_an_error_and_not_taken_for_a_change_by_others(place):
    await place.deploy(template())
    too_large = ContainerWords(command=["vllm"], args=["x" * 16_000] * 100)
    with pytest.raises(ActionsFailed) as failed:
        await place.do_for_profile(WriteWords("vllm", BEFORE, too_large))
    assert isinstance(failed.value.failures[0].error, Invalid | ServerTrouble)


async def replicas(place: Place) -> int:
    count: int = (await place.get(DEPLOYMENTS, "chat"))["spec"]["replicas"]
    return count


async def test_a_replica_is_taken_and_given_back_once(place):
    await place.deploy(template())
    for _ in range(2):
        await place.do(ScaleWorkload(expected=2, wanted=1))
        assert await replicas(place) == 1
    for _ in range(2):
        await place.do(ScaleWorkload(expected=1, wanted=2))
        assert await replicas(place) == 2


async def test_replicas_that_somebody_else_set_are_left_alone(place):
    await place.deploy(template())
    await place.do(ScaleWorkload(expected=3, wanted=2))
    assert await replicas(place) == 2
    await place.do(ScaleWorkload(expected=1, wanted=5))
    assert await replicas(place) == 2


async def test_scaling_touches_nothing_else(place):
    await place.deploy(template())
    before = await place.get(DEPLOYMENTS, "chat")
    await place.do(ScaleWorkload(expected=2, wanted=1))
    assert (await place.get(DEPLOYMENTS, "chat"))["spec"] == before["spec"] | {"replicas": 1}


# Runs and events


async def test_a_run_is_made_once_with_its_finalizer_and_its_owner(place):
    for _ in range(2):
        await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))
    run = await place.get(TUNING_RUNS, "chat-2")
    assert run["metadata"]["finalizers"] == ["kneekeeper.io/finalizer"]
    [owner] = run["metadata"]["ownerReferences"]
    assert owner["uid"] == place.profile["metadata"]["uid"]
    assert owner["blockOwnerDeletion"] is True
    assert run["spec"] == {"profileName": "chat", "trigger": "New"}


async def test_a_run_of_that_name_made_by_hand_is_not_taken_over(place):
    with pytest.raises(ActionsFailed, match="not of this owner"):
        await place.do_for_profile(CreateRun("chat-1", Trigger.NEW))


async def test_a_run_is_deleted_once_and_waits_for_its_finalizer(place):
    await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))
    for _ in range(2):
        await place.do_for_profile(DeleteRun("chat-2"))
    assert "deletionTimestamp" in (await place.get(TUNING_RUNS, "chat-2"))["metadata"]
    await place.do_for_profile(DeleteRun("absent"))


async def test_an_event_is_told_once(place):
    action = EmitEvent(EventType.NORMAL, "RunStarted", "TuningRun chat-2 started.")
    for _ in range(2):
        await place.do_for_profile(action)
        await place.do(action)
    events = await place.kube.list(EVENTS, place.namespace)
    assert sorted(e["regarding"]["kind"] for e in events) == ["ServingProfile", "TuningRun"]


async def test_an_action_that_fails_does_not_keep_the_others_from_being_done(place):
    await place.deploy(template())
    with pytest.raises(ActionsFailed) as failed:
        await place.do(StartStage(STAGE), ScaleWorkload(expected=2, wanted=1))
    [failure] = failed.value.failures
    assert failure.action == StartStage(STAGE)
    assert isinstance(failure.error, NotReadyToAct)
    assert await replicas(place) == 1


# Status


def told(stage: str) -> ServingProfileStatus:
    return ServingProfileStatus(stage=stage, observed_generation=1)


async def test_a_status_is_stored_and_an_equal_one_writes_nothing(place):
    stored = await write_status(place.kube, SERVING_PROFILES, place.profile, told("a"))
    again = await write_status(place.kube, SERVING_PROFILES, stored, told("a"))
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert parse_profile(await place.get(SERVING_PROFILES, "chat")).status == told("a")


async def test_a_status_decided_on_an_old_object_is_a_conflict_and_is_not_stored(place):
    await write_status(place.kube, SERVING_PROFILES, place.profile, told("a"))
    with pytest.raises(Conflict):
        await write_status(place.kube, SERVING_PROFILES, place.profile, told("b"))
    assert parse_profile(await place.get(SERVING_PROFILES, "chat")).status.stage == "a"


async def test_a_status_that_breaks_its_model_is_not_sent(place):
    broken = told("a").model_copy(update={"stage": "x" * 1000})
    with pytest.raises(ValueError, match="at most 64 characters"):
        await write_status(place.kube, SERVING_PROFILES, place.profile, broken)


async def test_a_whole_runs_status_survives_the_api_server(place):
    status = tuning_run().status
    stored = await write_status(place.kube, TUNING_RUNS, place.run, status)
    assert parse_run(stored).status == status
    assert await write_status(place.kube, TUNING_RUNS, stored, status) == stored


# The client itself


@pytest.fixture
def dead_server(api_server: str, tmp_path: Path) -> str:
    """A kubeconfig that names an address where nobody listens."""
    config = yaml.safe_load(Path(api_server).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return str(file)


async def test_a_server_that_is_not_there_is_trouble(dead_server):
    async with await Kube.connect("test", dead_server) as kube:
        with pytest.raises(ServerTrouble):
            await kube.get(NAMESPACES, "", "default")


async def test_lists_are_read_page_by_page(place, monkeypatch):
    monkeypatch.setattr("kneekeeper.kube.client.PAGE_SIZE", 2)
    for number in range(5):
        await place.kube.create(CONFIG_MAPS, place.namespace, {"metadata": {"name": f"page-{number}"}})
    names = await place.names(CONFIG_MAPS)
    assert [n for n in names if n.startswith("page-")] == [f"page-{n}" for n in range(5)]
