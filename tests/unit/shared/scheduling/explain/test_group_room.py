"""Where a pod group that waits has room, and whom preemption would evict for it."""

from __future__ import annotations

import pytest

from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain import group_room
from shared.scheduling.explain.group_room import DomainFit, GroupVictims, domain_fits, group_victims
from tests.unit.shared.scheduling.groups.gangs import cluster, cpus, gang, member, members, stand


def test_domains_are_told_with_how_many_members_each_takes() -> None:
    racks = (("a", 2), ("b", 3))
    state = cluster(*((f"{rack}{i}", {"cpu": 1000}, {"rack": rack}) for rack, n in racks for i in range(n)))
    feasibility = FeasibilityCache(state.table)
    pods = members(4, 1000)
    assert domain_fits(state, feasibility, gang(4, "rack"), pods) == [DomainFit("b", 3), DomainFit("a", 2)]
    assert domain_fits(state, feasibility, gang(4), pods) == []
    bound = [stand(state, member("old", 1000), "a0")]
    assert domain_fits(state, feasibility, gang(4, "rack"), pods, bound) == [DomainFit("a", 1)]


def test_victims_that_would_help_are_named_and_why_nobody_would(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cpus(a=1000, b=1000)
    stand(state, member("old", 1000, group=""), "a")
    feasibility = FeasibilityCache(state.table)
    found = group_victims(state, feasibility, gang(2), members(2, 1000, priority=9))
    assert found == GroupVictims(True, "would evict d/old", ["d/old"], 1)
    found = group_victims(state, feasibility, gang(2), members(2, 1000))
    assert (found.helps, found.summary) == (False, "no preemption candidate")
    monkeypatch.setattr(group_room, "MOST_WORK", 1)
    found = group_victims(state, feasibility, gang(2), members(2, 1000, priority=9))
    assert (found.helps, "not searched to the end" in found.summary) == (False, True)
