"""Words that a controller makes, known again: it may order and spell the same arguments in a way of its own.

A rollout is followed by comparing words. What a controller made of the fields that were written means the same as
the words that were foreseen, and is taken for them; what means something else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.arguments import entrypoint_of_image, fingerprint_arguments
from kneekeeper.domain.observation import ContainerView, PodView, WorkloadView
from kneekeeper.domain.target import present_setting
from kneekeeper.domain.targets.fields import by_object, stand_as, stand_as_before
from kneekeeper.domain.targets.model import Objects


def recognised_workload(view: WorkloadView, status: ServingProfileStatus) -> WorkloadView:
    """The workload with the words that the profile's status knows for what its object declares.

    While the controller has not yet made them of the written fields, no replica counts as updated.
    """
    if view.source is None or status.engine is None or not _wrote_fields(status):
        return view
    name, known = status.engine.container, _known(status)
    container = next((c for c in view.containers if c.name == name), None)
    if container is None or not known:
        return view
    made = _as_known(container, container.words, known)
    declared = _declared(view.source, view.namespace, status) or made
    containers = tuple(replace(c, words=declared) if c.name == name else c for c in view.containers)
    settled = made == declared
    return replace(view, containers=containers, updated_replicas=view.updated_replicas if settled else 0)


def recognised_pods(pods: Iterable[PodView], view: WorkloadView, status: ServingProfileStatus) -> tuple[PodView, ...]:
    """The pods in the same way; their variables are taken for the workload's."""
    pods, known = tuple(pods), _known(status)
    name = status.engine.container if status.engine is not None else ""
    container = next((c for c in view.containers if c.name == name), None)
    if container is None or not _wrote_fields(status):
        return pods
    return tuple(replace(pod, words=_as_known(container, pod.words, known)) for pod in pods)


def means_the_same(container: ContainerView, words: ContainerWords, others: ContainerWords) -> bool:
    """Whether vLLM would read both alike, the two limits included."""
    if words == others:
        return True
    one, other = replace(container, words=words), replace(container, words=others)
    setting = present_setting(one)
    return setting is not None and setting == present_setting(other) and _rest(one) == _rest(other)


def _rest(container: ContainerView) -> str:
    return fingerprint_arguments(
        container.words.command,
        container.words.args,
        container.env,
        entrypoint=entrypoint_of_image(container.image),
        files=container.files,
    )


def _as_known(container: ContainerView, words: ContainerWords, known: Iterable[ContainerWords]) -> ContainerWords:
    return next((each for each in known if means_the_same(container, words, each)), words)


def _wrote_fields(status: ServingProfileStatus) -> bool:
    return any(change is not None and change.fields for change in (status.rollout, status.watched, status.applied))


def _known(status: ServingProfileStatus) -> list[ContainerWords]:
    changes = [change for change in (status.rollout, status.watched, status.applied) if change is not None]
    return [words for change in changes for words in (change.after, change.before)]


def _declared(source: Objects, namespace: str, status: ServingProfileStatus) -> ContainerWords | None:
    """The words of the rollout under way that the objects' fields stand for; None where they stand for others.

    Of several objects, all must be written: until then the old words stand, and the rest is written too.
    """
    rollout = status.rollout
    if rollout is None or not rollout.fields:
        return None
    new: list[bool] = []
    old: list[bool] = []
    for changes in by_object(rollout.fields):
        found = source.find(changes[0].kind, changes[0].name, namespace)
        if found is None:
            return None
        new.append(stand_as(found.value, changes))
        old.append(stand_as_before(found.value, changes))
    if all(new):
        return rollout.after
    each_is_one = all(one or other for one, other in zip(new, old, strict=True))
    return rollout.before if each_is_one else None
