"""The numbers behind one node's rejection: what a rule counted there, and what it compares that with.

For people who ask why; computed for the few nodes that are shown, by reading the prepared rules and the state, and
never by judging again: the verdict is ``filtering``'s. It refuses to list everything: ``EXAMPLES`` names stand for all,
whose number is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np
from msgspec import Struct

from shared.model.cluster_objects import PersistentVolume, VolumeClaim
from shared.model.constraints import SelectorTerm
from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.cycle.prefilter import Prefiltered
from shared.scheduling.filters.interpod_affinity import AFFINITY, InterPodAffinity
from shared.scheduling.filters.topology_spread import TopologySpread
from shared.scheduling.filters.volume_limits import volumes_of
from shared.scheduling.filters.volume_restrictions import ONCE_PER_POD
from shared.scheduling.framework import Rejection
from shared.scheduling.matching.domains import codes_or_absent
from shared.scheduling.matching.pod_terms import means, own_matcher
from shared.scheduling.matching.tolerance import PREFER_NO_SCHEDULE, tolerated
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import ABSENT

EXAMPLES = 3
SCANNED = 2000
"""Pods looked at for examples: a zone may hold tens of thousands."""


class RuleNumbers(Struct, frozen=True):
    """``text`` for people; ``values`` the same for programs."""

    text: str
    values: dict[str, int | str]


def numbers_of(
    state: ClusterState, prefiltered: Prefiltered, rejection: Rejection, row: int
) -> tuple[RuleNumbers, ...]:
    """What the rejecting rule counted on the node of ``row``; nothing where the reasons say it all."""
    explain = _RULES.get(rejection.plugin)
    found = tuple(explain(state, prefiltered, rejection, row)) if explain is not None else ()
    return found or tuple(_nominated(state, prefiltered.pod, row))


def _nominated(state: ClusterState, pod: Pod, row: int) -> Iterator[RuleNumbers]:
    """Pods that are to come to the node and go first: they may be the reason though nothing stands in the way yet."""
    names = [other.key for other in state.nominated_on(state.table.names[row], pod)]
    if names:
        yield RuleNumbers(f"{_names(names, len(names))} nominated there", {"nominated": len(names), "pod": names[0]})


Rule = TypeVar("Rule")
Explain = Callable[[ClusterState, Prefiltered, Rejection, int], Iterable[RuleNumbers]]


def _taints(state: ClusterState, prefiltered: Prefiltered, _: Rejection, row: int) -> Iterator[RuleNumbers]:
    node = state.table.nodes[row]
    for taint in node.taints if node is not None else ():
        if taint.effect != PREFER_NO_SCHEDULE and not tolerated(prefiltered.pod.pod_class.tolerations, taint):
            text = f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
            yield RuleNumbers(f"taint {text}", {"taint": text})


def _selector(state: ClusterState, prefiltered: Prefiltered, _: Rejection, row: int) -> Iterator[RuleNumbers]:
    node = state.table.nodes[row]
    labels = node.labels if node is not None else {}
    for key, wanted in prefiltered.pod.pod_class.node_selector:
        has = labels.get(key)
        if has != wanted:
            shown = f"{key}={has}" if has is not None else f"no label {key}"
            yield RuleNumbers(f"{shown}, asked {key}={wanted}", {"key": key, "asked": wanted, "has": has or ""})


def _ports(state: ClusterState, prefiltered: Prefiltered, _: Rejection, row: int) -> Iterator[RuleNumbers]:
    for port in prefiltered.pod.pod_class.host_ports:
        holders = [
            pod.key
            for pod in state.index.pods_on(state.table.names[row])
            if any((p.protocol, p.port) == (port.protocol, port.port) for p in pod.pod_class.host_ports)
        ]
        if holders:
            text = f"{port.protocol} {port.port} is held by {_names(holders, len(holders))}"
            yield RuleNumbers(text, {"port": port.port, "protocol": port.protocol, "pod": holders[0]})


def _spread(state: ClusterState, prefiltered: Prefiltered, _: Rejection, row: int) -> Iterator[RuleNumbers]:
    rule, table = _prepared(prefiltered, TopologySpread), state.table
    for spread in rule.spreads if rule is not None else ():
        key, skew = spread.constraint.topology_key, spread.constraint.max_skew
        code = codes_or_absent(table, key)[row]
        if code == ABSENT:
            yield RuleNumbers(f"no label {key}", {"key": key})
            continue
        count, allowed = int(spread.pods[code]), spread.highest_fitting()
        if count <= allowed:
            continue
        domains = int(spread.domains.sum())
        least = allowed - skew + spread.self_match
        value = _label(state, row, key)
        text = f"{key}={value}: {count} matching pods, {least} in the emptiest of {domains} domains, maxSkew {skew}"
        if domains < spread.constraint.min_domains:
            text = f"{key}={value}: {count} matching pods, maxSkew {skew}, and {domains} domains of the "
            text += f"{spread.constraint.min_domains} asked for, so the emptiest counts as 0"
        values: dict[str, int | str] = {"key": key, "value": value, "count": count, "least": least, "max_skew": skew}
        yield RuleNumbers(f"{text}; {count - allowed} too many", {**values, "too_many": count - allowed})


def _interpod(state: ClusterState, prefiltered: Prefiltered, rejection: Rejection, row: int) -> Iterator[RuleNumbers]:
    rule, pod = _prepared(prefiltered, InterPodAffinity), prefiltered.pod
    if rule is None:
        return
    if AFFINITY in rejection.reasons:
        for key, counts in rule.affinity.items():
            code = codes_or_absent(state.table, key)[row]
            if code == ABSENT:
                yield RuleNumbers(f"no label {key}", {"key": key})
            elif not counts[code]:
                value = _label(state, row, key)
                elsewhere, near = int(counts.sum()), "no pod that it must be near runs"
                if elsewhere:
                    near = f"none of the {elsewhere} pods that it must be near"
                numbers: dict[str, int | str] = {"key": key, "value": value, "count": 0, "elsewhere": elsewhere}
                yield RuleNumbers(f"{key}={value}: {near}", numbers)
        return
    labels = state.namespaces.get(pod.namespace, {})
    for term in (pod.relations or NO_RELATIONS).anti_affinity:
        matcher = own_matcher((term,), state.namespaces)
        there = _in_domain(state, row, term.topology_key)
        found = [other.key for other in there if matcher.matches(other.namespace, other.labels)]
        yield from _avoided(state, row, term.topology_key, found, "that it must not be near")
    by_key: dict[str, list[str]] = {}
    for key in rule.existing:
        for other in _in_domain(state, row, key):
            terms = (other.relations or NO_RELATIONS).anti_affinity
            if any(term.topology_key == key and means(term, pod, labels) for term in terms):
                by_key.setdefault(key, []).append(other.key)
    for key, found in by_key.items():
        yield from _avoided(state, row, key, found, "that must not be near it")


def _avoided(state: ClusterState, row: int, key: str, found: list[str], which: str) -> Iterator[RuleNumbers]:
    if found:
        value = _label(state, row, key)
        text = f"{key}={value}: {_names(found, len(found))}, {which}"
        yield RuleNumbers(text, {"key": key, "value": value, "count": len(found), "pod": found[0]})


def _limits(state: ClusterState, prefiltered: Prefiltered, _: Rejection, row: int) -> Iterator[RuleNumbers]:
    name = state.table.names[row]
    wanted = volumes_of(state.storage, prefiltered.pod)
    standing = state.index.volume_pods.get(name, {}).values()
    attached = {volume for pod in standing for volume in volumes_of(state.storage, pod)}
    for driver, limit in sorted(state.storage.attach_limits.of(name).items()):
        used = sum(1 for one, _ in attached if one == driver)
        more = sum(1 for one, _ in wanted - attached if one == driver)
        if more and used + more > limit:
            values: dict[str, int | str] = {"driver": driver, "attached": used, "asked": more, "limit": limit}
            yield RuleNumbers(f"{driver}: {used} volumes attached, {more} asked, at most {limit}", values)


def _claims_in_use(state: ClusterState, prefiltered: Prefiltered, _: Rejection, __: int) -> Iterator[RuleNumbers]:
    pod = prefiltered.pod
    for claim in _claims(state, pod):
        if ONCE_PER_POD not in claim.access_modes:
            continue
        users = [
            other.key
            for pods in state.index.volume_pods.values()
            for other in pods.values()
            if other.namespace == pod.namespace
            and any(use.name == claim.name for use in (other.relations or NO_RELATIONS).claims)
        ]
        if users:
            text = f"claim {claim.name} ({ONCE_PER_POD}) is used by {_names(users, len(users))}"
            yield RuleNumbers(text, {"claim": claim.name, "pod": users[0]})


def _volumes(state: ClusterState, prefiltered: Prefiltered, _: Rejection, __: int) -> Iterator[RuleNumbers]:
    for claim in _claims(state, prefiltered.pod):
        if not claim.bound:
            where = f", given to node {claim.selected_node}" if claim.selected_node else ""
            known = "" if not claim.class_name or claim.class_name in state.storage.classes else " (there is none)"
            text = f"claim {claim.name} of storage class {claim.class_name or chr(34) * 2}{known} is not bound{where}"
            yield RuleNumbers(text, {"claim": claim.name, "storage_class": claim.class_name})
            continue
        volume = state.storage.volume(claim.volume_name)
        if volume is None:
            text = f"claim {claim.name}: its volume {claim.volume_name} does not exist"
            yield RuleNumbers(text, {"claim": claim.name, "volume": claim.volume_name})
        reach = _reach(volume)
        if reach:
            text = f"claim {claim.name}: volume {claim.volume_name} is reached from {reach}"
            yield RuleNumbers(text, {"claim": claim.name, "volume": claim.volume_name, "reach": reach})


def _latency(state: ClusterState, prefiltered: Prefiltered, _: Rejection, row: int) -> Iterator[RuleNumbers]:
    pod_class = prefiltered.pod.pod_class
    limit_us, target = pod_class.latency_hard_us, pod_class.latency_target
    known_us = int(state.table.newest_latency(target, np.array([row]))[0])
    to = target or "the users"
    if known_us >= 0:
        text = f"{known_us / 1000:g} ms from {to}, {limit_us / 1000:g} ms is the limit"
        yield RuleNumbers(text, {"latency_us": known_us, "limit_us": limit_us})
    else:
        yield RuleNumbers(f"nobody knows now how far it is from {to}", {"limit_us": limit_us})


_RULES: dict[str, Explain] = {
    "ConclaveLatencyLimit": _latency,
    "TaintToleration": _taints,
    "NodeAffinity": _selector,
    "NodePorts": _ports,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _interpod,
    "NodeVolumeLimits": _limits,
    "VolumeRestrictions": _claims_in_use,
    "VolumeBinding": _volumes,
    "VolumeZone": _volumes,
}


def _prepared(prefiltered: Prefiltered, kind: type[Rule]) -> Rule | None:
    return next((rule for rule in prefiltered.rules if isinstance(rule, kind)), None)


def _in_domain(state: ClusterState, row: int, key: str) -> Iterator[Pod]:
    """Pods that stand in the node's domain, ``SCANNED`` at most; none where the node lacks the label."""
    codes = codes_or_absent(state.table, key)
    if codes[row] == ABSENT:
        return
    left = SCANNED
    for other in np.flatnonzero(codes == codes[row]).tolist():
        for pod in state.index.pods_on(state.table.names[other]):
            left -= 1
            if left < 0:
                return
            yield pod


def _label(state: ClusterState, row: int, key: str) -> str:
    node = state.table.nodes[row]
    return node.labels.get(key, "") if node is not None else ""


def _claims(state: ClusterState, pod: Pod) -> Iterator[VolumeClaim]:
    for use in (pod.relations or NO_RELATIONS).claims:
        claim = state.storage.claims.get(f"{pod.namespace}/{use.name}")
        if claim is not None:
            yield claim


def _reach(volume: PersistentVolume | None) -> str:
    """The volume's node affinity in words; empty where it has none."""
    if volume is None or not volume.affinity:
        return ""
    return " or ".join(filter(None, map(term_text, volume.affinity)))


def term_text(term: SelectorTerm) -> str:
    """A node selector term in words."""
    asked = (*term.expressions, *term.fields)
    return " and ".join(
        f"{r.key} {r.operator} {list(r.values)}" if r.values else f"{r.key} {r.operator}" for r in asked
    )


def _names(found: list[str], count: int) -> str:
    shown = ", ".join(sorted(found)[:EXAMPLES])
    return f"{shown} and {count - EXAMPLES} more" if count > EXAMPLES else shown
