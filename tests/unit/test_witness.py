"""What a witness makes of the versions of an object: who changed what, and whether a version was missed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.witness import Change, changes_between, read_versions

ARGS = "/spec/template/spec/containers/0/args"


def version(generation: int, args: list[str], *managers: tuple[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "chat",
            "generation": generation,
            "resourceVersion": str(generation),
            "managedFields": [{"manager": name, "operation": "Update", "time": time} for name, time in managers],
            **metadata,
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "vllm", "args": args}]}}},
        "status": {"replicas": generation},
    }


def test_a_list_of_words_differs_as_a_whole_and_its_writer_is_told():
    first = version(1, ["a"], ("kubectl", "t1"))
    second = version(2, ["a", "b"], ("kubectl", "t1"), ("kneekeeper", "t2"))
    assert changes_between([first, second]) == [Change(frozenset({"kneekeeper"}), (ARGS,))]


def test_a_status_and_what_the_server_keeps_are_no_change():
    first = version(1, ["a"])
    second = version(1, ["a"], ("kubelet", "t2"), annotations={"deployment.kubernetes.io/revision": "3"})
    assert changes_between([first, second]) == []


def test_a_manager_that_only_lost_fields_is_no_writer():
    first = version(1, ["a"], ("kubectl", "t1"))
    second = version(2, ["b"], ("kubectl", "t1"), ("helm", "t9"))
    assert changes_between([first, second])[0].writers == {"helm"}


def test_every_place_of_one_write_is_told():
    first, second = version(1, ["a"]), version(2, ["b"], labels={"a/b": "c"})
    second["spec"]["replicas"] = 3
    [change] = changes_between([first, second])
    assert change.paths == ("/metadata/labels", "/spec/replicas", ARGS)


def test_a_version_that_was_not_seen_is_an_error():
    with pytest.raises(AssertionError, match="1 versions of the spec were not seen"):
        changes_between([version(1, ["a"]), version(3, ["b"])])


def test_a_stream_that_is_cut_off_is_read_as_far_as_it_goes():
    text = "\n".join(json.dumps({"type": "MODIFIED", "object": version(n, [])}, indent=2) for n in (1, 2))
    assert len(read_versions(text)) == 2
    assert len(read_versions(text[:-3])) == 1
    assert read_versions("") == []
