"""The way out that latency targets need, as rules of a NetworkPolicy. Pure.

    LatencyTarget objects + where their names lead --rules--> spec.egress: one rule per target, its addresses, its port

An address is opened with its port alone. A Service is opened by the pods that it selects, in its namespace: policies
see the pod behind it, whose port may be another, so no port is named. One that selects none is not opened: whoever may
write its endpoints would say where sensors of all nodes get out. What is no host of a network (this machine, the link),
or where clouds hand out credentials, is never opened, whoever names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from shared.kube.nodes.latency_targets import LatencyTarget

MOST_ADDRESSES = 32
"""Of one target."""
CLOUDS = tuple(
    ip_network(one)
    for one in (
        "fd00:ec2::/32", "fd20:ce::254/128", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
    )
)  # fmt: skip
"""Where machines of a cloud ask for credentials beside the link: Amazon's and Google's by IPv6, Azure's, Alibaba's,
Oracle's."""

Rule = dict[str, Any]
Selector = Mapping[str, str]
_SERVICE = re.compile(r"([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.svc(\.cluster\.local\.?)?")
"""Under another suffix a name is one of the world's."""


def service_of(target: LatencyTarget) -> tuple[str, str] | None:
    """(namespace, name) of the Service that the target names; None: it names none."""
    found = _SERVICE.fullmatch(target.host.lower())
    return (found[2], found[1]) if found is not None else None


def names_of(targets: Iterable[LatencyTarget]) -> set[str]:
    """Hosts whose addresses must be asked for."""
    return {target.host for target in targets if not target.region and service_of(target) is None}


def rules(
    targets: Iterable[LatencyTarget],
    addresses: Mapping[str, Mapping[str, float]],
    selector_of: Callable[[str, str], Selector | None],
) -> tuple[list[Rule], dict[str, str]]:
    """(rules, why of each target that has none), by ``addresses`` of hosts, with when each was seen last, and the
    selectors of Services. Of a host that nobody has answered for yet nothing is said."""
    found: list[Rule] = []
    problems: dict[str, str] = {}
    for target in sorted(targets, key=lambda one: one.name):
        if target.region:
            continue
        if (service := service_of(target)) is not None:
            if labels := selector_of(*service):
                found.append({"to": [_pods(service[0], labels)]})
            else:
                why = f"there is no Service {'/'.join(service)} with a selector"
                problems[target.name] = f"{why}; no way out is opened for it"
            continue
        if (seen := addresses.get(target.host)) is None:
            continue
        # of more than may be opened the newest, or what leads there now would be closed
        opened = sorted((one for one in seen if is_host(one)), key=lambda one: (-seen[one], one))[:MOST_ADDRESSES]
        if not opened:
            why = f"{min(seen)} is no host of a network" if seen else f"{target.host} leads nowhere"
            problems[target.name] = f"{why}; no way out is opened for it"
            continue
        blocks = [{"ipBlock": {"cidr": cidr}} for cidr in sorted({_cidr(one) for one in opened})]
        found.append({"to": blocks, "ports": [{"protocol": "TCP", "port": target.port}]})
    return found, problems


def is_host(address: str) -> bool:
    """Whether it is one host's, elsewhere, and none that hands out credentials."""
    try:
        found = _address(address)
    except ValueError:
        return False
    return not (
        found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved
    ) and not any(found in cloud for cloud in CLOUDS)


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address of IPv4 that is written as one of IPv6 is that of IPv4."""
    found = ip_address(text)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped if mapped is not None else found


def _cidr(text: str) -> str:
    found = _address(text)
    return f"{found}/{found.max_prefixlen}"


def _pods(namespace: str, labels: Selector) -> Rule:
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": dict(sorted(labels.items()))},
    }
