"""From a declared workload to what the load agent draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kneekeeper.api.offered_load import Closed, Empirical, Fixed, FromTrace, LogNormal, Open, Replay, Uniform
from kneekeeper.api.run_plan import SourceFacts, TraceFacts
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.stage import Limits, PromptSource, Slo
from kneekeeper.api.workload import LengthBin
from kneekeeper.domain.lengths import longest_tokens, mean_tokens
from kneekeeper.domain.plan.requests import TrafficUnknown, slos_of, traffic_of
from kneekeeper.domain.request_kinds import Timing
from kneekeeper.domain.traces import TraceWindow
from kneekeeper.domain.workload import draw_workload
from tests.unit.test_workload import spec as stage

BINS = [LengthBin(min=10, max=19, weight=3), LengthBin(min=100, max=900, weight=1)]
SOURCES = SourceFacts(
    trace=TraceFacts(requests=1001, duration=500.0, gap_variation=4.0, prompt_tokens=BINS, output_tokens=[BINS[0]])
)
FIXED = {"distribution": "Fixed", "value": 100}
TRACE = {"distribution": "Trace"}
TRACE_REF = {"configMapRef": {"name": "trace"}}
LENGTHS: dict[str, tuple[dict[str, Any], type]] = {
    "fixed": (FIXED, Fixed),
    "uniform": ({"distribution": "Uniform", "min": 10, "max": 30}, Uniform),
    "log-normal": ({"distribution": "LogNormal", "mean": 100, "p99": 400}, LogNormal),
    "empirical": (
        {"distribution": "Empirical", "bins": [{"min": 5, "max": 5, "weight": 1}, {"min": 7, "max": 9, "weight": 3}]},
        Empirical,
    ),
    "trace": (TRACE, FromTrace),
}
ARRIVALS: dict[str, dict[str, Any]] = {
    "constant": {"process": "Constant"},
    "poisson": {"process": "Poisson"},
    "gamma": {"process": "Gamma", "burstinessPercent": 25},
    "closed": {"process": "Closed", "users": 8, "thinkTime": "2s"},
    "trace": {"process": "Trace"},
}


def profile(workload: dict[str, Any], **slo: str) -> ServingProfileSpec:
    return ServingProfileSpec.model_validate(
        {
            "targetRef": {"kind": "Deployment", "name": "chat"},
            "slo": slo or {"p99TTFT": "1s", "p99TPOT": "50ms"},
            "workload": workload,
        }
    )


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("arrivals", ARRIVALS)
def test_every_kind_of_load_offers_exactly_the_declared_rate_and_lengths(arrivals, lengths):
    declared, kind = LENGTHS[lengths]
    workload = {"promptTokens": declared, "outputTokens": declared, "arrivals": ARRIVALS[arrivals]}
    if "trace" in (arrivals, lengths):
        workload["traceRef"] = TRACE_REF
    traffic = traffic_of(profile(workload), None, SOURCES)
    assert isinstance(traffic.prompt_tokens, kind)
    assert traffic.timing is (Timing.REPLAYED if arrivals == "trace" else Timing.DRAWN)
    offered: Closed | Open | Replay
    if arrivals == "trace":
        offered = Replay(rate=7.0)
    elif arrivals == "closed":
        offered = Closed(users=8, think_time_s=2.0)
    else:
        offered = Open(rate=7.0, burstiness=traffic.burstiness)
    rng = np.random.default_rng(1)
    window = TraceWindow(np.cumsum(rng.gamma(0.25, 8.0, 4000)), np.arange(1, 4001), np.arange(4000, 0, -1))
    drawn = draw_workload(
        stage(
            prompt_tokens=traffic.prompt_tokens,
            output_tokens=traffic.output_tokens,
            arrivals=offered,
            limits=Limits(min_requests=1, max_requests=4000, max_duration_s=1),
        ),
        window,
    )
    if lengths == "trace":
        assert drawn.prompt_tokens.tolist() == window.prompt_tokens.tolist()
        assert arrivals == "closed" or drawn.output_tokens.tolist() == window.output_tokens.tolist()
    else:
        assert drawn.prompt_tokens.mean() == pytest.approx(mean_tokens(traffic.prompt_tokens), rel=0.06)
    if arrivals == "closed":
        assert drawn.intended_s.size == 8
        assert drawn.think_s.mean() == pytest.approx(2.0, rel=0.1)
        return
    count = 3999 if arrivals == "trace" else 4000  # a trace begins at 0
    assert count / drawn.intended_s[-1] == pytest.approx(7.0)
    gaps = np.diff(drawn.intended_s)
    variation = {"constant": 0.0, "poisson": 1.0, "gamma": 4.0, "trace": 4.0}[arrivals]
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(variation, rel=0.15, abs=1e-9)


def test_a_histogram_yields_its_bins_in_proportion_to_their_weights():
    traffic = traffic_of(profile({"promptTokens": LENGTHS["empirical"][0], "outputTokens": FIXED}), None)
    limits = Limits(min_requests=1, max_requests=8000, max_duration_s=1)
    drawn = draw_workload(stage(prompt_tokens=traffic.prompt_tokens, limits=limits)).prompt_tokens
    shares = {int(value): float((drawn == value).mean()) for value in np.unique(drawn)}
    assert shares == pytest.approx({5: 0.25, 7: 0.25, 8: 0.25, 9: 0.25}, abs=0.02)


@pytest.mark.parametrize("kind", LENGTHS)
def test_prompt_and_answer_fit_the_models_length_together(kind):
    declared = LENGTHS[kind][0]
    workload = {"promptTokens": declared, "outputTokens": declared}
    if kind == "trace":
        workload["traceRef"] = TRACE_REF
    traffic = traffic_of(profile(workload), 150, SOURCES)
    longest = longest_tokens(traffic.prompt_tokens) + longest_tokens(traffic.output_tokens)
    assert longest <= 151 if kind != "log-normal" else longest <= 2 * 150


def test_the_burstiness_of_a_trace_is_that_of_its_gaps():
    workload = {"promptTokens": FIXED, "outputTokens": FIXED, "arrivals": {"process": "Trace"}, "traceRef": TRACE_REF}
    assert traffic_of(profile(workload), None, SOURCES).burstiness == pytest.approx(0.25)


def test_lengths_of_a_trace_that_was_not_read_are_not_guessed():
    workload = {"promptTokens": TRACE, "outputTokens": TRACE, "traceRef": TRACE_REF}
    with pytest.raises(TrafficUnknown, match="not read yet"):
        traffic_of(profile(workload), None)


def test_a_mix_has_classes_with_their_own_targets_and_the_lengths_of_all_together():
    small, large = {"distribution": "Fixed", "value": 10}, {"distribution": "Fixed", "value": 1010}
    classes = [
        {
            "name": "chat",
            "weightPercent": 90,
            "promptTokens": small,
            "outputTokens": small,
            "slo": {"p99TTFT": "300ms"},
        },
        {"name": "documents", "weightPercent": 10, "promptTokens": large, "outputTokens": small},
    ]
    declared = profile({"classes": classes}, p99TTFT="5s")
    traffic = traffic_of(declared, None)
    assert [kind.slo for kind in traffic.kinds.classes] == [Slo(ttft_s=0.3), Slo(ttft_s=5.0)] == list(slos_of(declared))
    assert mean_tokens(traffic.prompt_tokens) == pytest.approx(0.9 * 10 + 0.1 * 1010)
    limits = Limits(min_requests=1, max_requests=5000, max_duration_s=1)
    drawn = draw_workload(
        stage(
            prompt_tokens=traffic.prompt_tokens,
            output_tokens=traffic.output_tokens,
            classes=traffic.kinds.classes,
            limits=limits,
        )
    )
    assert (drawn.prompt_tokens == np.where(drawn.request_class == 1, 1010, 10)).all()
    assert drawn.request_class.mean() == pytest.approx(0.1, abs=0.02)


def test_real_prompts_share_what_they_share_and_drawn_ones_what_is_declared():
    lengths = {"promptTokens": FIXED, "outputTokens": FIXED, "prefixCacheHitPercent": 40}
    assert traffic_of(profile(lengths), None).kinds.hit_share == pytest.approx(0.4)
    real = traffic_of(profile(lengths | {"prompts": {"configMapRef": {"name": "prompts"}}}), None).kinds
    assert (real.hit_share, real.prompts) == (0.0, PromptSource.MOUNTED)
