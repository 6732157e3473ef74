"""An engine that speaks HTTPS is measured over HTTPS, and held to the certificate that the profile declares."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.serving_profile import Scheme
from kneekeeper.api.stage import Tls
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain.names import AGENT_CA_FILE
from tests.unit.plan.circumstances import ORIGINAL_ARGS
from tests.unit.plan.world import PROFILE_SPEC, World

CERTIFIED = ["--ssl-certfile=/tls/tls.crt", "--ssl-keyfile=/tls/tls.key"]


def first_stage(endpoint: dict[str, Any], *, args: list[str] | None = None) -> World:
    world = World(spec=PROFILE_SPEC | {"endpoint": endpoint}, args=[*ORIGINAL_ARGS, *(args or [])])
    world.run_until(lambda seen: bool(seen.ordered))
    return world


@pytest.mark.parametrize(
    ("endpoint", "args", "tls"),
    [
        ({}, [], None),
        ({"caBundleRef": {"name": "ca"}, "serverName": "chat.prod.svc"}, [], None),
        ({"scheme": "https"}, [], Tls()),
        ({}, CERTIFIED, Tls()),
        (
            {"caBundleRef": {"name": "ca"}, "serverName": "chat.prod.svc"},
            CERTIFIED,
            Tls(server_name="chat.prod.svc", ca_file=AGENT_CA_FILE),
        ),
        ({"scheme": "http"}, CERTIFIED, None),
    ],
    ids=["plain", "nothing to prove", "declared", "read from the arguments", "held to a name", "declared otherwise"],
)
def test_stages_speak_as_the_profile_declares_else_as_the_engines_arguments_say(
    endpoint: dict[str, Any], args: list[str], tls: Tls | None
):
    world = first_stage(endpoint, args=args)
    assert world.ordered[0].target.tls == tls
    plan = world.last_run.status.plan
    assert plan is not None
    assert plan.scheme == (Scheme.HTTP if tls is None else Scheme.HTTPS)


def test_an_engine_that_is_not_reached_over_https_names_its_certificate():
    spec = PROFILE_SPEC | {"endpoint": {"scheme": "https"}}
    world = World(spec=spec, clone_reachable=False)
    world.run_until(lambda seen: bool(seen.runs) and seen.last_run.status.step == RunStep.DONE)
    status = world.last_run.status
    assert (status.outcome, status.cause) == (RunOutcome.FAILED, "CloneUnreachable")
    assert "spec.endpoint.caBundleRef" in status.message
