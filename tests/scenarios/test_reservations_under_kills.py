"""Reservations on real processes: whoever dies at any step, each is placed, taken by whom it is for, once, and ended;
no node stays marked and none is left standing. The audit judges the whole history."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from lab.audit.audit import audit
from shared.model.node import NOT_REMOVED
from shared.model.units.reservation import RESERVED_ANNOTATIONS
from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT
from tests.scenarios.groups.test_gang_crash_points import RECOVERY_S, deaths
from tests.scenarios.world import FULL, NODES, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

KIND = ROOT / "k8s/base/reservations-crd.yaml"
PATH = "/apis/conclave.io/v1alpha1/namespaces/default/reservations"
BINDER, COORDINATOR = ["after_bind"], ["after_node_mark", "before_reservation_end"]
if FULL:
    BINDER = ["before_bind", "after_bind", "before_bind@2", "after_bind@2", "before_taker_named", "after_taker_named"]
    COORDINATOR = [
        "before_plan", "after_plan", "before_node_mark", "after_node_mark", "before_reservation_end",
        "after_reservation_end",
    ]  # fmt: skip


async def reserve(cluster: World, name: str) -> None:
    spec = {"resources": {"cpu": "2"}, "owners": [{"pod": f"for-{name}"}], "ttlSeconds": 3600}
    await cluster.create(PATH, "Reservation", name, api="conclave.io/v1alpha1", spec=spec)


async def phase(cluster: World, name: str, *wanted: str) -> dict[str, Any]:
    """The object, once its phase is one of these."""
    status: dict[str, Any] = {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            while status.get("phase", "Pending") not in wanted:
                status = (await cluster.call("GET", f"{PATH}/{name}")).get("status") or {}
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{name} is {json.dumps(status)}, not {wanted}") from None
    return status


async def spared(cluster: World, node: str, *, wanted: bool) -> None:
    """The node bears all that keeps autoscalers from it, or nothing of that."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            annotations = (await cluster.call("GET", f"{NODES}/{node}"))["metadata"].get("annotations") or {}
            there = {key in annotations for key in (*NOT_REMOVED, RESERVED_ANNOTATIONS)}
            if there == {wanted}:
                return
            await asyncio.sleep(0.2)


async def test_every_reservation_ends_as_it_should_whoever_dies(tmp_path: Path) -> None:
    own = ["--lease-ttl-s", "15"]  # a loaded machine ends nobody; who is killed is missed at once
    flags = {"binder": own, "coordinator": own}
    async with world(tmp_path, agents=2, coordinators=2, binders=2, kinds=[KIND], flags=flags) as cluster:
        for node in ("n0", "n1"):
            await cluster.add_node(node, cpu="3")
        number = 0
        for service, failpoints in (("binder", BINDER), ("coordinator", COORDINATOR)):
            async with aclosing(deaths(cluster, service, failpoints)) as armed:
                async for succeeded in armed:
                    number += 1
                    name = f"r{number}"
                    await reserve(cluster, name)
                    kept = await phase(cluster, name, "Available")
                    await spared(cluster, kept["node"], wanted=True)
                    await cluster.add_pod(f"for-{name}", cpu="2")
                    await cluster.until(
                        lambda c, n=name: c.bound(f"for-{n}"), within_s=RECOVERY_S, what=f"{name} is taken"
                    )
                    assert cluster.pods[f"for-{name}"]["spec"]["nodeName"] == kept["node"]
                    await phase(cluster, name, "Succeeded")
                    await succeeded()
                    await spared(cluster, kept["node"], wanted=False)  # else who is armed next may die of that at once
                    await cluster.call("DELETE", f"/api/v1/namespaces/default/pods/for-{name}")
        await reserve(cluster, "last")
        await phase(cluster, "last", "Available")
        await cluster.call("DELETE", f"{PATH}/last")
        for node in ("n0", "n1"):
            await spared(cluster, node, wanted=False)
    report = audit(cluster.history, scheduler_name="conclave")
    assert report.reserved_wrong == 0, report.examples
    reserved = [entry for entry in cluster.history if entry.kind == "Reservation"]
    assert reserved, "the history tells of reservations, or the audit has judged nothing"
