"""What `kneekeeper doctor` looks at: each check reads, and says what is so and what to do."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from kneekeeper import __version__
from kneekeeper.api.crds import KINDS, definition
from kneekeeper.api.model import GROUP, VERSION, ConditionStatus
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.cli.cluster import Scope
from kneekeeper.cli.next_command import next_command
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.kube.errors import Forbidden, KubeError, NotFound
from kneekeeper.kube.resources import DEPLOYMENTS, SERVING_PROFILES, TUNING_RUNS, Kind, Resource
from kneekeeper.observe.own_resources import UnreadableResource, parse_profile

OLDEST_KUBERNETES = (1, 30)
"""As the charts' kubeVersion."""

OPERATOR_LABELS = "app.kubernetes.io/name=kneekeeper,app.kubernetes.io/component=operator"
_VERSION_LABEL = "app.kubernetes.io/version"

_DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_OWN_ACCESS = Kind(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
_ACCESS = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


class Health(StrEnum):
    """How a check ended."""

    GOOD = "Good"
    NOTICE = "Notice"
    """Works, but somebody should look."""
    BAD = "Bad"
    UNKNOWN = "Unknown"
    """Could not be looked at, mostly for want of a permission."""


@dataclass(frozen=True)
class Check:
    """One finding of the doctor."""

    name: str
    health: Health
    message: str
    next_step: str = ""


@dataclass(frozen=True)
class Permission:
    """One verb on one resource, and which commands or steps need it."""

    verb: str
    group: str
    resource: str
    needed_for: str


PERSON = (
    Permission("get", GROUP, SERVING_PROFILES.plural, "status, explain, diff"),
    Permission("list", GROUP, SERVING_PROFILES.plural, "status"),
    Permission("list", GROUP, TUNING_RUNS.plural, "runs, curve, simulate"),
    Permission("patch", GROUP, SERVING_PROFILES.plural, "retune, approve, pause, resume"),
    Permission("get", "apps", "deployments", "diff"),
)
OPERATOR = (
    Permission("watch", GROUP, SERVING_PROFILES.plural, "seeing profiles"),
    Permission("update", GROUP, f"{SERVING_PROFILES.plural}/status", "telling anything"),
    Permission("create", GROUP, TUNING_RUNS.plural, "starting runs"),
    Permission("create", "", "pods", "starting clones"),
    Permission("create", "batch", "jobs", "starting load agents"),
    Permission("patch", "apps", "deployments", "mode Apply"),
    Permission("create", "events.k8s.io", "events", "events"),
)


async def examine(scope: Scope) -> list[Check]:
    """All checks; what builds on a check that is bad is left out. Raises nothing that the cluster may cause."""
    checks = [await _guarded("cluster", lambda: _cluster(scope))]
    if checks[0].health is Health.BAD:
        return checks
    checks.append(await _guarded("resources", lambda: _resources(scope)))
    if checks[-1].health is Health.BAD:
        return checks
    checks.append(await _guarded("definitions", lambda: _definitions(scope)))
    checks.append(await _guarded("your permissions", lambda: _permissions_of_the_person(scope)))
    operators, check = await _operator(scope)
    checks.append(check)
    if operators:
        checks.append(await _guarded("its permissions", lambda: _permissions_of_the_operator(scope, operators[0])))
    checks += await _profiles(scope)
    return checks


async def _guarded(name: str, look: Callable[[], Awaitable[Check]]) -> Check:
    try:
        return await look()
    except Forbidden as error:
        return Check(name, Health.UNKNOWN, str(error), "Ask for a role that may read it, or somebody who has one.")
    except KubeError as error:
        return Check(name, Health.BAD, str(error), "Look whether the API server is up and the kubeconfig is right.")


async def _cluster(scope: Scope) -> Check:
    return judge_version(await scope.kube.read_json("/version", {}))


def judge_version(answer: Resource) -> Check:
    """Of GET /version."""
    told = str(answer.get("gitVersion") or "")
    found = re.match(r"v(\d+)\.(\d+)", told)
    if found is None:
        return Check("cluster", Health.NOTICE, f"answers, with the version {told!r}", "Look what answers there.")
    if (int(found[1]), int(found[2])) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        return Check(
            "cluster", Health.NOTICE, f"Kubernetes {told}", f"Upgrade it: kneekeeper is tested from {oldest} on."
        )
    return Check("cluster", Health.GOOD, f"Kubernetes {told}")


async def _resources(scope: Scope) -> Check:
    install = "Install the chart kneekeeper-crds of this version."
    try:
        served = await scope.kube.read_json(f"/apis/{GROUP}/{VERSION}", {})
    except NotFound:
        return Check("resources", Health.BAD, f"the cluster does not serve {GROUP}/{VERSION}", install)
    names = {str(each.get("name")) for each in served.get("resources") or []}
    missing = [kind.plural for kind in KINDS if kind.plural not in names]
    if missing:
        return Check("resources", Health.BAD, f"{GROUP}/{VERSION} lacks {', '.join(missing)}", install)
    return Check("resources", Health.GOOD, f"{GROUP}/{VERSION} is served")


async def _definitions(scope: Scope) -> Check:
    names = [f"{kind.plural}.{GROUP}" for kind in KINDS]
    live = [await scope.kube.get(_DEFINITIONS, "", name) for name in names]
    others = [name for name, kind, found in zip(names, KINDS, live, strict=True) if not _alike(definition(kind), found)]
    if others:
        return Check(
            "definitions",
            Health.NOTICE,
            f"{', '.join(others)} differ from those of kneekeeper {__version__}",
            "Upgrade the chart kneekeeper-crds and this command to the operator's version.",
        )
    return Check("definitions", Health.GOOD, f"the CRDs are those of kneekeeper {__version__}")


def _alike(own: Resource, live: Resource) -> bool:
    """Whether both describe the same fields."""

    def schemas(crd: Resource) -> dict[str, Any]:
        return {version["name"]: version.get("schema") for version in crd["spec"]["versions"]}

    return schemas(orjson.loads(orjson.dumps(own))) == schemas(live)


async def _permissions_of_the_person(scope: Scope) -> Check:
    missing = [each for each in PERSON if not await _may(scope, _OWN_ACCESS, each, {})]
    where = f"in namespace {scope.namespace}" if scope.namespace else "in all namespaces"
    return judge_permissions(
        "your permissions", f"all commands work {where}", missing, "Ask for a role with these rules."
    )


async def _permissions_of_the_operator(scope: Scope, deployment: Resource) -> Check:
    namespace = deployment["metadata"]["namespace"]
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default"
    user = {"user": f"system:serviceaccount:{namespace}:{account}"}
    missing = [each for each in OPERATOR if not await _may(scope, _ACCESS, each, user)]
    return judge_permissions(
        "its permissions",
        f"{account} may do what the chart gives it",
        missing,
        "Install the chart with rbac.create, or bind a role with these rules; see charts/kneekeeper.",
    )


async def _may(scope: Scope, review: Kind, permission: Permission, subject: dict[str, str]) -> bool:
    resource, _, part = permission.resource.partition("/")
    asked = {"verb": permission.verb, "group": permission.group, "resource": resource}
    asked |= ({"subresource": part} if part else {}) | ({"namespace": scope.namespace} if scope.namespace else {})
    body = {
        "apiVersion": review.api_version,
        "kind": review.name,
        "spec": {**subject, "resourceAttributes": asked},
    }
    answer = await scope.kube.create(review, "", body)
    return bool((answer.get("status") or {}).get("allowed"))


def judge_permissions(name: str, fine: str, missing: list[Permission], next_step: str) -> Check:
    """Good where none is missing."""
    if not missing:
        return Check(name, Health.GOOD, fine)
    told = "; ".join(
        f"{each.verb} {each.resource}{'.' if each.group else ''}{each.group} (for {each.needed_for})"
        for each in missing
    )
    return Check(name, Health.BAD, f"missing: {told}", next_step)


async def _operator(scope: Scope) -> tuple[list[Resource], Check]:
    """The operator's Deployments, and how they are."""
    try:
        found = await scope.kube.list(DEPLOYMENTS, labels=OPERATOR_LABELS)
    except Forbidden:
        found = []
        if scope.namespace:
            try:
                found = await scope.kube.list(DEPLOYMENTS, scope.namespace, labels=OPERATOR_LABELS)
            except KubeError:
                found = []
        if not found:
            message = "you may not look for its Deployment in all namespaces"
            return [], Check(
                "operator", Health.UNKNOWN, message, "Name its namespace by -n, or ask for a role that may."
            )
    except KubeError as error:
        return [], Check("operator", Health.BAD, str(error), "Look whether the API server is up.")
    return found, judge_operator(found)


def judge_operator(deployments: list[Resource]) -> Check:
    """Whether one runs, and of which version."""
    if not deployments:
        return Check("operator", Health.BAD, "no Deployment has its labels", "Install the chart kneekeeper.")
    names = ", ".join(f"{each['metadata']['name']} in {each['metadata']['namespace']}" for each in deployments)
    asleep = [each for each in deployments if not (each.get("status") or {}).get("readyReplicas")]
    if asleep:
        where, name = asleep[0]["metadata"]["namespace"], asleep[0]["metadata"]["name"]
        return Check(
            "operator", Health.BAD, f"{name} is not ready", f"Look at kubectl -n {where} logs deployment/{name}."
        )
    versions = {(each["metadata"].get("labels") or {}).get(_VERSION_LABEL) for each in deployments}
    others = sorted(str(version) for version in versions if version not in (None, __version__))
    if others:
        return Check(
            "operator",
            Health.NOTICE,
            f"{names} is ready, of version {', '.join(others)}; this command is {__version__}",
            "Use the same version of both.",
        )
    return Check("operator", Health.GOOD, f"{names} is ready")


async def _profiles(scope: Scope) -> list[Check]:
    try:
        found = await scope.kube.list(SERVING_PROFILES, scope.namespace)
    except KubeError as error:
        return [Check("profiles", Health.UNKNOWN, str(error), "Ask for a role that may list servingprofiles.")]
    if not found:
        where = f"namespace {scope.namespace}" if scope.namespace else "the cluster"
        return [
            Check("profiles", Health.NOTICE, f"there are none in {where}", "Declare one; see examples/quickstart.yaml.")
        ]
    return [_profile(each) for each in found]


def _profile(resource: Resource) -> Check:
    name = f"{resource['metadata']['namespace']}/{resource['metadata']['name']}"
    try:
        return judge_profile(name, parse_profile(resource))
    except UnreadableResource as error:
        return Check(name, Health.BAD, str(error), "Use the version of this command that the operator has.")


def judge_profile(name: str, profile: ServingProfile) -> Check:
    """Whether the operator sees it, accepts it, and finds its workload and metrics."""
    status = profile.status
    if status.observed_generation < profile.metadata.get("generation", 0):
        message = "its newest change was not looked at yet"
        return Check(name, Health.NOTICE, message, "Wait a minute; if that stays, look at the operator's log.")
    for type_, health in (
        (ConditionType.ACCEPTED, Health.BAD),
        (ConditionType.TARGET_FOUND, Health.BAD),
        (ConditionType.METRICS_AVAILABLE, Health.NOTICE),
    ):
        condition = find(status.conditions, type_)
        if condition is None:
            return Check(
                name, Health.NOTICE, f"{type_} is not known yet", "Wait a minute; else look at the operator's log."
            )
        if condition.status is not ConditionStatus.TRUE:
            message = f"{type_} is {condition.status}, {condition.reason}: {condition.message}"
            return Check(name, health, message, f"{next_command('status', profile)} tells all of it.")
    return Check(name, Health.GOOD, "accepted; its workload and its metrics are found")
