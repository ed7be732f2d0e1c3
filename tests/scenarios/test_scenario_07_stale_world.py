"""Scenario 7: the chosen node changes while its Binding is held up: nothing is bound there, the pod says why or moves.

The API server holds Bindings in three ways: it asks to come later (429), it fails (500, as when an admission webhook
does), or it lets them lie for two seconds before it looks at them. Gödel's binder does not look at the node again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.invariants import node_of
from tests.scenarios.world import NODES, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

HOLD_S = 2.0
OFTEN = 10_000
"""As good as for ever, and a count shows that it has begun."""
HOLDS: dict[str, dict[str, Any]] = {
    "throttled": {"kind": "throttle", "retry_after_s": 2},
    "failing": {"kind": "error"},
    "delayed": {"kind": "delay", "delay_s": HOLD_S},
}


async def cordon(cluster: World) -> None:
    await cluster.patch_node("n0", {"spec": {"unschedulable": True}})


async def taint(cluster: World) -> None:
    await cluster.patch_node("n0", {"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}})


async def remove(cluster: World) -> None:
    await cluster.call("DELETE", f"{NODES}/n0")


async def shrink(cluster: World) -> None:
    less = {"cpu": "500m", "memory": "8Gi", "pods": "110"}
    await cluster.patch_node_status("n0", {"status": {"allocatable": less, "capacity": less}})


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("change", [cordon, taint, remove, shrink])
async def test_nothing_is_bound_to_a_node_that_changed_meanwhile(tmp_path: Path, hold: str, change: Any) -> None:
    async with world(tmp_path, agents=1, coordinators=1, binders=1) as cluster:
        await cluster.add_node("n0", cpu="1")
        await cluster.faults({"path": "/binding$", "method": "POST", "count": OFTEN, **HOLDS[hold]})
        await cluster.add_pod("p", cpu="800m")
        await cluster.fault_met(OFTEN)  # the Binding is out, or has been refused
        assert not cluster.bound("p")
        await change(cluster)
        await asyncio.sleep(HOLD_S / 2)  # so long it goes on: binders try again, or wait, and must not bind
        await cluster.faults()
        await cluster.until(lambda c: bool(c.told("p")), within_s=10, what="it says why it waits")
        assert not node_of(cluster.pods["p"])

        await cluster.add_node("n1", cpu="1")
        await cluster.until(lambda c: c.node("p") == "n1", within_s=15, what="it goes elsewhere")
