"""A corner with queues of its own, and a mesh for several of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.scenarios.groups.corner import MERGE, STILL_S, TOGETHER_S, Corner, priority_classes
from tests.scenarios.invariants import unjust_evictions
from tests.scenarios.world import QUEUES, QUEUES_KIND, World, world

FLAGS = ["--simulate", "--kubernetes", "1.37"]


@asynccontextmanager
async def mall(tmp_path: Path) -> AsyncIterator[World]:
    """A mesh that serves Queues; who gives back what it borrowed need not be less important."""
    async with world(tmp_path, agents=2, twin_flags=FLAGS, kinds=[QUEUES_KIND], but=(unjust_evictions,)) as cluster:
        await priority_classes(cluster, low=10, high=1000)
        yield cluster


class Shop(Corner):
    """A corner with queues."""

    async def queue(self, name: str, **spec: Any) -> str:
        """A Queue; ``parent`` by its short name."""
        if "parent" in spec:
            spec["parent"] = self.full(spec["parent"])
        await self.cluster.create(QUEUES, "Queue", self.full(name), api="conclave.io/v1alpha1", spec=spec)
        return self.full(name)

    async def change_queue(self, name: str, **spec: Any) -> None:
        await self.cluster.call("PATCH", f"{QUEUES}/{self.full(name)}", {"spec": spec}, MERGE)

    async def in_queue(self, queue: str, prefix: str, count: int, **pod: Any) -> list[str]:
        """Lone pods of a queue."""
        return await self.pods(prefix, count, labels={"conclave.io/queue": self.full(queue)}, **pod)

    async def gang_in(self, queue: str, name: str, size: int, **pod: Any) -> list[str]:
        """A gang of a queue."""
        labels = {"conclave.io/queue": self.full(queue)}
        await self.group(name, size, labels=labels)
        return await self.pods(name, size, group=name, labels=labels, **pod)

    async def stays(self, names: list[str], count: int, what: str) -> None:
        """For a while so many of them are bound."""
        await self.cluster.never(lambda _: len(self.bound(names)) != count, for_s=STILL_S, what=f"{self.name}: {what}")

    def leaving(self, names: list[str]) -> list[str]:
        """Those of them that terminate."""
        pods = self.cluster.pods
        return [name for name in names if name in pods and pods[name]["metadata"].get("deletionTimestamp")]

    async def lent(self, *, limited: bool = False) -> list[str]:
        """A lender of 2 CPUs and a borrower that has all 4: of the node, or (``limited``) of what the queue above both
        lets them have. The borrower's pods."""
        await self.node("n", cpu="8" if limited else "4")
        above = {}
        if limited:
            above["parent"] = "top"
            await self.queue("top", maximum={"cpu": "4"})
        await self.queue("lender", guaranteed={"cpu": "2"}, reclaim={"enabled": True}, **above)
        await self.queue("borrower", guaranteed={"cpu": "2"}, **above)
        taken = await self.in_queue("borrower", "b", 4)
        await self.all_bound(taken, "the borrower has everything")
        return taken

    async def given_back(self, names: list[str], taken: list[str], within_s: float = TOGETHER_S) -> None:
        """The lender has its own again, and took no more."""
        await self.all_bound(names, "the lender has its own again", within_s=within_s)
        assert len(self.bound(taken)) == 2
