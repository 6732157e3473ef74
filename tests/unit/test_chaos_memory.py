"""The memory that answers reads of lives and soaks: never older than the server's own answer."""

from __future__ import annotations

import orjson

from kneekeeper.kube.client import Call
from kneekeeper.kube.resources import Resource
from tests.chaos.memory import Memory

RUNS = "/apis/kneekeeper.io/v1alpha1/namespaces/n/tuningruns"


def run(name: str, step: str) -> Resource:
    return {"metadata": {"uid": f"uid-{name}", "name": name}, "status": {"step": step}}


def remembered(memory: Memory, path: str, answer: object, query: dict[str, str] | None = None) -> Call:
    call = Call("GET", path, query or {})
    memory.of(call)[f"{call.path}?{call.query}"] = answer if isinstance(answer, str) else orjson.dumps(answer)
    return call


def told(memory: Memory, call: Call) -> object:
    answer = memory.of(call).get(f"{call.path}?{call.query}")
    return orjson.loads(answer) if isinstance(answer, bytes) else answer


def test_a_status_that_was_written_stands_in_the_object_and_in_every_list_that_holds_it():
    memory = Memory()
    one = remembered(memory, f"{RUNS}/a", run("a", "Ramp"))
    other = remembered(memory, f"{RUNS}/b", run("b", "Ramp"))
    chosen = remembered(memory, RUNS, {"items": [run("a", "Ramp"), run("b", "Ramp")]}, {"fieldSelector": "x"})
    everywhere = remembered(memory, "/apis/kneekeeper.io/v1alpha1/tuningruns", {"items": [run("a", "Ramp")]})
    memory.stored(f"{RUNS}/a/status", run("a", "Done"))
    assert told(memory, one) == run("a", "Done")
    assert told(memory, other) == run("b", "Ramp")
    assert told(memory, chosen) == {"items": [run("a", "Done"), run("b", "Ramp")]}
    assert told(memory, everywhere) is None


def test_what_was_not_there_is_asked_for_again_after_any_write():
    memory = Memory()
    missing = remembered(memory, f"{RUNS}/c", "no such run")
    memory.stored(f"{RUNS}/a/status", run("a", "Done"))
    assert told(memory, missing) is None


def test_any_other_write_forgets_the_kind_in_that_namespace_alone():
    memory = Memory()
    here = remembered(memory, f"{RUNS}/a", run("a", "Ramp"))
    pods = remembered(memory, "/api/v1/namespaces/n/pods", {"items": []})
    elsewhere = remembered(memory, RUNS.replace("/n/", "/m/"), {"items": []})
    memory.forget(f"{RUNS}/a")
    assert (told(memory, here), told(memory, pods), told(memory, elsewhere)) == (None, {"items": []}, {"items": []})
