"""A reclaim across a crash at each named step of its evictions: finished by the successor, and at no higher cost.

The process that leads dies by its own hand at the step (``CONCLAVE_FAILPOINT``). All invariants are held against the
whole history by ``world``; in virtual time, at every step there is: ``tests/sim/test_reclaim_crashes.py``.
"""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from tests.scenarios.groups.test_gang_crash_points import RECOVERY_S, deaths
from tests.scenarios.invariants import evictions_above
from tests.scenarios.queues.shop import Shop, mall
from tests.scenarios.world import FULL

pytestmark = [pytest.mark.process, pytest.mark.etcd]

LIMIT = {"binder": ["before_evict@2"], "coordinator": ["after_victims_plan"]}
NODES = {"coordinator": ["before_nominate", "after_nominate"]}
"""Who dies at which steps, where a limit holds the lender back and where nodes do."""
if FULL:
    LIMIT["binder"].append("before_evict")
    LIMIT["coordinator"].append("before_victims_plan")
    NODES["coordinator"] += ["before_victims_plan", "after_victims_plan"]
    NODES["binder"] = ["before_evict", "before_evict@2"]


@pytest.mark.parametrize("steps", [LIMIT, NODES], ids=["limit", "nodes"])
async def test_a_reclaim_is_finished_after_a_death_and_costs_no_more(
    tmp_path: Path, steps: dict[str, list[str]]
) -> None:
    reclaims = 0
    async with mall(tmp_path) as cluster:
        for service, failpoints in steps.items():
            async with aclosing(deaths(cluster, service, failpoints)) as armed:
                async for death in armed:
                    reclaims += 1
                    shop = Shop(cluster, f"reclaim-{reclaims}")
                    taken = await shop.lent(limited=steps is LIMIT)
                    names = await shop.gang_in("lender", "g", 2)
                    await death()
                    await shop.given_back(names, taken, within_s=RECOVERY_S)
                    await shop.delete(*names, *taken)
    assert evictions_above(cluster.history, 2 * reclaims) == []
