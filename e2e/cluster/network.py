"""The cluster's addresses on this machine: node addresses, routes, forwarding, and what keeps traffic inside."""

import ipaddress
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.cluster.commands import find_program, run
from e2e.cluster.errors import ClusterError, CommandFailed
from e2e.cluster.spec import CONTROL_ADDRESS, NODE_RANGE, POD_RANGE, SERVICE_RANGE, Node

LINK = "kk-nodes"
"""A bridge without ports that only holds the nodes' addresses: every kernel that runs pods can make one."""

_OWN_TABLE = "kneekeeper"
_PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_LOWEST_PREFERENCE = "4096"
"""The metric of the blackhole routes: a pod's own route, however it is written, goes first."""


def check_free(routes: Sequence[str]) -> None:
    """Raises `ClusterError` when one of `routes` (destinations in CIDR notation) overlaps the cluster's ranges."""
    for route in routes:
        network = ipaddress.ip_network(route)
        for own in (POD_RANGE, NODE_RANGE, SERVICE_RANGE):
            if network.prefixlen > 0 and network.overlaps(ipaddress.ip_network(own)):
                raise ClusterError(
                    f"this machine already routes {route}, which overlaps the cluster's {own}; stop the cluster or "
                    "VPN that uses it"
                )


def parse_routes(listing: str) -> tuple[str, ...]:
    """The destinations in the output of `ip -json -4 route`."""
    routes: list[dict[str, Any]] = json.loads(listing or "[]")
    return tuple(route["dst"] for route in routes if route["dst"] != "default")


def check_machine() -> None:
    """Raises `ClusterError` without root, or when another cluster or network on this machine is in the way."""
    if os.geteuid() != 0:
        raise ClusterError("a cluster on this machine takes root, for its network and containers; do this with sudo")
    check_free(parse_routes(_route_listing()))
    if ("ip", "kube-proxy") in _tables():
        raise ClusterError("another cluster's kube-proxy has its rules on this machine; stop that cluster")


def set_up(nodes: Sequence[Node]) -> None:
    """Gives the machine the nodes' addresses and routes, and lets it forward between pods only."""
    _ip("link", "add", LINK, "type", "bridge")
    _ip("link", "set", LINK, "up")
    for node in nodes:
        _ip("address", "add", f"{node.address}/32", "dev", LINK)
    # A stray pod or node address must never leave the machine through its default route.
    for own in (POD_RANGE, NODE_RANGE):
        _ip("route", "add", "blackhole", own, "metric", _LOWEST_PREFERENCE)
    # Service addresses exist only in kube-proxy's rules, but a sender on this machine needs a route to send at all.
    _ip("route", "add", SERVICE_RANGE, "dev", LINK, "src", CONTROL_ADDRESS)
    run([find_program("nft"), "-f", "-"], stdin=render_rules())
    _FORWARDING.write_text("1")


def render_rules() -> str:
    """The nftables rules that refuse what a pod sends anywhere but to pods; kube-proxy rewrites Services before."""
    return f"""table ip {_OWN_TABLE} {{
    chain forward {{
        type filter hook forward priority filter; policy accept;
        ip saddr {POD_RANGE} ip daddr != {POD_RANGE} reject with icmp type admin-prohibited
    }}
}}
"""


def forwarding() -> str:
    """The kernel's present forwarding setting, `0` or `1`, to be given back to `tear_down`."""
    return _FORWARDING.read_text().strip()


def tear_down(previous_forwarding: str) -> None:
    """Takes away all that `set_up` and kube-proxy made, as far as it is there."""
    for destination in (SERVICE_RANGE, POD_RANGE, NODE_RANGE):
        kind = () if destination == SERVICE_RANGE else ("blackhole",)
        _ip_if_there("route", "delete", *kind, destination)
    _ip_if_there("link", "delete", LINK)
    tables = _tables()
    for family, name in (("ip", _OWN_TABLE), *_PROXY_TABLES):
        if (family, name) in tables:
            run([find_program("nft"), "delete", "table", family, name])
    # The link of an ended pod stays as long as anything on the machine holds the pod's network namespace.
    for link in pod_links(_route_listing()):
        _ip_if_there("link", "delete", link)
    _FORWARDING.write_text(previous_forwarding)


def pod_links(listing: str) -> tuple[str, ...]:
    """The devices in the output of `ip -json -4 route` over which pods' addresses are reached."""
    routes: list[dict[str, Any]] = json.loads(listing or "[]")
    pods = ipaddress.IPv4Network(POD_RANGE)
    with_link = (route for route in routes if route["dst"] != "default" and "dev" in route)
    return tuple(
        dict.fromkeys(route["dev"] for route in with_link if ipaddress.IPv4Network(route["dst"]).subnet_of(pods))
    )


def _route_listing() -> str:
    return run([find_program("ip"), "-json", "-4", "route"])


def _tables() -> frozenset[tuple[str, str]]:
    listing = json.loads(run([find_program("nft"), "-j", "list", "tables"]))
    return frozenset(
        (entry["table"]["family"], entry["table"]["name"]) for entry in listing["nftables"] if "table" in entry
    )


def _ip(*arguments: str) -> None:
    run([find_program("ip"), *arguments])


def _ip_if_there(*arguments: str) -> None:
    try:
        _ip(*arguments)
    except CommandFailed as failed:
        if not any(gone in str(failed) for gone in ("No such process", "Cannot find device")):
            raise
