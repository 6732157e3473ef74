"""Which image pods run: its digest, whatever reference leads to it, and never back and forth in a rollout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.domain.images import RunningImage, digest_of, running_image
from kneekeeper.domain.observation import PodView, WorkloadView
from tests.unit.plan.circumstances import START
from tests.unit.plan.cluster import Cluster
from tests.unit.plan.pods import digest_behind, pod_view

OLD, NEW = digest_behind("old"), digest_behind("new")
TAG = "vllm/vllm-openai:latest"


def workload(*, rolled_out: bool = True) -> WorkloadView:
    view = Cluster(image=TAG).workload()
    assert view is not None
    return view if rolled_out else replace(view, ready_replicas=0)


def pod(digest: str, image: str = TAG) -> PodView:
    cluster = Cluster()
    view = pod_view("chat-0", cluster.words, START, "L4")
    return replace(view, image=image, image_id=f"docker.io/vllm/vllm-openai@{digest}" if digest else "")


@pytest.mark.parametrize(
    "image_id",
    [
        f"docker.io/vllm/vllm-openai@{OLD}",
        f"docker-pullable://mirror.example.com:5000/vllm-openai@{OLD}",
        OLD,
        f"mirror.example.com/vllm-openai:v1@{OLD}",
    ],
)
def test_a_digest_is_the_same_behind_every_registry(image_id: str):
    assert digest_of(image_id) == OLD


def test_a_tag_alone_has_no_digest():
    assert digest_of(TAG) == ""
    assert running_image(TAG, workload(), None, None) == RunningImage(TAG, "")


def test_pods_that_agree_tell_the_digest():
    assert running_image(TAG, workload(), [pod(NEW), pod(NEW)], RunningImage(TAG, OLD)).digest == NEW


@pytest.mark.parametrize("seen", [[], [OLD, NEW], [NEW, OLD], [OLD], [OLD, OLD, NEW], [""]])
def test_a_moved_tag_counts_once_all_pods_run_what_it_points_to(seen: list[str]):
    last = RunningImage(TAG, OLD)
    assert running_image(TAG, workload(rolled_out=False), [pod(d) for d in seen], last) == last


def test_a_new_reference_counts_with_the_first_pod_that_runs_it():
    last, new = RunningImage("vllm/vllm-openai:v1", OLD), "vllm/vllm-openai:v2"
    old_pod = pod(OLD, "vllm/vllm-openai:v1")
    still_pulling = [old_pod, pod("", new)]
    assert running_image(new, workload(rolled_out=False), still_pulling, last) == last
    assert running_image(new, workload(rolled_out=False), [old_pod, pod(NEW, new)], last) == RunningImage(new, NEW)


def test_a_mirror_of_the_same_image_keeps_its_identity():
    last, mirror = RunningImage(TAG, OLD), "mirror.example.com/vllm-openai:latest"
    found = running_image(mirror, workload(), [pod(OLD, mirror)], last)
    assert (found.reference, found.identity) == (mirror, last.identity)


def test_a_reference_that_a_webhook_rewrote_is_known_once_the_rollout_is_over():
    rewritten = pod(NEW, "mirror.example.com/vllm-openai:latest")
    assert running_image(TAG, workload(), [rewritten], None).digest == NEW


def test_a_pinned_reference_needs_no_pod():
    assert running_image(f"vllm/vllm-openai@{NEW}", workload(), None, RunningImage(TAG, OLD)).digest == NEW
