"""The load agent's Secret and Job: restricted, without rights, and of no use to anybody else."""

from __future__ import annotations

import pytest

from kneekeeper.actuate.agent import build_agent_job, build_agent_secret
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.model import LocalReference
from kneekeeper.api.workload import Workload
from kneekeeper.domain.names import AGENT_CA_FILE
from tests.unit.kube_objects import tuning_run

SETTINGS = ActuateSettings(agent_image="registry.example.com/kneekeeper:1", priority_class="low")


@pytest.fixture
def job():
    return build_agent_job(tuning_run(), SETTINGS)


@pytest.fixture
def pod(job):
    return job["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    [container] = pod["containers"]
    return container


def test_secret_and_job_have_one_name_and_belong_to_the_run(job):
    secret = build_agent_secret(tuning_run(), "token")
    for made in (secret, job):
        assert made["metadata"]["name"] == "chat-1-agent"
        assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-chat-1"
        assert made["metadata"]["labels"]["kneekeeper.io/role"] == "agent"


def test_the_token_lies_in_a_secret_that_cannot_change():
    secret = build_agent_secret(tuning_run(), "token")
    assert secret["stringData"] == {"token": "token"}
    assert secret["immutable"] is True


def test_the_token_is_a_file_and_no_value_in_the_job(job, container):
    assert container["env"] == [{"name": "KNEEKEEPER_TOKEN_FILE", "value": "/var/run/kneekeeper/token/token"}]
    [volume] = [v for v in job["spec"]["template"]["spec"]["volumes"] if v["name"] == "token"]
    assert volume["secret"]["secretName"] == "chat-1-agent"
    assert container["volumeMounts"][0]["mountPath"] == "/var/run/kneekeeper/token"


def test_the_image_starts_the_agent_by_its_module(container):
    assert container["image"] == SETTINGS.agent_image
    assert "command" not in container
    assert container["args"] == ["kneekeeper.load.agent", "--port", "8080"]


def test_several_agents_are_numbered_pods_of_one_job():
    job = build_agent_job(tuning_run(), SETTINGS, agents=3)
    assert job["spec"]["completionMode"] == "Indexed"
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (3, 3)


def test_it_is_one_pod_that_is_started_again_often(job, pod):
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (1, 1)
    assert job["spec"]["backoffLimit"] >= 10
    assert pod["restartPolicy"] == "OnFailure"


def test_it_ends_without_the_operator(job):
    assert job["spec"]["activeDeadlineSeconds"] > 0


def test_it_has_no_rights_at_the_api_server(pod):
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod


def test_it_meets_the_restricted_pod_security_standard(pod, container):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_its_processor_time_is_reserved_and_never_throttled(container):
    assert container["resources"]["requests"]["cpu"] == "500m"
    assert "cpu" not in container["resources"]["limits"]


def test_it_asks_for_no_accelerator_and_evicts_nobody(pod, container):
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}
    assert pod["priorityClassName"] == "low"


def test_service_links_cannot_disturb_it(pod):
    assert pod["enableServiceLinks"] is False


def test_the_engines_api_key_is_a_file():
    job = build_agent_job(tuning_run(), SETTINGS, LocalReference(name="keys", key="vllm"))
    pod = job["spec"]["template"]["spec"]
    [volume] = [v for v in pod["volumes"] if v["name"] == "api-key"]
    assert volume["secret"]["secretName"] == "keys"
    assert volume["secret"]["items"] == [{"key": "vllm", "path": "api-key"}]
    env = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
    assert env["KNEEKEEPER_API_KEY_FILE"] == "/var/run/kneekeeper/api-key/api-key"


def test_an_api_key_whose_key_is_not_resolved_is_an_error():
    with pytest.raises(ValueError, match="resolved"):
        build_agent_job(tuning_run(), SETTINGS, LocalReference(name="keys"))


def test_a_trace_and_prompts_are_mounted_read_only_and_named_to_the_agent():
    workload = Workload.model_validate(
        {
            "arrivals": {"process": "Trace"},
            "traceRef": {"persistentVolumeClaim": {"name": "traces", "key": "2024/monday.csv"}},
            "prompts": {"configMapRef": {"name": "prompts"}},
        }
    )
    pod = build_agent_job(tuning_run(), SETTINGS, None, workload)["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["trace"]["persistentVolumeClaim"] == {"claimName": "traces", "readOnly": True}
    assert volumes["prompts"]["configMap"]["name"] == "prompts"
    [container] = pod["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["KNEEKEEPER_TRACE"] == "/var/run/kneekeeper/sources/trace/2024/monday.csv"
    assert env["KNEEKEEPER_PROMPTS"] == "/var/run/kneekeeper/sources/prompts"
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["trace"] == {
        "name": "trace",
        "mountPath": "/var/run/kneekeeper/sources/trace",
        "readOnly": True,
    }
    assert mounts["prompts"]["readOnly"] is True


def test_without_files_nothing_is_mounted(container):
    assert {mount["name"] for mount in container["volumeMounts"]} == {"token", "tmp"}


def test_the_certificates_to_trust_are_the_file_that_a_stage_names():
    job = build_agent_job(tuning_run(), SETTINGS, ca_bundle=LocalReference(name="trust", key="bundle.pem"))
    pod = job["spec"]["template"]["spec"]
    [volume] = [v for v in pod["volumes"] if v["name"] == "ca"]
    assert volume["configMap"]["name"] == "trust"
    [item] = volume["configMap"]["items"]
    [mount] = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "ca"]
    assert mount["readOnly"] is True
    assert item["key"] == "bundle.pem"
    assert f"{mount['mountPath']}/{item['path']}" == AGENT_CA_FILE


def test_a_bundle_of_which_no_key_is_known_builds_no_job():
    with pytest.raises(ValueError, match="resolved"):
        build_agent_job(tuning_run(), SETTINGS, ca_bundle=LocalReference(name="trust"))
