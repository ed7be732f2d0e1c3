"""Queue objects in a running mesh: quotas, what is told, reclaim, a new leader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.scenarios.invariants import unjust_evictions
from tests.scenarios.world import MERGE, Json, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROOT = Path(__file__).parents[3]
QUEUES = "/apis/conclave.io/v1alpha1/queues"
LABEL = "conclave.io/queue"


async def define(cluster: World) -> None:
    """As ``kubectl apply -f k8s/base/queues-crd.yaml`` does."""
    crd = yaml.safe_load((ROOT / "k8s/base/queues-crd.yaml").read_text())
    await cluster.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)


async def put(cluster: World, name: str, **spec: Any) -> None:
    await cluster.create(QUEUES, "Queue", name, api="conclave.io/v1alpha1", spec=spec)


async def status(cluster: World, name: str, reached: Callable[[Json], Any], *, within_s: float = 20) -> Json:
    """Until the watch shows a status as ``reached`` wants it."""
    found = await cluster.call("GET", f"{QUEUES}/{name}")
    if reached(found.get("status") or {}):
        return dict(found["status"])
    version = found["metadata"]["resourceVersion"]
    url = f"{cluster.mesh.api_url}{QUEUES}?watch=1&resourceVersion={version}"
    timeout = aiohttp.ClientTimeout(total=within_s)
    async with cluster.mesh.session.get(url, timeout=timeout) as stream:
        async for line in stream.content:
            item = yaml.safe_load(line)["object"]
            if item["metadata"]["name"] == name and reached(item.get("status") or {}):
                return dict(item["status"])
    raise AssertionError(f"the watch of queue {name} ended")


def ready(found: Json) -> str:
    return next((c["status"] for c in found.get("conditions", ()) if c["type"] == "Ready"), "")


async def test_a_quota_holds_through_a_new_leader_and_what_was_borrowed_comes_back(tmp_path: Path) -> None:
    async with world(tmp_path, but=[unjust_evictions]) as cluster:  # who gives back what it borrowed need not be lower
        await define(cluster)
        for number in range(2):
            await cluster.add_node(f"n{number}", cpu="4")
        await put(cluster, "capped", guaranteed={"cpu": "2"}, maximum={"cpu": "2"})
        await put(cluster, "lender", guaranteed={"cpu": "4"}, reclaim={"enabled": True})
        await put(cluster, "borrower")
        await put(cluster, "lost", parent="nobody")
        bad = await status(cluster, "lost", lambda found: ready(found) == "False")
        assert "there is no Queue nobody" in str(bad["conditions"])
        # a maximum
        await cluster.add_pods([f"c{number}" for number in range(3)], cpu="1", labels={LABEL: "capped"})
        await cluster.until(lambda c: len(c.bound_names("c")) == 2, within_s=20, what="two of three fit the quota")
        await cluster.until(
            lambda c: any("queue capped: cpu 2 of maximum 2 is used" in c.told(f"c{n}") for n in range(3)),
            within_s=10, what="the third is told",
        )  # fmt: skip
        shown = await status(cluster, "capped", lambda found: found.get("pendingUnits") == 1)
        assert shown["used"]["cpu"] == "2"
        # a label to a queue that is not there
        await cluster.add_pod("typo", labels={LABEL: "nowhere"})
        await cluster.until(lambda c: "no Queue of this name" in c.told("typo"), within_s=10, what="typo is told")
        # a new leader counts the same
        cluster.mesh.kill("coordinator-0")
        await cluster.mesh.leader("coordinator")
        await cluster.add_pods([f"b{number}" for number in range(6)], cpu="1", labels={LABEL: "borrower"})
        await cluster.until(lambda c: len(c.bound_names("b")) == 6, within_s=30, what="all that is free is borrowed")
        assert len(cluster.bound_names("c")) == 2
        # reclaim
        await cluster.add_pod("l0", cpu="3", labels={LABEL: "lender"})
        await cluster.until(lambda c: c.bound("l0"), within_s=30, what="the lender has what it is guaranteed")
        assert len(cluster.bound_names("b")) == 3
        # room in the quota lets the next go
        [held] = {f"c{n}" for n in range(3)} - cluster.bound_names("c")
        await cluster.call("PATCH", f"{QUEUES}/capped", {"spec": {"maximum": {"cpu": "3"}}}, MERGE)
        await cluster.delete_pod("b" + min(cluster.bound_names("b"))[1:])
        await cluster.until(lambda c: c.bound(held), within_s=20, what="the quota was raised")
