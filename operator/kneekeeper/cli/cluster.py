"""What the commands that work with a cluster share: where it is, and reads of what is there."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kneekeeper.cli.ending import CannotError

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile
    from kneekeeper.api.tuning_run import TuningRun
    from kneekeeper.cli.show.listing import Namespaces
    from kneekeeper.kube.client import Kube
    from kneekeeper.kube.resources import Resource

_Result = TypeVar("_Result")

MOST_TROUBLES = 24
"""Of a command that waits, in a row: two minutes and more without an API server."""


@dataclass(frozen=True)
class Scope:
    """A connection, and where objects are looked for; an empty namespace is all of them."""

    kube: Kube
    namespace: str


def add_cluster_options(parser: argparse.ArgumentParser, *, all_namespaces: str = "") -> None:
    """-n, --context and --kubeconfig as of kubectl. `all_namespaces` is the help of -A, where the command has it."""
    group = parser.add_argument_group("the cluster")
    where = group.add_mutually_exclusive_group() if all_namespaces else group
    where.add_argument("-n", "--namespace", metavar="NAME", help="(default: the context's, as for kubectl)")
    if all_namespaces:
        where.add_argument("-A", "--all-namespaces", action="store_true", help=all_namespaces)
    group.add_argument("--context", metavar="NAME", help="a context of the kubeconfig (default: the current one)")
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="(default: $KUBECONFIG, else a pod's own account, else ~/.kube/config)"
    )


def namespaces_of(arguments: argparse.Namespace) -> Namespaces:
    """Whether -A was given."""
    from kneekeeper.cli.show.listing import Namespaces

    return Namespaces.ALL if arguments.all_namespaces else Namespaces.ONE


def in_cluster(arguments: argparse.Namespace, work: Callable[[Scope], Awaitable[_Result]]) -> _Result:
    """Do it with a connection, as the options say. Raises CannotError, and what `work` raises."""
    return asyncio.run(connected(arguments, work))


async def connected(arguments: argparse.Namespace, work: Callable[[Scope], Awaitable[_Result]]) -> _Result:
    """The same within an event loop."""
    from kneekeeper.kube.errors import Forbidden, KubeError, ServerTrouble
    from kneekeeper.kube.kubeconfig import ClusterChoice, NoClusterError, connect, default_namespace
    from kneekeeper.kube.targets import UnsupportedTarget
    from kneekeeper.observe.own_resources import UnreadableResource

    # What it warns of is told as an error with the next step.
    logging.getLogger("kubernetes").setLevel(logging.ERROR)
    choice = ClusterChoice(arguments.kubeconfig, arguments.context)
    try:
        everywhere = getattr(arguments, "all_namespaces", False)
        namespace = "" if everywhere else arguments.namespace or default_namespace(choice)
        async with await connect(choice) as kube:
            return await work(Scope(kube, namespace))
    except Forbidden as error:
        raise CannotError(f"{error}. `kneekeeper doctor` tells which permissions are missing.") from error
    except ServerTrouble as error:
        raise CannotError(f"{error}. Is the cluster reachable? `kneekeeper doctor` looks.") from error
    except (KubeError, NoClusterError, UnreadableResource, UnsupportedTarget) as error:
        raise CannotError(str(error)) from error


async def read_profile(scope: Scope, name: str) -> ServingProfile:
    """Raises CannotError, KubeErrors and UnreadableResource."""
    from kneekeeper.observe import own_resources

    found = await own_resources.read_profile(scope.kube, scope.namespace, name)
    if found is None:
        raise CannotError(
            f"there is no ServingProfile {name} in namespace {scope.namespace}; `kneekeeper status -A` lists them all"
        )
    return found


async def read_runs(scope: Scope) -> tuple[TuningRun, ...]:
    """All runs of the scope that can be read, oldest first. Raises CannotError and KubeErrors."""
    from kneekeeper.kube.errors import NotFound
    from kneekeeper.kube.resources import TUNING_RUNS
    from kneekeeper.observe.own_resources import age_order, parse_run

    try:
        found = await scope.kube.list(TUNING_RUNS, scope.namespace)
    except NotFound as error:
        raise _no_crds() from error
    return tuple(readable(sorted(found, key=age_order), parse_run))


async def read_profiles(scope: Scope) -> tuple[ServingProfile, ...]:
    """All profiles of the scope that can be read, by namespace and name. Raises CannotError and KubeErrors."""
    from kneekeeper.observe.own_resources import parse_profile

    return tuple(readable(await list_profiles(scope), parse_profile))


async def list_profiles(scope: Scope) -> list[Resource]:
    """The same as they are stored, whether this version can read them or not. Raises CannotError and KubeErrors."""
    from kneekeeper.kube.errors import NotFound
    from kneekeeper.kube.resources import SERVING_PROFILES

    try:
        return await scope.kube.list(SERVING_PROFILES, scope.namespace)
    except NotFound as error:
        raise _no_crds() from error


def readable(found: Iterable[Resource], parse: Callable[[Resource], _Result]) -> Iterator[_Result]:
    """Those that fit this version. Each other one is told on standard error: it hides none of the rest."""
    from kneekeeper.cli.output import print_note
    from kneekeeper.observe.own_resources import UnreadableResource

    for each in found:
        try:
            yield parse(each)
        except UnreadableResource as error:
            print_note(f"left out, of namespace {each['metadata']['namespace']}: {error}")


def _no_crds() -> CannotError:
    return CannotError("this cluster does not know kneekeeper's resources; install the chart kneekeeper-crds")
