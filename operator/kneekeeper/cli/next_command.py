"""The command that a message names as the next step: it works wherever it is pasted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kneekeeper.api.serving_profile import ServingProfile


def next_command(verb: str, profile: ServingProfile) -> str:
    """`kneekeeper VERB` of this profile, with its namespace, in backticks."""
    from kneekeeper.domain.views.key import Key

    key = Key.of(profile.metadata)
    return f"`kneekeeper {verb} {key.name} -n {key.namespace}`"
