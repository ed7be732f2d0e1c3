"""What a node lends, written on a server: scenes that hold on the twin and on a real API server alike.

Each scene takes a ``Lender`` on a node of its own. Other managers write as they do: koord-manager by a strategic merge
patch, another applier by server-side apply, the kubelet by a patch of what it computed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from services.coordinator.io.loan_writes import LoanWrites, manager_of
from services.coordinator.lending.ledger import LoanLedger, LoanWrite
from shared.adapters.kube.api import KubeClient
from shared.kube.pods.convert import node_from_api
from shared.kube.resources import NODES
from shared.model.node import Node
from shared.model.resources import parse_quantity
from shared.scheduling.lending.rule import LendingRule

Json = dict[str, Any]
CPU, MEMORY = NAMES = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
KINDS = {
    "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json", "json": "application/json-patch+json",
}  # fmt: skip
MANAGER = manager_of("conclave")


class Lender:
    """A coordinator's writes of one node, and the node as others see and write it."""

    def __init__(self, client: KubeClient, session: aiohttp.ClientSession, name: str) -> None:
        self.name = name
        self._session = session
        self.now_s = 1000.0
        self._client = client
        self.begin_term()

    def begin_term(self, **ledger: Any) -> None:
        """A new leader, which knows nothing."""
        self.ledger = LoanLedger(LendingRule(), **({"on": True} | ledger))
        self.writes = LoanWrites(self._client, self.ledger, manager=MANAGER, clock=lambda: self.now_s)

    async def lend(self, cpu: int, memory: int, *, certain: bool = True) -> str:
        """Have it written; who else owns it by what was learned, "" for nobody."""
        return await self._write(LoanWrite(self.name, (cpu, memory), certain))

    async def take_away(self, *, certain: bool = True) -> str:
        return await self._write(LoanWrite(self.name, None, certain))

    async def _write(self, work: LoanWrite) -> str:
        node = await self._client.get(NODES, namespace="", name=self.name)
        assert node is not None
        self.ledger.stale(node_from_api(node), None, self.now_s)
        await self.writes.write([work])
        return self.ledger.other_on(self.name)

    async def patch(self, status: Json, *, manager: str, kind: str = "strategic", force: bool = False) -> Json:
        """Another manager's write of the node's status."""
        body: Any = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}, "status": status}
        query = {"fieldManager": manager} | ({"force": "true"} if force else {})
        async with self._session.patch(
            f"/api/v1/nodes/{self.name}/status", params=query, data=json.dumps(body),
            headers={"Content-Type": KINDS[kind]},
        ) as response:  # fmt: skip
            assert response.status == 200, await response.text()
            told: Json = await response.json()
            return told

    async def node(self) -> Json:
        async with self._session.get(f"/api/v1/nodes/{self.name}") as response:
            assert response.status == 200
            told: Json = await response.json()
            return told

    async def says(self) -> tuple[int | None, ...]:
        """What it lends, as capacity and as allocatable; one pair where they agree, as they have to."""
        status = (await self.node())["status"]
        capacity, allocatable = (
            tuple(parse_quantity(status[part][name]) if name in status[part] else None for name in NAMES)
            for part in ("capacity", "allocatable")
        )
        assert capacity == allocatable
        return capacity

    async def managers(self) -> set[str]:
        """Who owns a part of it."""
        return {
            one["manager"]
            for one in (await self.node())["metadata"]["managedFields"]
            if "batch-" in json.dumps(one["fieldsV1"])
        }

    async def kubelet_tells(self, **changed: Json) -> None:
        """As a kubelet does: allocatable is made of capacity, and what differs is patched."""
        status = (await self.node())["status"]
        conditions = [{**one, "lastHeartbeatTime": "2031-01-01T00:00:00Z"} for one in status["conditions"]]
        recomputed = {**status["allocatable"], **{name: status["capacity"][name] for name in status["capacity"]}}
        differs = {name: amount for name, amount in recomputed.items() if status["allocatable"].get(name) != amount}
        body = {"conditions": conditions} | ({"allocatable": differs} if differs else {}) | changed
        await self.patch(body, manager="kubelet")


def both(cpu: str, memory: str) -> Json:
    """A status that lends so much."""
    return {part: {CPU: cpu, MEMORY: memory} for part in ("capacity", "allocatable")}


async def written_under_a_manager_of_ours(lender: Lender) -> None:
    assert await lender.lend(3500, 10**9) == ""
    assert await lender.says() == (3500, 10**9)
    assert await lender.managers() == {MANAGER}
    assert await lender.lend(0, 0) == ""
    assert await lender.says() == (0, 0)


async def taken_away_leaves_nothing_of_ours_and_all_of_others(lender: Lender) -> None:
    before = await lender.node()
    await lender.lend(3500, 10**9)
    assert await lender.take_away() == ""
    after = await lender.node()
    assert after["status"]["capacity"] == before["status"]["capacity"]
    assert after["status"]["allocatable"] == before["status"]["allocatable"]
    assert await lender.managers() == set()


async def applying_nothing_would_take_the_nodes_whole_capacity(lender: Lender) -> None:
    """Why empty maps are applied in its place."""
    await lender.lend(3500, 10**9)
    told = await lender.patch({}, manager=MANAGER, kind="apply")
    assert "capacity" not in told["status"]


async def other_names_are_lent_in_place_of_the_old_ones(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    lender.begin_term(domain="example.com")
    await lender.lend(3000, 10**9)
    status = (await lender.node())["status"]
    assert {name for name in status["allocatable"] if "batch-" in name} == {
        "example.com/batch-cpu", "example.com/batch-memory"
    }  # fmt: skip
    assert status["allocatable"].keys() == status["capacity"].keys() > {"cpu", "memory", "pods"}


async def a_kubelets_own_updates_leave_it(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    await lender.kubelet_tells()
    assert await lender.says() == (3500, 10**9)
    assert await lender.managers() == {MANAGER}
    await lender.lend(2000, 10**9)
    await lender.kubelet_tells()
    assert await lender.says() == (2000, 10**9)


async def what_a_kubelet_reset_is_applied_again(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    await lender.kubelet_tells(**both("0", "0"))
    assert await lender.says() == (0, 0)
    assert await lender.lend(3500, 10**9) == ""
    assert await lender.says() == (3500, 10**9)
    assert await lender.managers() == {MANAGER}


async def a_new_leader_goes_on_with_ours(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    lender.begin_term()
    assert await lender.lend(3000, 10**9, certain=False) == ""
    assert await lender.says() == (3000, 10**9)


async def another_managers_value_is_never_written(lender: Lender) -> None:
    for kind in ("strategic", "apply"):
        await lender.patch(both("7k", "5"), manager="koord-manager", kind=kind, force=kind == "apply")
        for certain in (True, False):
            lender.begin_term()
            assert await lender.lend(3500, 10**9, certain=certain) == "koord-manager"
            assert await lender.says() == (7000, 5)
            assert await lender.managers() == {"koord-manager"}


async def another_that_takes_it_over_has_it_alone(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    await lender.patch({"allocatable": {CPU: "7000"}}, manager="vc-agent")
    assert await lender.lend(3000, 10**9) == "vc-agent"
    assert (await lender.node())["status"]["allocatable"][CPU] == "7k"
    assert await lender.managers() == {"vc-agent"}


async def another_that_lends_under_other_names_has_the_node_alone(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    await lender.patch({part: {"example.com/batch-cpu": "7k"} for part in both("", "")}, manager="their-agent")
    assert await lender.lend(3500, 10**9, certain=False) == "their-agent"
    status = (await lender.node())["status"]
    assert {name for name in status["allocatable"] if "batch-" in name} == {"example.com/batch-cpu"}
    assert await lender.managers() == {"their-agent"}


async def who_says_the_same_as_we_has_it_alone(lender: Lender) -> None:
    await lender.patch(both("3500", "5"), manager="koord-manager")
    assert await lender.lend(3500, 5) == "koord-manager"
    assert await lender.managers() == {"koord-manager"}
    await lender.patch({part: {CPU: None, MEMORY: None} for part in both("", "")}, manager="koord-manager")
    assert await lender.says() == (None, None)


async def a_kubelet_beside_another_manager_is_no_way_in(lender: Lender) -> None:
    await lender.patch({"capacity": {CPU: "7000"}}, manager="koord-manager")
    await lender.patch({"allocatable": {CPU: "0"}}, manager="kubelet")
    assert await lender.lend(3500, 10**9) == "koord-manager"
    status = (await lender.node())["status"]
    assert (status["capacity"][CPU], status["allocatable"][CPU]) == ("7k", "0")


async def switched_off_takes_away_ours_and_leaves_anothers(lender: Lender) -> None:
    await lender.lend(3500, 10**9)
    lender.begin_term(on=False)
    assert await lender.take_away(certain=False) == ""
    assert await lender.says() == (None, None)
    await lender.patch(both("7k", "5"), manager="koord-manager")
    assert await lender.take_away(certain=False) == "koord-manager"
    assert await lender.says() == (7000, 5)
    assert await lender.managers() == {"koord-manager"}


async def a_node_that_is_gone_is_no_trouble(lender: Lender) -> None:
    lender.name, there = "nobody", lender.name
    await lender.writes.write([])
    lender.ledger.stale(Node("nobody"), None, lender.now_s)
    await lender.writes.write([LoanWrite("nobody", (1, 1), certain=True), LoanWrite("nobody", (1, 1), certain=False)])
    lender.name = there
    assert not lender.writes.resting


SCENES: tuple[Callable[[Lender], Awaitable[None]], ...] = (
    written_under_a_manager_of_ours,
    taken_away_leaves_nothing_of_ours_and_all_of_others,
    applying_nothing_would_take_the_nodes_whole_capacity,
    other_names_are_lent_in_place_of_the_old_ones,
    a_kubelets_own_updates_leave_it,
    what_a_kubelet_reset_is_applied_again,
    a_new_leader_goes_on_with_ours,
    another_managers_value_is_never_written,
    another_that_takes_it_over_has_it_alone,
    another_that_lends_under_other_names_has_the_node_alone,
    who_says_the_same_as_we_has_it_alone,
    a_kubelet_beside_another_manager_is_no_way_in,
    switched_off_takes_away_ours_and_leaves_anothers,
    a_node_that_is_gone_is_no_trouble,
)
