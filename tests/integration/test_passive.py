"""`probe.allow: [Passive]` against a real API server, a real Prometheus and a simulated engine, each a process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from e2e.cluster import control_plane
from e2e.cluster.packages import ensure_packages
from e2e.passive import CHECKS, HARDWARE, Seen, engines, passive_profile, store_past
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import DEPLOYMENTS, JOBS, PODS, SECRETS, SERVING_PROFILES, Resource
from kneekeeper.observe.own_resources import parse_profile, parse_run
from tests.contract.engine_process import free_port, running_engine
from tests.integration.api_use import RELEASE, ROOT, render_chart
from tests.integration.operator_place import USER, OperatorPlace
from tests.integration.serving import Serving, add_node, eventually

pytestmark = pytest.mark.timeout(1200)

NAMESPACE = "passive"
PODS_OF_CHAT = ("chat-0", "chat-1")
_UP_WITHIN_S = 60.0
_WRITES_WITHIN_S = 20.0


@contextmanager
def prometheus(folder: Path, data: Path, engine_port: int) -> Iterator[str]:
    """The URL of a server on these data that scrapes the engine under the name of each pod."""
    targets = [
        {"targets": [f"127.0.0.1:{engine_port}"], "labels": {"namespace": NAMESPACE, "pod": pod}}
        for pod in PODS_OF_CHAT
    ]
    config = folder / "prometheus.yaml"
    scrapes = [{"job_name": "vllm", "scrape_interval": "5s", "static_configs": targets}]
    config.write_text(json.dumps({"scrape_configs": scrapes}), encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address={url[len('http://') :]}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *flags], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _UP_WITHIN_S
        while not _is_ready(url):
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline, (folder / "prometheus.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready").is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("passive")
    ensure_packages({"prometheus": "prometheus", "promtool": "prometheus"})
    workload = engines("registry.example.com/vllm:1")
    [container] = workload.deployment(NAMESPACE)["spec"]["template"]["spec"]["containers"]
    data = store_past(NAMESPACE, PODS_OF_CHAT, container["args"], folder)
    arguments = [word for word in container["args"] if word not in ("--port", "8000")]
    with (
        control_plane() as server,
        running_engine(HARDWARE, *arguments) as engine,
        prometheus(folder, data, engine.port) as url,
    ):
        place = OperatorPlace(server, server.kubeconfig_of("operator", USER), engine.port, folder)
        place.kubectl("apply", "-f", str(ROOT / "crds"))
        place.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        place.kubectl("create", "namespace", RELEASE)
        place.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(render_chart(RELEASE)))
        with place.operator():
            yield asyncio.run(_lived(place, container, url))


async def _lived(place: OperatorPlace, container: Resource, prometheus_url: str) -> Seen:
    async with await Kube.connect("test", str(place.server.kubeconfig)) as kube:
        await add_node(kube, "full", "GPU-without-room", gpus=0)
        serving = await Serving.create(kube, NAMESPACE, "full", place.engine_port)
        await serving.deploy("chat", replicas=len(PODS_OF_CHAT), containers=[container])
        before = await kube.get(DEPLOYMENTS, NAMESPACE, "chat")
        made = passive_profile(NAMESPACE, prometheus_url)
        made["spec"]["endpoint"] = {"port": place.engine_port}
        await kube.create(SERVING_PROFILES, NAMESPACE, made)

        async def over() -> Resource | None:
            runs = await serving.runs("chat")
            return next((run for run in runs if run.get("status", {}).get("step") == "Done"), None)

        async def recommended() -> bool:
            return await serving.condition("chat", "Recommended") == "Predicted"

        run = await eventually("the run is over", over, within_s=240)
        await eventually("its setting is recommended", recommended)
        await asyncio.sleep(_WRITES_WITHIN_S)
        children = [
            f"{kind.plural}/{child['metadata']['name']}"
            for kind in (PODS, JOBS, SECRETS)
            for child in await kube.list(kind, NAMESPACE)
            if "kneekeeper.io/run" in child["metadata"].get("labels", {})
        ]
        return Seen(
            pods=PODS_OF_CHAT,
            profile=parse_profile(await kube.get(SERVING_PROFILES, NAMESPACE, "chat")),
            run=parse_run(run),
            deployment_before=before,
            deployment=await kube.get(DEPLOYMENTS, NAMESPACE, "chat"),
            children=tuple(children),
        )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_run_of_history_alone(seen: Seen, check: Callable[[Seen], None]):
    check(seen)
