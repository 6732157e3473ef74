"""A clone is not made where it would take a volume, a device or traffic from production."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.domain.observation import Obstacle, ObstacleReason
from kneekeeper.kube.children import clone_labels
from kneekeeper.kube.clone_obstacles import AccessModes, clone_obstacle
from kneekeeper.kube.labels import LabelSelector, equality_selector, parse_selector
from kneekeeper.kube.selectors import PodSelector, Selectors
from tests.unit.kube_objects import TEMPLATE, template

CLAIM = [{"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}]


def obstacle(
    *, modes: AccessModes | None = None, keep: tuple[str, ...] = (), select: LabelSelector | None = None, **spec: Any
) -> Obstacle | None:
    labels = clone_labels("chat-1", TEMPLATE["metadata"]["labels"], keep)
    known = () if select is None else (PodSelector("Service chat", select),)
    return clone_obstacle(template(**spec)["spec"], modes or {}, labels, Selectors(known))


def test_a_plain_pod_has_no_obstacle():
    assert obstacle(select=equality_selector({"app": "chat"})) is None


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
def test_a_volume_with_a_single_writer_is_one_and_the_next_step_is_told(mode):
    found = obstacle(volumes=CLAIM, modes={"weights": frozenset({mode})})
    assert found is not None
    assert found.reason is ObstacleReason.SINGLE_WRITER_VOLUME
    assert "ReadOnlyMany or ReadWriteMany" in found.message


@pytest.mark.parametrize("mode", ["ReadOnlyMany", "ReadWriteMany"])
def test_a_volume_that_many_may_mount_is_none(mode):
    assert obstacle(volumes=CLAIM, modes={"weights": frozenset({"ReadWriteOnce", mode})}) is None


def test_a_claim_that_does_not_exist_yet_is_none():
    assert obstacle(volumes=CLAIM) is None


def test_devices_claimed_by_name_are_one_and_those_from_a_template_none():
    found = obstacle(resourceClaims=[{"name": "cards", "resourceClaimName": "the-cards"}])
    assert found is not None
    assert found.reason is ObstacleReason.SHARED_DEVICE
    assert obstacle(resourceClaims=[{"name": "cards", "resourceClaimTemplateName": "two"}]) is None


def test_being_selected_is_one_and_names_who_selects():
    found = obstacle(keep=("app",), select=equality_selector({"app": "chat"}))
    assert found is not None
    assert found.reason is ObstacleReason.CLONE_IS_SELECTED
    assert "Service chat" in found.message


def test_being_selected_by_an_empty_selector_is_one():
    assert obstacle(select=parse_selector({})) is not None


def test_selectors_that_may_not_be_read_are_one_only_where_labels_are_kept():
    for keep, reason in (((), None), (("team",), ObstacleReason.SELECTORS_UNKNOWN)):
        labels = clone_labels("chat-1", TEMPLATE["metadata"]["labels"], keep)
        found = clone_obstacle(template()["spec"], {}, labels, Selectors((), ("PodMonitor",)))
        assert (found and found.reason) == reason
