"""The way out that latency targets need, as rules of a NetworkPolicy. Pure.

    LatencyTarget objects + where their names lead --rules--> spec.egress: one rule per target, its addresses, its port

An address is opened with its port alone. A Service is opened by the pods that it selects, in its namespace: policies
see the pod behind it, whose port may be another, so no port is named. What is no host of a network (this machine, the
link, where clouds hand out credentials) is never opened, whoever names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from shared.kube.latency_targets import LatencyTarget

MOST_ADDRESSES = 32
"""Of one target."""

Rule = dict[str, Any]
Selector = Mapping[str, str]
_SERVICE = re.compile(r"([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.svc(\..*)?")


def service_of(target: LatencyTarget) -> tuple[str, str] | None:
    """(namespace, name) of the Service that the target names; None: it names none."""
    found = _SERVICE.fullmatch(target.host)
    return (found[2], found[1]) if found is not None else None


def names_of(targets: Iterable[LatencyTarget], selector_of: Callable[[str, str], Selector | None]) -> set[str]:
    """Hosts whose addresses must be asked for."""
    return {target.host for target in targets if not target.region and not _selected(target, selector_of)}


def rules(
    targets: Iterable[LatencyTarget],
    addresses: Mapping[str, Collection[str]],
    selector_of: Callable[[str, str], Selector | None],
) -> tuple[list[Rule], dict[str, str]]:
    """(rules, why of each target that has none), by ``addresses`` of hosts and the selectors of Services."""
    found: list[Rule] = []
    problems: dict[str, str] = {}
    for target in sorted(targets, key=lambda one: one.name):
        if target.region:
            continue
        if (pods := _selected(target, selector_of)) is not None:
            found.append({"to": [pods]})
            continue
        known = sorted(set(addresses.get(target.host, ())))
        opened = [one for one in known if is_host(one)][:MOST_ADDRESSES]
        if not opened:
            why = f"{known[0]} is no host of a network" if known else f"{target.host} leads nowhere"
            problems[target.name] = f"{why}; no way out is opened for it"
            continue
        blocks = [{"ipBlock": {"cidr": f"{one}/{128 if ':' in one else 32}"}} for one in opened]
        found.append({"to": blocks, "ports": [{"protocol": "TCP", "port": target.port}]})
    return found, problems


def is_host(address: str) -> bool:
    """Whether it is one host's, elsewhere."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped if mapped is not None else found
    return not (
        found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved
    )


def _selected(target: LatencyTarget, selector_of: Callable[[str, str], Selector | None]) -> Rule | None:
    """The pods behind the Service that the target names; None: it names none, or one that selects none."""
    service = service_of(target)
    labels = selector_of(*service) if service is not None else None
    if service is None or not labels:
        return None
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": service[0]}},
        "podSelector": {"matchLabels": dict(sorted(labels.items()))},
    }
