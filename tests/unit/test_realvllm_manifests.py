import itertools
from pathlib import Path
from typing import Any

import pytest

from e2e.realvllm.environment import RealVllm
from e2e.realvllm.manifests import PodPlacement, deployment
from e2e.realvllm.server import EngineSettings

ENGINE = RealVllm(venv=Path("/cache/venv"), python_home=Path("/opt/python"), model=Path("/cache/model"))


def pod_spec(placement: PodPlacement) -> dict[str, Any]:
    settings = EngineSettings(16, 256, extra_args=("--seed", "1"))
    made = deployment(ENGINE, namespace="shop", name="chat", settings=settings, placement=placement)
    spec: dict[str, Any] = made["spec"]["template"]["spec"]
    return spec


def test_the_pod_keeps_to_the_restricted_level_but_for_its_host_folders():
    spec = pod_spec(PodPlacement())
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_every_host_folder_is_mounted_read_only():
    spec = pod_spec(PodPlacement())
    read_only = {mount["name"] for mount in spec["containers"][0]["volumeMounts"] if mount.get("readOnly")}
    assert read_only == {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}


def test_the_interpreter_is_mounted_where_the_venv_looks_for_it():
    mounts = {mount["name"]: mount["mountPath"] for mount in pod_spec(PodPlacement())["containers"][0]["volumeMounts"]}
    assert mounts["python"] == "/opt/python"


def test_both_limits_and_more_arguments_reach_the_command_line():
    arguments = pod_spec(PodPlacement())["containers"][0]["args"]
    pairs = dict(itertools.pairwise(arguments))
    assert (pairs["--max-num-seqs"], pairs["--max-num-batched-tokens"], pairs["--seed"]) == ("16", "256", "1")
    assert pairs["--model"] == "/model"


@pytest.mark.parametrize(("gpus", "limits"), [(0, None), (1, {"nvidia.com/gpu": "1"})])
def test_a_gpu_is_asked_for_only_when_wanted(gpus: int, limits: dict[str, str] | None):
    assert pod_spec(PodPlacement(gpus=gpus))["containers"][0]["resources"].get("limits") == limits


def test_service_links_are_off_unless_asked_for():
    assert pod_spec(PodPlacement())["enableServiceLinks"] is False
    assert pod_spec(PodPlacement(enable_service_links=True))["enableServiceLinks"] is True
