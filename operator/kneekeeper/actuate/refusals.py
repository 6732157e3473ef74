"""Why a workload's pod cannot be cloned without harm."""

from __future__ import annotations

from enum import StrEnum


class RefusalReason(StrEnum):
    SINGLE_WRITER_VOLUME = "SingleWriterVolume"
    SHARED_DEVICE = "SharedDevice"
    CONTAINER_GONE = "ContainerGone"


class CloneRefused(Exception):
    """The clone is not made; `reason` is a condition's reason, the message names the next step."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
