"""Rebalancing as a domain that is decided about (``shared/decide``): which goal a standing service moves pods for.

The settings' policy moves nobody. A candidate is a goal: in shadow its plans are made and shown, in the canary it moves
pods of some namespaces, once active those of all.
"""

from __future__ import annotations

from shared.decide.domain import Domain
from shared.decide.guard import GuardLimits
from shared.decide.registry import PolicyEntry, PolicyRegistry
from shared.rebalance.plan import GoalName

REBALANCE = Domain(
    name="rebalance",
    subjects="namespaces",
    service="the rebalancer",
    # 5,000 nodes and 50,000 pods are to take 5 s, in a thread that nobody waits for. One failure each round is enough
    # to rest for an hour's rounds: what was planned wrongly three times is no accident
    limits=GuardLimits(deadline_s=30.0, patience=3, rest=6),
    shares=(10, 50),
    good_windows=1,  # half an hour without trouble
)

STANDING_GOALS = (GoalName.LOAD, GoalName.FRAGMENTATION, GoalName.EMPTY_NODES, GoalName.LATENCY)
"""``unblock`` is for a unit that somebody names."""
POLICIES = PolicyRegistry(
    "moves of pods", {goal.value: PolicyEntry("shared.rebalance.planner:plan") for goal in STANDING_GOALS}
)
STAY = "stay"
"""The settings' policy: nobody is moved."""
