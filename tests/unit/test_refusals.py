"""What the API server refuses to make, by the words that it says it in."""

from __future__ import annotations

import pytest

from kneekeeper.domain.observation import ObstacleReason
from kneekeeper.kube.errors import Conflict, Forbidden, Invalid, KubeError, ServerTrouble
from kneekeeper.kube.refusals import obstacle_of_refusal

QUOTA = (
    'POST pods: pods "chat-1-clone-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: '
    "requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2"
)
MUST_SPECIFY = 'POST pods: pods "chat-1-clone-1" is forbidden: failed quota: cpu: must specify requests.cpu'
POD_SECURITY = (
    'POST pods: pods "chat-1-clone-1" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'
)
LIMIT_RANGE = 'POST pods: pods "chat-1-clone-1" is forbidden: maximum memory usage per Pod is 8Gi, but limit is 16Gi'
WEBHOOK = 'POST pods: admission webhook "validate.example.com" denied the request: images must be signed'
PERMISSION = (
    'POST pods: pods is forbidden: User "system:serviceaccount:kneekeeper-system:kneekeeper" cannot create resource '
    '"pods" in API group "" in the namespace "prod"'
)


@pytest.mark.parametrize("text", [QUOTA, MUST_SPECIFY])
def test_a_quota_is_told_with_the_servers_words_and_the_next_step(text: str):
    obstacle = obstacle_of_refusal(Forbidden(text), "The clone")
    assert obstacle is not None
    assert obstacle.reason is ObstacleReason.QUOTA_EXCEEDED
    assert text in obstacle.message
    assert "BorrowReplica" in obstacle.message


@pytest.mark.parametrize("error", [Forbidden(POD_SECURITY), Forbidden(LIMIT_RANGE), Invalid(WEBHOOK)])
def test_a_policy_that_refuses_the_pod_is_told_as_such(error: KubeError):
    obstacle = obstacle_of_refusal(error, "The load agent")
    assert obstacle is not None
    assert obstacle.reason is ObstacleReason.POD_REFUSED
    assert obstacle.message.startswith("The load agent is refused by the cluster: ")


@pytest.mark.parametrize("error", [Forbidden(PERMISSION), Conflict("changed"), ServerTrouble("busy", 1.0)])
def test_a_missing_permission_and_passing_trouble_are_no_obstacle(error: KubeError):
    assert obstacle_of_refusal(error, "The clone") is None
