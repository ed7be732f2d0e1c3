"""What the operator set: the bounds of each service and the cost of all. Pure.

Bounds come last and win over everything, as with HPA: they are the operator's word. The cost limit freezes growth, it
lowers nothing by itself.
"""

from __future__ import annotations

from shared.autoscaling.safety.scene import Draft, SafetyScene, rising


def cost(scene: SafetyScene, draft: Draft) -> None:
    """Growth of all services together ends at the cost limit: one replica at a time to whom lacks the largest share."""
    limit = scene.cost_limit
    if limit is None:
        return
    now = {name: case.seen.replicas for name, case in scene.services.items()}
    wanted = draft.replicas
    kept = {name: min(now[name], wanted[name]) for name in now}
    # what falls in this decision does not pay for what rises in it: it may be refused, and pods leave slowly
    budget = int(limit) - sum(now.values())
    growing = {name: wanted[name] - now[name] for name in now if wanted[name] > now[name]}
    if sum(growing.values()) <= budget:
        return
    granted = dict.fromkeys(growing, 0)
    for _ in range(max(budget, 0)):
        neediest = max(growing, key=lambda name: ((growing[name] - granted[name]) / growing[name], name))
        granted[neediest] += 1
    for name in growing:
        draft.at_most(name, kept[name] + granted[name], "cost", f"all services together may cost {limit:g} replicas")


def off(scene: SafetyScene, draft: Draft) -> None:
    """What was set to zero although its minimum is above stays at zero: that is how people switch a service off."""
    for name, case in scene.services.items():
        if not rising(case):
            draft.set(name, 0, "off", "it was set to zero: scale it up by hand to switch it on")


def within(scene: SafetyScene, draft: Draft) -> None:
    """Within its bounds."""
    for name, case in scene.services.items():
        bounds = case.seen.bounds
        draft.at_most(name, bounds.maximum, "bounds", f"maxReplicas is {bounds.maximum}")
        if rising(case):
            draft.at_least(name, bounds.minimum, "bounds", f"minReplicas is {bounds.minimum}")
