"""What runs in a state folder, and what the machine was like before: written first, removed last."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from e2e.cluster.paths import State
from e2e.cluster.spec import ClusterSpec


class Phase(StrEnum):
    """How far the cluster came."""

    STARTING = "starting"
    READY = "ready"


@dataclass(frozen=True)
class ClusterRecord:
    """Enough to use the cluster again, or to take it down from another process."""

    spec: ClusterSpec
    phase: Phase
    previous_forwarding: str
    """The kernel's ip_forward before the cluster."""
    made_folders: tuple[Path, ...]
    """Folders outside the state that were not there before."""

    @classmethod
    def from_json(cls, text: str) -> "ClusterRecord":
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return cls(
            spec=ClusterSpec.from_json(fields["spec"]),
            phase=Phase(fields["phase"]),
            previous_forwarding=fields["previous_forwarding"],
            made_folders=tuple(Path(folder) for folder in fields["made_folders"]),
        )

    def to_json(self) -> str:
        """Indented JSON, for people who look into the folder."""
        return json.dumps(
            {
                "spec": self.spec.to_json(),
                "phase": self.phase,
                "previous_forwarding": self.previous_forwarding,
                "made_folders": [str(folder) for folder in self.made_folders],
            },
            indent=2,
        )

    def ready(self) -> "ClusterRecord":
        """The same cluster, once it is up."""
        return replace(self, phase=Phase.READY)


def read_record(state: State) -> ClusterRecord | None:
    """What runs in the folder; None when nothing does."""
    return ClusterRecord.from_json(state.record.read_text()) if state.record.exists() else None


def write_record(state: State, record: ClusterRecord) -> None:
    """Replaces the record as a whole, so that a crash leaves the old or the new one."""
    state.root.mkdir(parents=True, exist_ok=True)
    unfinished = state.record.with_suffix(".new")
    unfinished.write_text(record.to_json())
    unfinished.rename(state.record)
