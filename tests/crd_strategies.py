"""Specs of the right shape whose rules may or may not hold, for comparing the models with the API server."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.crd_cases import MINIMAL_SPEC

_tokens = st.integers(1, 40)
_lengths = st.fixed_dictionaries(
    {},
    optional={
        "distribution": st.sampled_from(["Fixed", "Uniform", "LogNormal", "Empirical", "Trace"]),
        "value": _tokens,
        "min": _tokens,
        "max": _tokens,
        "mean": st.integers(1, 4),
        "p99": _tokens,
        "bins": st.lists(
            st.fixed_dictionaries({"min": _tokens, "max": _tokens, "weight": _tokens}), min_size=1, max_size=2
        ),
    },
)
_reference = st.fixed_dictionaries({"name": st.just("source")})
_source = st.fixed_dictionaries({}, optional={"configMapRef": _reference, "persistentVolumeClaim": _reference})
_arrivals = st.fixed_dictionaries(
    {},
    optional={
        "process": st.sampled_from(["Poisson", "Gamma", "Constant", "Closed", "Trace"]),
        "burstinessPercent": st.integers(1, 200),
        "users": _tokens,
        "thinkTime": st.sampled_from(["1ms", "2s", "2h"]),
        "traceTime": st.sampled_from(["RealTime", "Rescaled"]),
    },
)
_durations = st.lists(
    st.tuples(
        st.sampled_from(["0", "0.4", "1", "60", "600", "9999999999"]),
        st.sampled_from(["ns", "us", "µs", "ms", "s", "m", "h"]),
    ).map("".join),
    min_size=1,
    max_size=2,
).map("".join)
_slo = st.fixed_dictionaries({}, optional={"p99TTFT": _durations, "p99TPOT": _durations, "p99E2E": _durations})
_bounds = st.fixed_dictionaries({}, optional={"min": _tokens, "max": _tokens})
_good_lengths = st.just({"distribution": "Fixed", "value": 8})
_classes = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b"]),
            "weightPercent": st.sampled_from([40, 50, 60, 100]),
            "promptTokens": _good_lengths,
            "outputTokens": _good_lengths,
        }
    ),
    max_size=3,
)


def _one_part(part: st.SearchStrategy[Any], *path: str) -> st.SearchStrategy[dict[str, Any]]:
    """The smallest spec with one part replaced, so that its rules alone decide."""

    def place(value: Any) -> dict[str, Any]:
        spec: dict[str, Any] = copy.deepcopy(MINIMAL_SPEC)
        node = spec
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
        return spec

    return part.map(place)


SPECS = st.one_of(
    _one_part(_lengths, "workload", "promptTokens"),
    _one_part(_arrivals, "workload", "arrivals"),
    _one_part(_source, "workload", "prompts"),
    _one_part(st.fixed_dictionaries({}, optional={"arrivals": _arrivals, "traceRef": _source}), "workload"),
    _one_part(
        st.fixed_dictionaries({}, optional={"promptTokens": _lengths, "outputTokens": _lengths, "traceRef": _source}),
        "workload",
    ),
    _one_part(_classes, "workload", "classes"),
    _one_part(_slo, "slo"),
    _one_part(_bounds, "parameters", "maxNumSeqs"),
    _one_part(st.lists(st.sampled_from(["Clone", "Passive"]), min_size=1, max_size=3), "probe", "allow"),
    _one_part(_durations, "retune", "minInterval"),
)
