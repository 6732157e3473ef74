"""A client that is answered from memory until somebody writes to that kind in that namespace."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from kneekeeper.kube.client import Call, Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import Resource
from tests.integration.patient import PatientKube


@dataclass
class Memory:
    """What reads were answered: all who write share it, so that no read is older than it would be from the server."""

    _answers: dict[tuple[str, str], dict[str, bytes | str]] = field(default_factory=dict)
    writes: int = 0
    """What was asked for before the last of them and is answered after it may be old, and is not remembered."""

    def of(self, call: Call) -> dict[str, bytes | str]:
        """By what was asked; of what is not there, the refusal."""
        return self._answers.setdefault(place_of(call.path), {})

    def stored(self, path: str, answer: Resource) -> None:
        """A status was written, and the object stands so now: in what lists told of it too."""
        self.writes += 1
        object_path = path.removesuffix("/status")
        namespace, plural = place_of(path)
        self._answers.pop(("", plural), None)
        for asked, known in list(self._answers.get((namespace, plural), {}).items()):
            place, _, query = asked.partition("?")
            if place == object_path and query == "{}":
                self._answers[namespace, plural][asked] = orjson.dumps(answer)
            elif place == object_path or isinstance(known, str):
                del self._answers[namespace, plural][asked]
            elif object_path.startswith(f"{place}/"):
                listed = orjson.loads(known)
                listed["items"] = [answer if _uid(each) == _uid(answer) else each for each in listed["items"]]
                self._answers[namespace, plural][asked] = orjson.dumps(listed)

    def forget(self, path: str) -> None:
        """Something was written there."""
        self.writes += 1
        namespace, plural = place_of(path)
        self._answers.pop((namespace, plural), None)
        self._answers.pop(("", plural), None)

    def forget_all(self) -> None:
        self.writes += 1
        self._answers.clear()


def _uid(each: Resource) -> str:
    return str(each["metadata"]["uid"])


def place_of(path: str) -> tuple[str, str]:
    """Namespace, empty where it is in none, and plural."""
    parts = path.strip("/").split("/")
    kinds = parts[2:] if parts[0] == "api" else parts[3:]
    return (kinds[1], kinds[2]) if len(kinds) > 2 and kinds[0] == "namespaces" else ("", kinds[0])


class RememberingKube(Kube):
    """`Kube`, whose watches are played."""

    memory: Memory

    async def _object(self, call: Call) -> Resource:
        if call.method == "GET":
            return await super()._object(call)
        answer = None
        try:
            answer = await super()._object(call)
            return answer
        finally:
            if answer is not None and call.method == "PUT" and call.path.endswith("/status"):
                self.memory.stored(call.path, answer)
            else:
                self.memory.forget(call.path)
            self._has_written(call, answer)

    def _has_written(self, call: Call, answer: Resource | None) -> None:
        """Told of every write, and the answer, None where none came."""

    async def _bytes(self, call: Call) -> bytes:
        if call.method != "GET":
            return await super()._bytes(call)
        known, asked = self.memory.of(call), f"{call.path}?{call.query}"
        answer, writes = known.get(asked), self.memory.writes
        if answer is None:
            try:
                answer = await super()._bytes(call)
            except NotFound as error:
                answer = str(error)
            if self.memory.writes == writes:
                known[asked] = answer
        if isinstance(answer, str):
            raise NotFound(answer)
        return answer


class PlayersKube(RememberingKube, PatientKube):
    """Of everybody but the operator: no fault is meant for them."""
