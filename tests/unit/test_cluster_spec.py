"""A cluster's shape is checked, compared and stored; nodes never share an address, a range or a folder."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import State
from e2e.cluster.record import ClusterRecord, Phase, read_record, write_record
from e2e.cluster.spec import NODE_RANGE, POD_RANGE, SERVICE_RANGE, ClusterSpec, nodes_of

specs = st.builds(
    ClusterSpec,
    nodes=st.integers(1, 8),
    gpus_per_node=st.integers(0, 16),
    gpu_product=st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?", fullmatch=True),
)


@given(specs)
def test_a_spec_survives_json(spec: ClusterSpec):
    assert ClusterSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(specs)
def test_nodes_share_nothing(spec: ClusterSpec):
    nodes = nodes_of(spec, State(Path("/s")))
    for values in (
        {node.name for node in nodes},
        {node.address for node in nodes},
        {node.pod_range for node in nodes},
        {node.socket for node in nodes},
    ):
        assert len(values) == spec.nodes
    for node in nodes:
        assert ipaddress.ip_address(node.address) in ipaddress.ip_network(NODE_RANGE)
        assert ipaddress.IPv4Network(node.pod_range).subnet_of(ipaddress.IPv4Network(POD_RANGE))


def test_the_ranges_do_not_overlap():
    ranges = [ipaddress.ip_network(text) for text in (POD_RANGE, NODE_RANGE, SERVICE_RANGE)]
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"nodes": 0}, "ask for 1 to"),
        ({"nodes": 9}, "ask for 1 to"),
        ({"gpus_per_node": -1}, "ask for 0 or more"),
        ({"gpu_product": "L4 GPU"}, "like NVIDIA-L4"),
        ({"gpu_product": ""}, "like NVIDIA-L4"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_the_next_step(fields: dict[str, int | str], hint: str):
    with pytest.raises(ClusterError, match=hint):
        ClusterSpec.from_json(fields)


def test_a_spec_reads_well():
    assert str(ClusterSpec()) == "1 node"
    assert str(ClusterSpec(nodes=2, gpus_per_node=1)) == "2 nodes, 1 GPU (NVIDIA-L4) each"


@given(specs, st.sampled_from(Phase))
def test_a_record_survives_json(spec: ClusterSpec, phase: Phase):
    record = ClusterRecord(spec, phase, "0", (Path("/var/lib/kubelet"),))
    assert ClusterRecord.from_json(record.to_json()) == record


def test_a_record_is_found_where_it_was_written_and_nowhere_else(tmp_path: Path):
    state = State(tmp_path / "state")
    assert read_record(state) is None
    record = ClusterRecord(ClusterSpec(), Phase.STARTING, "0", ())
    write_record(state, record)
    write_record(state, record.ready())
    assert read_record(state) == record.ready()
    assert [file.name for file in state.root.iterdir()] == ["cluster.json"]


def test_a_state_folder_too_deep_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KNEEKEEPER_STATE", "/tmp/" + "x" * 80)
    with pytest.raises(ClusterError, match="KNEEKEEPER_STATE"):
        State.default()
