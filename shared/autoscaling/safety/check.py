"""What must hold of every verdict, written down apart from the safeguards: one line per broken rule, its name first.

The core calls it before each write: a verdict that breaks a rule is not carried out. Tests call it after switching a
safeguard off. It shares only ``scene.py`` with the safeguards, and ``placed`` for the room.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.autoscaling.safety.capacity import placed
from shared.autoscaling.safety.scene import SafetyScene, ServiceCase


def violations(scene: SafetyScene, allowed: Mapping[str, int]) -> list[str]:
    """What is wrong with ``allowed``."""
    found: list[str] = []
    for name, case in scene.services.items():
        now, to, bounds = case.seen.replicas, allowed[name], case.seen.bounds
        switched_off = now == 0 and bounds.minimum > 0
        if switched_off:
            if to:
                found.append(f"off: {name} was set to zero and would get {to}")
            continue
        if not bounds.minimum <= to <= bounds.maximum:
            found.append(f"bounds: {name} to {to}, outside {bounds.minimum}..{bounds.maximum}")
        if to < now and to < bounds.maximum:
            found += [f"{rule}: {name} from {now} to {to}" for rule in _must_not_fall(scene, case, to)]
        if to > now and to > bounds.minimum:
            found += [f"{rule}: {name} from {now} to {to}" for rule in _must_not_rise(scene, case, to)]
        found += [f"{rule}: {name} to {to}" for rule in _must_rise(scene, case, to)]
    return found + _together(scene, allowed)


def _must_not_fall(scene: SafetyScene, case: ServiceCase, to: int) -> list[str]:
    found = []
    if case.bad:
        found.append("readings")
    if case.seen.held:
        found.append("held")
    if case.seen.ready == 0:
        found.append("nobody-ready")
    if case.disruptions is not None and to < case.seen.ready - case.disruptions:
        found.append("budget")
    if case.foreign is not None and to < min(case.foreign, case.seen.replicas):
        found.append("foreign")
    if scene.policy_failed or case.lacking or (case.wanted is not None and type(case.wanted) is not int):
        found.append("fallback")
    removed = -sum(change.delta for change in case.changes if change.at_s > scene.now - scene.limits.down_period_s)
    start = max(case.seen.replicas + removed, 0)
    if start - to > max(scene.limits.down_pods, start * scene.limits.down_percent / 100):
        found.append("rate-down")
    return found


def _must_not_rise(scene: SafetyScene, case: ServiceCase, to: int) -> list[str]:
    found = []
    if case.seen.pending:
        found.append("pending")
    added = sum(change.delta for change in case.changes if change.at_s > scene.now - scene.limits.up_period_s)
    start = max(case.seen.replicas - added, 0)
    if to - start > max(scene.limits.up_pods, start * scene.limits.up_percent / 100 + 1):
        found.append("rate-up")
    return found


def _must_rise(scene: SafetyScene, case: ServiceCase, to: int) -> list[str]:
    """The larger of what runs and HPA's rule, unless something caps growth. Caps: bounds, rate, room, cost, pending."""
    capped = (
        case.seen.pending
        or scene.nodes is not None
        or scene.cost_limit is not None
        or to >= case.seen.bounds.maximum
        or case.changes
    )
    if capped:
        return []
    doubling = case.seen.replicas + max(scene.limits.up_pods, case.seen.replicas * scene.limits.up_percent // 100)
    found = []
    if scene.drifting and case.rule is not None:
        most = max(case.rule, case.floor or 0, case.seen.replicas, case.seen.bounds.minimum)
        if not min(case.rule, doubling) <= to <= most and case.rule >= case.seen.replicas:
            found.append("drift")
    elif (scene.policy_failed or case.lacking) and to < min(case.rule or 0, doubling):
        found.append("fallback")
    if case.floor is not None and to < min(case.floor, doubling):
        found.append("unfinished")
    return found


def _together(scene: SafetyScene, allowed: Mapping[str, int]) -> list[str]:
    """Growth of all services beyond what their minima force: within the cost limit, and within the nodes' room."""
    grown = {
        name: allowed[name] - case.seen.replicas
        for name, case in scene.services.items()
        if allowed[name] > max(case.seen.replicas, case.seen.bounds.minimum)
    }
    found = []
    now = sum(case.seen.replicas for case in scene.services.values())
    if scene.cost_limit is not None and grown and now + sum(grown.values()) > scene.cost_limit:
        found.append(f"cost: {now + sum(grown.values())} replicas, the limit is {scene.cost_limit:g}")
    if scene.nodes is not None:
        nodes = list(scene.nodes)
        for name, more in grown.items():
            if placed(nodes, scene.services[name].takes, more) < more:
                found.append(f"room: {name} grows by {more}, which do not fit")
    return found
