"""The serving side of a profile's workload in one read: pods, their GPU product, their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kneekeeper.api.serving_profile import Scheme, ServingProfile
from kneekeeper.domain.arguments import DEFAULT_PORT
from kneekeeper.domain.images import last_image, running_image
from kneekeeper.domain.observation import EngineMetrics, PodView, ProductionLoad, Unreachable
from kneekeeper.domain.target import Target, resolve, scheme_of
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.pods import read_pods
from kneekeeper.observe.target import ReadWorkload, joined_product, read_gpu_products


@dataclass(frozen=True)
class Engine:
    """The container that serves, and how it is spoken to."""

    container: str
    port: int
    scheme: Scheme


def engine_of(profile: ServingProfile, workload: ReadWorkload) -> Engine | None:
    """None where no container can be read as vLLM; the plan says why."""
    target = resolve(workload.view, profile.spec.target_ref)
    if not isinstance(target, Target):
        return None
    port = profile.spec.endpoint.port or target.arguments.port or DEFAULT_PORT
    return Engine(target.container.name, port, scheme_of(profile.spec.endpoint, target.arguments))


async def read_serving(clients: Clients, profile: ServingProfile, workload: ReadWorkload) -> ServingPods | None:
    """The serving pods with their GPU product, None where the engine's container is not known."""
    engine = engine_of(profile, workload)
    if engine is None:
        return None
    namespace = workload.view.namespace
    pods = await read_pods(clients.kube, namespace, workload.selector, engine.container)
    return ServingPods(namespace, await read_gpu_products(clients.kube, pods), engine.port, engine.scheme)


def product_of(pods: tuple[PodView, ...], profile: ServingProfile) -> str:
    """The GPU product of the serving pods, or the last one that the profile's status knows."""
    known = profile.status.engine
    return joined_product(pods, known.gpu_product if known is not None else "")


def digest_in(pods: tuple[PodView, ...], profile: ServingProfile, workload: ReadWorkload) -> str:
    """The image digest that the serving pods run, as the profile's plan tells it; "" where it is not known."""
    target = resolve(workload.view, profile.spec.target_ref)
    if not isinstance(target, Target):
        return ""
    return running_image(target.container.image, workload.view, pods, last_image(profile.status)).digest


async def read_metrics(
    clients: Clients, profile: ServingProfile, serving: ServingPods
) -> Mapping[str, EngineMetrics | Unreachable]:
    """By pod name; a source that does not answer makes every pod Unreachable."""
    source = clients.metrics.of(profile.spec.metrics)
    try:
        return await source.engine_metrics(serving)
    except MetricsUnreachable as error:
        return {pod.name: Unreachable(str(error)) for pod in serving.pods}


def load_of(metrics: Mapping[str, EngineMetrics | Unreachable]) -> ProductionLoad | Unreachable:
    """The load of all pods; Unreachable where one pod is not known, since it may be the busy one."""
    known = [m for m in metrics.values() if isinstance(m, EngineMetrics)]
    if not metrics:
        return Unreachable("no serving pod was found")
    if len(known) < len(metrics):
        return next(m for m in metrics.values() if isinstance(m, Unreachable))
    return ProductionLoad(sum(m.running for m in known), sum(m.waiting for m in known))
