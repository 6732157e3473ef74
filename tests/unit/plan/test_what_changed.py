"""What of an engine changed: each part names itself as the trigger, and the image counts by its digest."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kneekeeper.api.serving_profile import RetuneTrigger
from kneekeeper.domain.engine_fingerprint import EngineFingerprint, engine_fingerprint
from kneekeeper.domain.plan import profile as profile_plan
from tests.unit.plan.cluster import Cluster
from tests.unit.plan.pods import digest_behind
from tests.unit.plan.world import World, settled

HOUR_S = 3600.0
LATEST = "vllm/vllm-openai:latest"


def fingerprint(
    *words: str, model: str = "tiny", image: str = "sha256:1", product: str = "L4", gpus: int = 1
) -> EngineFingerprint:
    view = Cluster(args=["serve", model, *words], gpus=gpus).workload()
    assert view is not None
    return engine_fingerprint(view.containers[0], model, image, product)


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (fingerprint("--max-num-seqs=9", "--max-num-batched-tokens=512"), ()),
        (fingerprint(image="sha256:2"), (RetuneTrigger.IMAGE,)),
        (fingerprint(model="small"), (RetuneTrigger.MODEL,)),
        (fingerprint("--enforce-eager"), (RetuneTrigger.ARGUMENTS,)),
        (fingerprint(product="H100"), (RetuneTrigger.HARDWARE,)),
        (fingerprint(gpus=2), (RetuneTrigger.HARDWARE,)),
        (fingerprint(model="small", image="sha256:2"), (RetuneTrigger.IMAGE, RetuneTrigger.MODEL)),
    ],
)
def test_each_part_of_a_fingerprint_names_itself(other: EngineFingerprint, changes: tuple[RetuneTrigger, ...]):
    assert other.changes_since(fingerprint()) == changes


def test_a_stored_fingerprint_is_read_back():
    assert EngineFingerprint.parse(str(fingerprint())) == fingerprint()
    assert EngineFingerprint.parse("0123456789abcdef") is None


def triggers(world: World) -> list[str]:
    return [str(run.spec.trigger) for run in world.runs.values()]


def test_a_moved_tag_starts_a_run_although_no_word_of_the_workload_changed():
    world = settled(updatePolicy={"mode": "Off"})
    world.digests[world.image] = digest_behind("moved")
    world.settle()
    world.run_for(HOUR_S)
    assert triggers(world) == ["New", "Image"]


def test_the_same_image_from_a_mirror_starts_no_run():
    world = settled(updatePolicy={"mode": "Off"})
    mirror = "mirror.example.com/vllm/vllm-openai:stable"
    world.digests[mirror] = world.digest
    world.set_image(mirror)
    world.run_for(24 * HOUR_S)
    assert triggers(world) == ["New"]
    assert world.profile.status.recommendation is not None
    assert world.profile.status.engine is not None
    assert world.profile.status.engine.image == mirror


def test_pods_of_two_digests_keep_the_engine_as_it_was_known():
    """As when a tag was moved and one of the pods came up anew on another node: for days, perhaps."""
    world = settled(updatePolicy={"mode": "Off"})
    before = world.profile.status.engine
    for _ in range(20):
        seen = world.observe_profile()
        assert seen.pods is not None
        moved = replace(seen.pods[0], image_id=digest_behind("moved"))
        decision = profile_plan.decide(replace(seen, pods=(moved, *seen.pods[1:])))
        assert decision.status.engine == before
        assert decision.actions == ()
        world.now += timedelta(minutes=5)
