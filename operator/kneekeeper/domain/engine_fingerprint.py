"""What a setting depends on, as one short text whose parts tell which of it changed.

The two limits are left out: the operator's own rewrite never changes it. vLLM's version is part of the image,
whose digest stands here; an image that is known by its tag alone is known no better than that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

from kneekeeper.api.serving_profile import RetuneTrigger
from kneekeeper.domain.arguments import entrypoint_of_image, fingerprint_arguments
from kneekeeper.domain.observation import ContainerView

_MODEL_FLAG = frozenset({"--model"})
_DIGITS = 12  # of each part: four of them fit a status field


@dataclass(frozen=True)
class EngineFingerprint:
    """A hash of each thing that a setting depends on."""

    image: str
    model: str
    arguments: str
    hardware: str

    def __str__(self) -> str:
        return "-".join((self.image, self.model, self.arguments, self.hardware))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for a text of another form, as an earlier version wrote it."""
        parts = text.split("-")
        return cls(*parts) if len(parts) == 4 and all(len(part) == _DIGITS for part in parts) else None

    def changes_since(self, before: Self) -> tuple[RetuneTrigger, ...]:
        """Each part that differs, under the name of the trigger that it is."""
        pairs = (
            (RetuneTrigger.IMAGE, self.image, before.image),
            (RetuneTrigger.MODEL, self.model, before.model),
            (RetuneTrigger.HARDWARE, self.hardware, before.hardware),
            (RetuneTrigger.ARGUMENTS, self.arguments, before.arguments),
        )
        return tuple(trigger for trigger, now, then in pairs if now != then)


def engine_fingerprint(container: ContainerView, model: str, image: str, gpu_product: str) -> EngineFingerprint:
    """Of the engine that `container` runs; `image` is its identity, a digest where one is known."""
    arguments = fingerprint_arguments(
        container.words.command,
        container.words.args,
        container.env,
        entrypoint=entrypoint_of_image(container.image),
        leave_out=_MODEL_FLAG,
        files=container.files,
    )
    return EngineFingerprint(
        image=_hash(image),
        model=_hash(model),
        arguments=arguments[:_DIGITS],
        hardware=_hash(f"{gpu_product}\0{container.gpus}"),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
