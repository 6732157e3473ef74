"""What the requests of a stage under the declared load are, beside their lengths and their rate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kneekeeper.api.stage import PromptSource, StageClass


class Timing(Enum):
    """Where the send times of open loops come from."""

    DRAWN = auto()
    REPLAYED = auto()
    """From the load agent's trace, stretched to the rate."""


@dataclass(frozen=True)
class RequestKinds:
    """What the requests of a stage under the declared load are, beside their lengths."""

    classes: tuple[StageClass, ...] = ()
    hit_share: float = 0.0
    """Share of prompt tokens that the prefix cache is to serve."""
    prompts: PromptSource = PromptSource.RANDOM


ALIKE = RequestKinds()
"""Requests of one kind with drawn prompts that share nothing."""
