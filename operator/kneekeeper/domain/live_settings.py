"""A setting in the live-tuning plugin's own words, and back: the plugin imports nothing of the models."""

from __future__ import annotations

from kneekeeper.api.model import Setting
from kneekeeper.livetune.limits import Limits


def limits_of(setting: Setting) -> Limits:
    """What the plugin is told."""
    return Limits(setting.max_num_seqs, setting.max_num_batched_tokens)


def setting_of(limits: Limits) -> Setting:
    """What a plugin tells."""
    return Setting(max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.max_num_batched_tokens)


def setting_read(limits: Limits) -> Setting | None:
    """Of limits that anybody may have written; None where they are no setting."""
    return setting_of(limits) if min(limits.max_num_seqs, limits.max_num_batched_tokens) >= 1 else None
