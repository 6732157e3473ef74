"""Whatever the API server holds as a profile: it is read or refused with its fields, and then every tick decides.

`python -m tests.fuzz.resources [-max_total_time=60 …]`; options are those of libFuzzer. An input is JSON for parts of
a profile's spec, which are laid over a spec that is good.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import atheris

from tests.fuzz import corpus_arguments

with atheris.instrument_imports(include=["kneekeeper.api", "kneekeeper.domain.plan", "kneekeeper.observe"]):
    from kneekeeper.api.profile_status import ServingProfileStatus
    from kneekeeper.domain.plan import profile as profile_plan
    from kneekeeper.observe.own_resources import UnreadableResource, parse_profile
    from tests.unit.plan.circumstances import PROFILE_SPEC
    from tests.unit.plan.cluster import Cluster

SEEDS = tuple(
    json.dumps(part).encode()
    for part in (
        {"slo": {"p99TTFT": "1h", "availabilityPercent": 99}, "suspend": True},
        {"workload": {"arrivals": {"process": "Closed", "users": 4, "thinkTime": "1s"}}},
        {"workload": {"classes": [{"name": "a", "weightPercent": 100, "promptTokens": {"value": 1}}]}},
        {"probe": {"allow": ["BorrowReplica", "Clone"], "window": {"schedule": "0 3 * * *", "duration": "2h"}}},
        {"updatePolicy": {"mode": "Apply", "method": "Env"}, "retune": {"on": ["Traffic"], "minInterval": "6h"}},
        {"endpoint": {"rootPath": "/a", "scheme": "https", "serverName": "x"}, "deletionPolicy": "Restore"},
        {"metrics": {"prometheusRef": {"url": "http://prometheus:9090"}, "matchLabels": {"a": '"} or vector(1) #'}}},
    )
)
WORDS = (
    *('"slo"', '"p99TTFT"', '"workload"', '"arrivals"', '"process"', '"Gamma"', '"probe"', '"window"', '"schedule"'),
    *('"schedules"', '"parameters"', '"maxNumSeqs"', '"retune"', '"metrics"', '"9999999999h"', "1e308", "-1", "null"),
)


def check(data: bytes) -> None:
    """Read one profile and decide on it. Raises AssertionError where a promise is broken."""
    try:
        parts = json.loads(data)
    except ValueError:
        return
    if not isinstance(parts, dict):
        return
    metadata: dict[str, Any] = {"name": "chat", "namespace": "prod", "uid": "uid-profile", "generation": 1}
    try:
        profile = parse_profile({"metadata": metadata, "spec": PROFILE_SPEC | parts})
    except UnreadableResource:
        return
    world = Cluster()
    world.profile = profile
    decision = profile_plan.decide(world.observe_profile())
    ServingProfileStatus.model_validate(decision.status.to_resource())
    assert decision.next_tick_s > 0


def main() -> None:
    atheris.Setup([*sys.argv, *corpus_arguments("resources", SEEDS, WORDS)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
