"""Which image the serving pods run: by its digest, since a tag may be moved and a registry mirrored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.domain.observation import PodView, WorkloadView

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")


@dataclass(frozen=True)
class RunningImage:
    """A reference as a pod template declares it, and the digest that pods run under it ("" while not known)."""

    reference: str
    digest: str

    @property
    def identity(self) -> str:
        """Equal for two engines that run the same image, as far as that is known."""
        return self.digest or self.reference


def digest_of(image_id: str) -> str:
    """From a container's `imageID` or a pinned reference, whatever registry stands before it; "" without one."""
    found = _DIGEST.search(image_id)
    return found[0] if found else ""


def last_image(status: ServingProfileStatus) -> RunningImage | None:
    """The one that the profile's status knows."""
    engine = status.engine
    return None if engine is None else RunningImage(engine.image, engine.image_digest)


def running_image(
    declared: str, workload: WorkloadView, pods: Iterable[PodView] | None, last: RunningImage | None
) -> RunningImage:
    """What the pods of the present template run.

    As long as pods disagree (a moved tag on its way to all of them), or none of a new template has its image
    yet, the last known one stands: a rollout changes the answer once, at a time, and never back. Pods are told
    apart by their own reference until the rollout is over; then they all are of the present template, also
    where an admission webhook rewrote the reference.
    """
    pinned = digest_of(declared)
    if pinned:
        return RunningImage(declared, pinned)
    seen = Counter(
        digest
        for pod in pods or ()
        if not pod.deleting and (pod.image == declared or workload.rolled_out)
        for digest in [digest_of(pod.image_id)]
        if digest
    )
    if len(seen) == 1:
        return RunningImage(declared, next(iter(seen)))
    if last is not None and last.digest and (not seen or last.reference == declared):
        return last
    most = max(seen.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return RunningImage(declared, most[0])
