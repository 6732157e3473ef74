"""The cluster's ranges are never taken from someone else, and pods reach only pods."""

from __future__ import annotations

import json
import shutil

import pytest

from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterError
from e2e.cluster.network import check_free, parse_routes, pod_links, render_rules


def test_routes_are_read_without_the_default_one():
    listing = json.dumps([{"dst": "default", "gateway": "192.0.2.1"}, {"dst": "192.0.2.0/24"}, {"dst": "10.1.1.1"}])
    assert parse_routes(listing) == ("192.0.2.0/24", "10.1.1.1")


def test_a_machine_without_routes_has_none():
    assert parse_routes("") == ()


@pytest.mark.parametrize("route", ["10.244.7.0/24", "10.0.0.0/8", "10.245.0.9", "10.96.0.0/12"])
def test_a_route_that_overlaps_is_refused_with_the_next_step(route: str):
    with pytest.raises(ClusterError, match="stop the cluster or VPN"):
        check_free([route])


def test_other_routes_are_no_trouble():
    check_free(["192.168.0.0/16", "172.17.0.0/16", "0.0.0.0/0", "10.1.2.3"])


def test_only_links_that_lead_to_pods_are_taken_away():
    listing = [
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
        {"dst": "10.0.0.0/8", "dev": "tun0"},
        {"type": "blackhole", "dst": "10.244.0.0/16"},
        {"dst": "10.244.0.3", "dev": "veth1"},
        {"dst": "10.245.0.1", "dev": "kk-nodes"},
    ]
    assert pod_links(json.dumps(listing)) == ("veth1",)


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft checks the syntax and is not on this machine")
def test_the_rules_are_valid():
    run(["nft", "--check", "-f", "-"], stdin=render_rules())
