"""What the commands ask of the operator through a real API server: approve, pause, resume, retune."""

from __future__ import annotations

import re
import secrets
from typing import Any

from kneekeeper.cli.cluster import Scope
from kneekeeper.cli.ending import ExitCode
from kneekeeper.cli.retune import POLL_S, follow
from kneekeeper.domain.names import ANNOTATION_APPROVE, ANNOTATION_RETUNE
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import ServerTrouble
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Kind, Resource
from tests.integration.desk import HASH, Desk
from tests.unit.cli import recorded


def test_what_is_in_force_needs_no_approval_and_a_stale_hash_gets_none(desk: Desk):
    code, out, _ = desk.here("approve", "shop")
    assert (code, out) == (ExitCode.DONE, "shop: 72/384 is in force already.\n")
    code, _, err = desk.here("approve", "shop", "--hash", "0123456789")
    assert code == ExitCode.CANNOT
    assert HASH in err
    assert ANNOTATION_APPROVE not in (desk.profile()["metadata"].get("annotations") or {})


def test_an_approval_names_the_recommendation(desk: Desk):
    async def with_other_limits(kube: Kube, limit: int) -> None:
        found = await kube.get(SERVING_PROFILES, desk.namespace, "shop")
        found["status"]["engine"]["maxNumSeqs"] = limit
        await kube.replace_status(SERVING_PROFILES, desk.namespace, "shop", found)

    desk.asks(lambda kube: with_other_limits(kube, 256))
    try:
        code, out, _ = desk.here("approve", "shop", "--hash", HASH)
        assert code == ExitCode.DONE
        assert "approved 72/384 for Deployment chat" in out
        assert desk.profile()["metadata"]["annotations"][ANNOTATION_APPROVE] == HASH
    finally:
        desk.asks(lambda kube: with_other_limits(kube, 72))


def test_a_profile_is_paused_and_goes_on(desk: Desk):
    assert desk.here("pause", "shop")[:2] == (ExitCode.DONE, "shop: paused.\n")
    assert desk.profile()["spec"]["suspend"] is True
    code, _, err = desk.here("retune", "shop")
    assert code == ExitCode.CANNOT
    assert "kneekeeper resume shop" in err
    code, out, err = desk.here("resume", "shop", "nobody", "chat")
    assert code == ExitCode.CANNOT
    assert "nobody" in err
    assert out.splitlines() == ["shop: goes on.", "chat: not paused already."]
    assert desk.profile()["spec"]["suspend"] is False


def test_a_run_is_asked_for_by_the_annotation_that_the_operator_looks_at(desk: Desk):
    assert desk.here("retune", "shop")[0] == ExitCode.DONE
    assert re.match(r"\d{4}-\d\d-\d\dT", desk.profile()["metadata"]["annotations"][ANNOTATION_RETUNE])


class Shaky(Kube):
    """An API server that is overloaded now and then."""

    _calls = 0

    async def list(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Resource]:
        self._calls += 1
        if self._calls % 3 == 0:
            raise ServerTrouble("too many requests", 0.1)
        return await super().list(kind, namespace, labels=labels)


def test_a_new_run_is_followed_to_its_end_also_through_troubles(desk: Desk):
    name = f"story-{secrets.token_hex(3)}"

    async def story(kube: Kube) -> int:
        """What the operator does, a step at each look."""
        stages = recorded.objects()[1]["status"]["stages"]

        async def start() -> None:
            body = recorded.objects()[1]
            made = {"apiVersion": body["apiVersion"], "kind": body["kind"], "spec": {"profileName": "chat"}}
            await kube.create(TUNING_RUNS, desk.namespace, {**made, "metadata": {"name": name}})

        async def tell(**status: Any) -> None:
            found = await kube.get(TUNING_RUNS, desk.namespace, name)
            await kube.replace_status(TUNING_RUNS, desk.namespace, name, {**found, "status": status})

        steps = iter(
            (
                start,
                lambda: tell(step="Ramp", stages=stages[:1]),
                lambda: tell(step="Ramp", stages=stages[:3]),
                lambda: tell(step="Done", stages=stages[:3], outcome="Failed", finishedAt="2026-01-01T00:00:00Z"),
            )
        )

        async def sleep(seconds: float) -> None:
            if seconds == POLL_S:
                await next(steps)()

        async with await Shaky.connect("test", desk.kubeconfig) as shaky:
            return await follow(Scope(shaky, desk.namespace), "chat", {"chat-1"}, sleep)

    try:
        assert desk.asks(story) == ExitCode.NO
    finally:
        desk.asks(lambda kube: kube.delete(TUNING_RUNS, desk.namespace, name))
    lines = desk.capsys.readouterr().out.splitlines()
    stages = [stage["name"] for stage in recorded.objects()[1]["status"]["stages"][:3]]
    assert lines[0].startswith("Waits for the operator to start a run")
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  ")] == stages
    assert lines[-1] == f"{name} ended: Failed."
