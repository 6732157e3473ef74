"""A pod that runs, as the plans see it."""

from __future__ import annotations

import hashlib
from datetime import datetime

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.observation import PodPhase, PodView


def pod_view(name: str, words: ContainerWords, now: datetime, gpu_product: str) -> PodView:
    return PodView(
        name=name,
        uid=f"uid-{name}",
        node="node-1",
        ip="10.244.0.9",
        phase=PodPhase.RUNNING,
        ready=True,
        deleting=False,
        restarts=0,
        waiting_reason="",
        exit_code=None,
        unschedulable_message="",
        created_at=now,
        words=words,
        image_id="",
        log_tail="",
        gpu_product=gpu_product,
    )


def digest_behind(image: str) -> str:
    """What a registry would answer for this reference."""
    return f"sha256:{hashlib.sha256(image.encode()).hexdigest()}"
