"""Kinds of objects that run vLLM: where each holds the two limits, and who may write them.

`model` has the protocol that every kind's module is an adapter of, and the answer; `planning` chooses the
adapter and asks whether somebody else writes the object (`ownership`) or depends on the old value (`scaling`).
An adapter reads values and returns values; nothing here reads or writes a file or a cluster.
"""

from kneekeeper.domain.targets.model import Answer, Asked, Edit, Engine, Objects, Outcome

__all__ = ["Answer", "Asked", "Edit", "Engine", "Objects", "Outcome"]
