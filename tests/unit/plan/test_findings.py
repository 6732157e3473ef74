"""What is wrong with a workload stands in its profile's status: diagnosed against the run that measured it."""

from __future__ import annotations

from dataclasses import replace

from kneekeeper.api.findings import FindingPhase
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.domain.diagnose import EngineReading
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.profile_findings import measured_engine
from tests.unit.plan.world import World, settled
from tests.unit.reading_builders import readings


def looked(world: World, scrapes: list[EngineReading] | None) -> ServingProfileStatus:
    """The status after one more tick in which the first pod had these scrapes."""
    seen = world.observe_profile()
    assert seen.pods
    read = None if scrapes is None else {seen.pods[0].name: tuple(scrapes)}
    status = profile_plan.decide(replace(seen, engine_readings=read)).status
    world.profile = world.profile.with_changes(status=status)
    return status


def overloaded() -> list[EngineReading]:
    return readings(running=(500,) * 12, waiting=tuple(20.0 * index for index in range(12)), queue_s=3.0, ttft_s=3.1)


def test_an_overload_is_suspected_then_present_and_stays_while_nothing_is_read():
    world = settled()
    phases = [{f.reason: f.phase for f in looked(world, overloaded()).findings} for _ in range(2)]
    assert phases[0]["ArrivalsAboveService"] is FindingPhase.SUSPECTED
    assert phases[1]["ArrivalsAboveService"] is FindingPhase.PRESENT
    assert looked(world, None).findings == world.profile.status.findings != []


def test_a_status_whose_findings_stay_is_not_written():
    world = settled()
    looked(world, overloaded())
    assert looked(world, overloaded()) == looked(world, overloaded())


def test_a_window_of_seconds_says_nothing():
    world = settled()
    assert looked(world, overloaded()[:3]).findings == []


def test_the_step_time_and_the_workload_of_the_last_run_are_what_production_is_held_against():
    world = settled()
    runs = tuple(world.runs.values())
    plan = runs[-1].status.plan
    assert plan is not None
    measured = measured_engine(runs, plan.fingerprint)
    assert measured is not None
    assert measured.step.base_s > 0
    assert measured.output_tokens > 1
    assert measured_engine(runs, "another engine") is None


def test_the_older_half_of_many_readings_is_what_throughput_is_compared_with():
    world = settled()
    before = readings(running=(30,) * 12, finished=1400)
    later = readings(running=(30,) * 12, waiting=(60,) * 12, finished=700, preemptions=200)
    last = before[-1]
    joined = [
        replace(
            reading,
            at_s=reading.at_s + last.at_s + 20,
            counters={name: value + last.counters[name] for name, value in reading.counters.items()},
            histograms={
                name: replace(
                    histogram,
                    cumulative=tuple(
                        a + b for a, b in zip(histogram.cumulative, last.histograms[name].cumulative, strict=True)
                    ),
                    sum=histogram.sum + last.histograms[name].sum,
                )
                for name, histogram in reading.histograms.items()
            },
        )
        for reading in later
    ]
    assert "ThroughputFalls" in {f.reason for f in looked(world, [*before, *joined]).findings}
    assert "ThroughputFalls" not in {f.reason for f in looked(settled(), joined).findings}
