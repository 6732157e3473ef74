"""Rollouts of every kind of workload, as their controllers count them."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.domain.targets.kinds import KINDS, TargetKind
from kneekeeper.kube.targets import UnsupportedTarget
from kneekeeper.observe.progress import progress_of, selector_of
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template

STATEFUL_SET = KINDS["apps", "StatefulSet"]
ROLLOUT = KINDS["argoproj.io", "Rollout"]
GROUPS = KINDS["leaderworkerset.x-k8s.io", "LeaderWorkerSet"]


def of_kind(kind: TargetKind, **spec: Any) -> dict[str, Any]:
    made = deployment()
    made["kind"] = kind.name
    made["spec"] |= spec
    return made


def group_set(size: int = 1, *, leader: bool = True) -> dict[str, Any]:
    made = of_kind(GROUPS)
    for field in ("template", "selector"):
        del made["spec"][field]
    part = "leaderTemplate" if leader else "workerTemplate"
    made["spec"]["leaderWorkerTemplate"] = {"size": size, part: template()}
    del made["status"]["observedGeneration"]
    return made


def test_a_stateful_set_is_read_like_a_deployment_and_replaces_one_pod_at_a_time():
    view = parse_workload(of_kind(STATEFUL_SET), kind=STATEFUL_SET)
    assert (view.kind, view.resource, view.template_path) == ("StatefulSet", "statefulset", ("spec", "template"))
    assert view.containers[1].name == "vllm"
    assert view.rolled_out
    assert view.max_unavailable == 1
    assert view.held_back == ""


@pytest.mark.parametrize(
    ("strategy", "word"),
    [({"type": "OnDelete"}, "OnDelete"), ({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, "partition 1")],
)
def test_a_stateful_set_that_keeps_old_pods_says_why(strategy, word):
    view = parse_workload(of_kind(STATEFUL_SET, updateStrategy=strategy), kind=STATEFUL_SET)
    assert word in view.held_back


@pytest.mark.parametrize(
    ("strategy", "unavailable"),
    [
        ({"canary": {}}, 0),
        ({"canary": {"maxSurge": 0, "maxUnavailable": 1}}, 1),
        ({"blueGreen": {"activeService": "chat"}}, 0),
    ],
)
def test_a_rollout_may_take_away_what_its_strategy_says(strategy, unavailable):
    assert progress_of(of_kind(ROLLOUT, strategy=strategy)).max_unavailable == unavailable


def test_a_rollouts_observed_generation_is_a_text():
    made = of_kind(ROLLOUT)
    made["status"]["observedGeneration"] = "3"
    assert parse_workload(made, kind=ROLLOUT).rolled_out
    made["status"]["observedGeneration"] = "2"
    assert not parse_workload(made, kind=ROLLOUT).rolled_out


def test_a_canary_that_pauses_awaits_promotion():
    made = of_kind(ROLLOUT, strategy={"canary": {"steps": [{"setWeight": 20}, {"pause": {}}]}})
    assert not parse_workload(made, kind=ROLLOUT).awaits_promotion
    made["status"]["pauseConditions"] = [{"reason": "CanaryPauseStep", "startTime": "2026-01-01T00:00:00Z"}]
    assert parse_workload(made, kind=ROLLOUT).awaits_promotion


def test_a_rollout_that_borrows_its_template_names_where_it_stands():
    made = of_kind(ROLLOUT, workloadRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "base"})
    del made["spec"]["template"]
    with pytest.raises(UnsupportedTarget, match="from Deployment base"):
        parse_workload(made, kind=ROLLOUT)


@pytest.mark.parametrize(("leader", "field"), [(True, "leaderTemplate"), (False, "workerTemplate")])
def test_the_leader_of_a_group_serves(leader, field):
    view = parse_workload(group_set(leader=leader), kind=GROUPS)
    assert view.template_path == ("spec", "leaderWorkerTemplate", field)
    assert view.rolled_out
    assert view.pods_per_replica == 1
    assert str(selector_of(group_set())) == (
        "leaderworkerset.sigs.k8s.io/name in (chat),leaderworkerset.sigs.k8s.io/worker-index in (0)"
    )


def test_a_group_of_several_pods_is_counted():
    assert parse_workload(group_set(4), kind=GROUPS).pods_per_replica == 4


def test_the_last_writer_of_a_groups_leader_is_found_in_its_template():
    made = group_set()
    containers: dict[str, Any] = {'k:{"name":"vllm"}': {"f:args": {}}}
    leader = {"f:spec": {"f:containers": containers}}
    fields = {"f:spec": {"f:leaderWorkerTemplate": {"f:leaderTemplate": leader}}}
    made["metadata"]["managedFields"] = [{"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]
    assert parse_workload(made, kind=GROUPS).last_writer == "kubectl"


def test_replicas_of_zero_stay_zero():
    assert parse_workload(of_kind(STATEFUL_SET, replicas=0), kind=STATEFUL_SET).replicas == 0
