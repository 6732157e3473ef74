"""What the commands print, to the letter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from kneekeeper.api.observed import ScaleStatus
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.cli.checkup import Check, Health
from kneekeeper.cli.show.curve import curve_text
from kneekeeper.cli.show.diff import diff_lines
from kneekeeper.cli.show.doctor import check_lines
from kneekeeper.cli.show.listing import Column, Detail, Namespaces, listing
from kneekeeper.cli.show.production import MOST_REPLICAS, age, explained_lines
from kneekeeper.cli.show.runs import run_lines, run_summary
from kneekeeper.cli.show.simulation import simulation_lines
from kneekeeper.cli.show.status import fleet_lines, profile_lines
from kneekeeper.domain.observed_workload import learn
from kneekeeper.domain.traffic_history import TrafficHistory
from kneekeeper.domain.views.curve import curve_view
from kneekeeper.domain.views.diff import DiffView, FieldDiff
from kneekeeper.domain.views.fleet import Limits, Targets, fleet
from kneekeeper.domain.views.production import production_view
from kneekeeper.domain.views.profile import ProfileView, profile_view
from kneekeeper.domain.views.run import run_view
from kneekeeper.domain.views.runs import run_rows
from kneekeeper.domain.views.simulation import Simulation
from kneekeeper.local.chart import Ink
from tests.unit.cli import recorded
from tests.unit.cli.golden import hold, plain
from tests.unit.test_observed_workload import days

NOW = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def profile() -> ServingProfile:
    return recorded.profile()


@pytest.fixture(scope="module")
def run() -> TuningRun:
    return recorded.run()


def page(profile: ServingProfile, run: TuningRun) -> ProfileView:
    view = profile_view(profile, [run], ())
    assert view is not None
    return view


def styles(lines: Iterable[Text]) -> set[str]:
    return {str(style) for line in lines for style in (line.style, *(span.style for span in line.spans))}


def test_a_fleet_is_a_list_with_a_line_for_each_profile(profile: ServingProfile):
    unseen = ServingProfile(metadata={"name": "new", "namespace": "prod", "generation": 1}, spec=profile.spec)
    paused = profile.with_changes(spec=profile.spec.with_changes(suspend=True))
    rows = fleet([profile, unseen, paused])
    hold("fleet", plain(fleet_lines(rows, Namespaces.ONE, Detail.USUAL)))
    hold("fleet-wide", plain(fleet_lines(rows, Namespaces.ALL, Detail.WIDE)))
    assert "green" in styles(fleet_lines(rows, Namespaces.ONE, Detail.USUAL))


def test_a_profile_is_a_page(profile: ServingProfile, run: TuningRun):
    hold("profile", plain(profile_lines(page(profile, run), Detail.USUAL, NOW)))


def test_a_page_shows_the_replicas_with_the_least_headroom_first(profile: ServingProfile, run: TuningRun):
    one = profile.status.replicas[0]
    many = [
        one.with_changes(pod=f"chat-{number}", running=number, headroom_percent=100 - 10 * number)
        for number in range(14)
    ]
    busy = profile.with_changes(status=profile.status.with_changes(replicas=many))
    view = page(busy, run)
    usual, wide = (plain(profile_lines(view, detail, NOW)) for detail in (Detail.USUAL, Detail.WIDE))
    assert usual.index("chat-13 ") < usual.index("chat-12 ")
    assert f"and {14 - MOST_REPLICAS} more with more headroom" in usual
    assert "chat-0 " not in usual
    assert "chat-0 " in wide
    assert "node-1" in wide


def learned(profile: ServingProfile) -> ServingProfile:
    """With what production told: one replica's own knee, one that stands out, the fleet and the traffic."""
    near, far = profile.status.replicas
    replicas = [
        near.with_changes(
            knee_source="Production",
            knee_concurrency=41.2,
            knee_lower=36.0,
            knee_upper=47.1,
            requests_per_second=9.31,
            speed_percent=100,
            message="Its traffic reached 33 requests.",
            ranks=[{"rank": "0", "kneeConcurrency": "20.6", "reached": "16"}],
        ),
        far.with_changes(
            knee_at_least=21.0,
            not_observed="TrafficTooLow",
            outlier="Slow",
            speed_percent=76,
            message="It lies above. Its steps take 31% longer than its peers'.",
        ),
    ]
    scale = ScaleStatus(
        replicas=2,
        needed_replicas=3,
        peak_requests_per_second=31.4,
        capacity_requests_per_second=28.8,
        imbalance_percent=106,
        message="The peak was 31.4 requests/s; 2 replicas carry 28.8: 3 replicas are needed.",
    )
    learned = learn(TrafficHistory(days(1, hits=0.3)), (), NOW - timedelta(hours=2))
    return profile.with_changes(
        status=profile.status.with_changes(replicas=replicas, scale=scale, observed_workload=learned)
    )


def test_what_production_tells_is_on_the_page(profile: ServingProfile, run: TuningRun):
    view = page(learned(profile), run)
    hold("profile-learned", plain(profile_lines(view, Detail.USUAL, NOW)))
    hold("profile-learned-wide", plain(profile_lines(view, Detail.WIDE, NOW)))


def test_what_production_tells_is_explained_in_sentences(profile: ServingProfile):
    hold("production", plain(explained_lines(production_view(learned(profile)), NOW)))
    nothing = profile.with_changes(status=profile.status.with_changes(replicas=[]))
    assert "no serving pod was seen" in plain(explained_lines(production_view(nothing), NOW))


def test_an_outlier_with_much_headroom_is_told_although_its_line_is_not_shown(profile: ServingProfile, run: TuningRun):
    one = profile.status.replicas[0]
    many = [one.with_changes(pod=f"chat-{number}", headroom_percent=number) for number in range(MOST_REPLICAS + 2)]
    many[-1] = many[-1].with_changes(outlier="Slow", message="Look at its clocks.")
    view = page(profile.with_changes(status=profile.status.with_changes(replicas=many)), run)
    assert f"chat-{MOST_REPLICAS + 1} is Slow: Look at its clocks." in plain(profile_lines(view, Detail.USUAL, NOW))


def test_a_learned_workload_is_not_said_to_be_measured_where_the_profile_declares_one(profile: ServingProfile):
    declared, undeclared = learned(profile), learned(profile)
    undeclared = undeclared.with_changes(spec=profile.spec.with_changes(workload=None))
    views = [production_view(each).traffic for each in (declared, undeclared)]
    assert [view is not None and view.measured_with for view in views] == [False, True]


def test_traffic_that_moved_is_told_with_its_age(profile: ServingProfile, run: TuningRun):
    drift = {"since": NOW - timedelta(hours=3), "run": "chat-1", "sizePercent": 140, "message": "Prompts are longer."}
    known = learned(profile)
    moved = known.with_changes(status=known.status.with_changes(traffic_drift=drift))
    assert "3h ago: Prompts are longer." in plain(profile_lines(page(moved, run), Detail.USUAL, NOW))
    assert "Moved 3h ago: Prompts are longer." in plain(explained_lines(production_view(moved), NOW))


@pytest.mark.parametrize(("hours", "told"), [(0.1, "6m ago"), (3, "3h ago"), (72, "3d ago")])
def test_an_age_is_told_in_its_largest_unit(hours: float, told: str):
    assert age((NOW - timedelta(hours=hours)).isoformat(), NOW) == told


def test_what_is_recommended_and_not_in_force_has_its_next_steps(profile: ServingProfile, run: TuningRun):
    engine = profile.status.engine
    assert engine is not None
    status = profile.status.with_changes(engine=engine.with_changes(max_num_seqs=256))
    text = plain(profile_lines(page(profile.with_changes(status=status), run), Detail.USUAL, NOW))
    assert "what would change: kneekeeper diff chat -n prod" in text
    assert "to make it so: kneekeeper approve chat -n prod" in text


def test_limits_that_were_certified_for_other_targets_say_for_which(profile: ServingProfile, run: TuningRun):
    assert page(profile, run).certified_for is None
    slo = profile.spec.slo.with_changes(p99_tpot=0.002)
    changed = profile.with_changes(spec=profile.spec.with_changes(slo=slo))
    text = plain(profile_lines(page(changed, run), Detail.USUAL, NOW))
    assert "TPOT 2ms" in text
    assert re.search(r"limits +72/384, certified for P99 TTFT 2s, TPOT 60ms, the targets of before", text)


def test_runs_are_a_list_and_one_of_them_a_page(run: TuningRun):
    waiting = TuningRun(
        metadata={"name": "chat-next", "namespace": "prod"},
        spec=run.spec,
        status={"step": "Preflight", "waitingFor": "GPU", "startedAt": "2026-01-01T00:20:00Z"},
    )
    rows = run_rows([run, waiting], NOW)
    hold("runs", plain(run_lines(rows, Namespaces.ONE, Detail.USUAL)))
    hold("runs-wide", plain(run_lines(rows, Namespaces.ALL, Detail.WIDE)))
    hold("run", plain(run_summary(run_view(run))))


def test_a_curve_has_its_knee_its_targets_and_its_replicas(profile: ServingProfile, run: TuningRun):
    view = curve_view(run, profile)
    text = curve_text(view, 80, Ink.PLAIN)
    hold("curve", text)
    assert "\x1b" not in text
    assert "\x1b" in curve_text(view, 80, Ink.COLOUR)


def test_a_curve_without_a_profile_or_a_knee_says_so(run: TuningRun):
    fit = run.status.fit
    assert fit is not None
    unknown = fit.with_changes(knee=None, verdict="NoKnee", message="It grew to the end.")
    text = curve_text(curve_view(run.with_changes(status=run.status.with_changes(fit=unknown)), None), 80, Ink.PLAIN)
    assert "no knee (NoKnee): It grew to the end." in text
    assert "▲" not in text


def test_a_latency_far_beyond_its_target_does_not_flatten_the_picture(run: TuningRun):
    stages = [
        stage.with_changes(p99_ttft=100.0)
        if stage.name == max(run.status.stages, key=lambda s: s.users or 0).name
        else stage
        for stage in run.status.stages
    ]
    text = curve_text(curve_view(run.with_changes(status=run.status.with_changes(stages=stages)), None), 80, Ink.PLAIN)
    assert "P99 TTFT goes up to 100s; its axis ends at 3 times the target" in text


def test_a_diff_has_the_lines_of_both_and_who_owns_the_place():
    change = FieldDiff("Deployment/chat", "/spec/args", ["serve", "--max-num-seqs=4"], ["serve", "--max-num-seqs=72"])
    view = DiffView(
        namespace="prod",
        target="Deployment/chat",
        hash="032fe92297",
        live=Limits(4, 2048),
        recommended=Limits(72, 2048),
        improvement="At least 161% more.",
        changes=(change,),
        owner="HelmRelease chat",
        problem="",
    )
    hold("diff", plain(diff_lines(view)))
    assert {"green", "red"} <= styles(diff_lines(view))


def test_a_simulation_tells_p99s_capacity_and_cost():
    answer = Simulation(
        run="chat-1",
        limits=Limits(72, 384),
        present=Limits(4, 2048),
        replicas=4,
        imbalance_percent=15.0,
        requests_per_second=40.0,
        busiest_requests_per_second=11.5,
        holds=True,
        p99_ttft_ms=212.3,
        p99_tpot_ms=19.94,
        p99_e2e_ms=2345.0,
        targets=Targets(2000.0, 60.0, None),
        replica_capacity_requests_per_second=19.3,
        replica_plan_requests_per_second=16.08,
        capacity_requests_per_second=67.1,
        replicas_needed=3,
        gpus=4,
        gpu_hours_per_million_output_tokens=0.463,
        cost_per_hour=10.0,
        cost_per_million_output_tokens=1.16,
        warnings=("The prompts are 4 times as long.",),
    )
    hold("simulation", plain(simulation_lines(answer)))


def test_the_doctor_tells_what_to_do_below_what_is_so():
    checks = [Check("cluster", Health.GOOD, "Kubernetes v1.34.4"), Check("operator", Health.BAD, "none", "Install it.")]
    hold("doctor", plain(check_lines(checks)))


def test_columns_are_as_wide_as_what_stands_in_them():
    columns = (Column[str]("A", lambda each: each), Column[str]("LONG HEADING", lambda each: ""), Column[str]("C", str))
    assert [line.plain for line in listing(columns, ["x", "longer"])] == [
        "A        LONG HEADING   C",
        "x        -              x",
        "longer   -              longer",
    ]
