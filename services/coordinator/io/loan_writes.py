"""Lends: reads what pods use, has each node judged, and writes what it lends on its status. What is to be written is
``lending/ledger.py``'s.

The two resources are applied (server-side apply) under a field manager of our own, as capacity and as allocatable: a
kubelet makes allocatable from capacity. A value of another manager's is a conflict by the API server's own rule, and is
left alone. A kubelet is no lender: what it has reset is applied again, if nobody else owns it and the node has not
changed meanwhile. Applying both maps empty takes away what is ours and nothing else. Applying nothing would take the
whole maps: a node is created with its status, so nobody owns what else is in them.

Where the role may not write, that is told once and tried rarely. A node that is refused rests alone, as a policy or a
webhook may refuse just that one; all do where many were refused and none was ever written.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from services.coordinator.core.core import Core
from services.coordinator.lending.ledger import KUBELET, LOOK_S, LoanLedger, LoanWrite
from services.coordinator.lending.pod_uses import PodUses
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.kube.field_owners import OWNED_NODES, OwnedNode, owners
from shared.kube.nodes.pod_metrics import PATH, decode_pod_metrics
from shared.kube.resources import Resource
from shared.model.qos import is_lent

log = structlog.get_logger()

T = TypeVar("T")

EVERY_S = 1.0
SLICE = 64
"""Nodes and pods on them that are judged without a pause for the leader's other work, some 3 us each; of pods' metrics
16 times as many are taken in."""
IN_FLIGHT = 8
PODS_PER_S = 2000.0
"""So many pods' metrics are read a second at most: they come as one list, which takes some 10 us a pod."""
PODS_TIMEOUT_S = 30.0
UNANSWERED = 4
"""So many times in a row without an answer about pods are no matter of a moment."""
REFUSED_S = 300.0
"""How long a node rests that may not be written, and metrics that are not served."""
REFUSALS, ALL_REST_S = 20, 60.0
"""Where so many nodes were refused and none was written yet, nothing is for so long; then others are tried."""
SILENT_S = 2.0
"""How long nothing is written after the API server has not answered."""
UNCERTAIN = 100
"""While lending is off so many nodes are asked at each look whether what they lend is ours."""
FIRST_S = 60.0
"""How long a new leader waits to hear what pods use, before it judges nodes without."""
NOBODY = "somebody who is not in managedFields"
REMEDY = "apply k8s/components/lending of this version, or leave lend off; of few nodes: see which policy refuses them"
OFF_REMEDY = "apply k8s/components/lending, leave lend off until nodes lend nothing, and take it away then"


class UsageOfNodesApi(Protocol):
    """Where metrics come from (``KubeClient``)."""

    async def read(self, route: str, path: str, *, timeout_s: float) -> bytes:
        """GET; errors as of ``KubeApi``."""
        ...


class NodeApi(Protocol):
    """Where nodes are written (``KubeClient``)."""

    async def get(self, resource: Resource[T], *, namespace: str, name: str) -> T | None:
        """See ``KubeApi.get``."""
        ...

    async def applied(
        self, resource: Resource[T], *, name: str, body: Mapping[str, Any], manager: str, subresource: str = "",
        force: bool = False,
    ) -> T:  # fmt: skip
        """Server-side apply; the object as it is by that. A field of another manager's: ``KubeRejected`` 409, unless
        ``force``."""
        ...


def manager_of(scheduler_name: str) -> str:
    """Our field manager's name; of a mesh for another scheduler name another one."""
    return f"{scheduler_name}-lending"


async def follow_pods(
    api: UsageOfNodesApi,
    uses: PodUses,
    *,
    every_s: Callable[[], float],
    wanted: Callable[[], bool],
    clock: Callable[[], float],
    wall: Callable[[], float] = time.time,
) -> None:
    """Read what all pods use while ``wanted()``; eternal. A cluster without that API is asked rarely and told once."""
    told, unanswered = False, 0
    while True:
        pause_s = max(every_s(), len(uses) / PODS_PER_S)
        if wanted():
            try:
                body = await api.read("list pod metrics", PATH, timeout_s=PODS_TIMEOUT_S)
                await _take(uses, body, wall(), clock())
                told, unanswered = False, 0
            except KubeError as error:
                if isinstance(error, KubeRejected) and error.status in (403, 404, 405):
                    if not told:
                        log.warning("pod_metrics_unserved", error=error, remedy="nodes lend by what sensors measure")
                    told, pause_s, uses.answered = True, max(pause_s, REFUSED_S), True
                else:  # busy or silent
                    unanswered += 1
                    tell = log.warning if unanswered == UNANSWERED else log.info
                    tell("pod_metrics_unread", error=error, times=unanswered)
        await asyncio.sleep(pause_s)


async def _take(uses: PodUses, body: bytes, wall_s: float, now_s: float) -> None:
    named = set()
    for number, metric in enumerate(decode_pod_metrics(body)):
        if metric is not None:
            uses.take(metric, wall_s=wall_s, now_s=now_s)
            named.add(metric.key)
        if number % (16 * SLICE) == 0:
            await asyncio.sleep(0)
    uses.keep(named)


class LoanWrites:
    """Writes what is due."""

    def __init__(
        self,
        api: NodeApi,
        ledger: LoanLedger,
        *,
        manager: str,
        clock: Callable[[], float],
        may_act: Callable[[], bool] = lambda: True,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._manager = manager
        self._clock = clock
        self._may_act = may_act
        self._reached = reached
        self._turn = asyncio.Semaphore(IN_FLIGHT)
        self._again_s = 0.0
        self._written = False
        self._refusals: set[str] = set()
        """Nodes that were refused, while none was written yet."""
        self._told: set[str] = set()

    @property
    def resting(self) -> bool:
        """Whether the API server has said that we may not write, or says nothing."""
        return self._clock() < self._again_s

    async def write(self, works: Iterable[LoanWrite]) -> None:
        """All of them, some at a time."""
        async with asyncio.TaskGroup() as group:
            for work in works:
                self._ledger.started(work.node, self._clock())
                group.create_task(self._one(work))

    async def _one(self, work: LoanWrite) -> None:
        async with self._turn:
            if self.resting:
                return
            try:
                await self._carry_out(work)
            except KubeRejected as error:
                if error.status in (401, 403, 404, 405, 415, 422):
                    self._refused(work, error)
                else:
                    log.info("node_loan_failed", node=work.node, error=error)
            except KubeError as error:
                self._again_s = self._clock() + SILENT_S
                log.info("node_loan_failed", node=work.node, error=error)

    async def _carry_out(self, work: LoanWrite) -> None:
        if not work.certain and not await self._read(work):
            return  # another's, or gone
        try:
            after = await self._apply(work)
        except KubeRejected as error:
            if error.status != 409:
                raise
            version = await self._read(work)
            if not version:
                return
            # a kubelet alone is in the way: forced, unless anybody writes the node meanwhile
            after = await self._apply(work, version)
        self._written = True
        self._ledger.settled(work.node, self._clock(), ours=work.amounts is not None)
        manager = self._other_on(after)
        if manager:  # it said the same as we do
            await self._leave(work, manager, after)
        elif work.amounts is None and lent_names(after):
            self._ledger.owned_by(work.node, KUBELET, self._clock())

    async def _read(self, work: LoanWrite) -> str:
        """The node's resourceVersion, where we may write it; "": there is none of that name, or it is another's."""
        node = await self._api.get(OWNED_NODES, namespace="", name=work.node)
        if node is None:
            return ""
        manager = self._other_on(node)
        if manager:
            await self._leave(work, manager, node)
        return "" if manager else node.metadata.resource_version

    def _other_on(self, node: OwnedNode) -> str:
        """Who but us and a kubelet lends on the node, under whatever names: it is the same room; "" for nobody."""
        found = owners(node, {*lent_names(node), *self._ledger.names})
        if lent_names(node) and not found:
            return NOBODY
        return min(found - {self._manager, KUBELET}, default="")

    async def _leave(self, work: LoanWrite, manager: str, node: OwnedNode) -> None:
        """Leave the node to another; it is told once of each. What we own beside it would stay when it takes its
        own away."""
        self._ledger.owned_by(work.node, manager, self._clock())
        if manager not in self._told and self._ledger.on:
            self._told.add(manager)
            log.warning("node_loan_of_another", node=work.node, manager=manager, remedy="let one of the two lend")
        if self._manager in owners(node, self._ledger.names):
            await self._apply(LoanWrite(work.node, None, certain=True))

    async def _apply(self, work: LoanWrite, version: str = "") -> OwnedNode:
        """``version``: forced, on the node as it was by that."""
        self._reached("before_lend")
        if not self._may_act():
            raise KubeUnknown("the term has ended")
        body: dict[str, Any] = {"status": status_of(self._ledger.names, work)}
        if version:
            body["metadata"] = {"resourceVersion": version}
        return await self._api.applied(
            OWNED_NODES, name=work.node, body=body, manager=self._manager, subresource="status", force=bool(version)
        )

    def _refused(self, work: LoanWrite, error: KubeRejected) -> None:
        if error.status == 404 and error.reason == "NotFound":
            return  # the node is gone
        self._ledger.rest(work.node, self._clock() + REFUSED_S)
        if not self._written:
            self._refusals.add(work.node)
            if len(self._refusals) >= REFUSALS:
                self._refusals.clear()
                self._again_s = self._clock() + ALL_REST_S
        remedy = REMEDY if self._ledger.on else OFF_REMEDY
        if f"{error.status} {remedy}" not in self._told:
            self._told.add(f"{error.status} {remedy}")
            log.warning("node_loans_refused", node=work.node, error=error, remedy=remedy)


def lent_names(node: OwnedNode) -> set[str]:
    """Under which names it lends."""
    return {name for part in (node.status.capacity, node.status.allocatable) for name in part or () if is_lent(name)}


def status_of(names: Iterable[str], work: LoanWrite) -> dict[str, dict[str, str]]:
    """What is applied: whole numbers, as capacity and as allocatable; nothing in them where it is taken away."""
    amounts = work.amounts or ()
    said = {name: str(amount) for name, amount in zip(names, amounts, strict=bool(amounts))}
    return {"capacity": said, "allocatable": said}


async def keep(
    core: Core,
    ledger: LoanLedger,
    uses: PodUses,
    writes: LoanWrites,
    *,
    tune: Callable[[], None],
    clock: Callable[[], float],
) -> None:
    """Have nodes judged and write what they lend; eternal. ``tune`` has the ledger go by the settings as they are."""
    whole_s, began_s, alone = -math.inf, clock(), False
    while True:
        await asyncio.sleep(EVERY_S)
        tune()
        alone = _say_alone(alone=ledger.on and not core.state.settings.offline_eviction, said=alone)
        whole = clock() - whole_s >= LOOK_S
        if not core.state.started or not (ledger.on or (whole and not writes.resting)):
            continue
        if ledger.on and not uses.answered and clock() - began_s < FIRST_S:
            continue
        if whole:
            whole_s = clock()
            ledger.forget(core.state.cache.table.row_of)
            ledger.tally()
        works = await _due(core, ledger, uses, clock)
        if not writes.resting:  # nodes are judged all the same: their windows go on
            await writes.write(works)


def _say_alone(*, alone: bool, said: bool) -> bool:
    """Once while it lasts: that nodes lend, and nobody is asked to give back."""
    if alone and not said:
        log.warning(
            "lending_without_giving_way",
            effect="where less is lent than offline pods hold they stay",
            remedy="set offline_eviction=on, unless an agent on the nodes evicts them",
        )
    return alone


async def _due(core: Core, ledger: LoanLedger, uses: PodUses, clock: Callable[[], float]) -> list[LoanWrite]:
    """Of all nodes, with pauses for the leader's other work."""
    table, used, pods_on = core.state.cache.table, core.variants.used, core.state.cluster.index.pods_on
    found: list[LoanWrite] = []
    uncertain = judged = 0
    for number, name in enumerate(list(table.row_of)):
        if number % SLICE == 0 or judged >= SLICE:
            judged = 0
            await asyncio.sleep(0)
        row = table.row_of.get(name)
        node = table.nodes[row] if row is not None else None
        if row is None or node is None:
            continue
        now_s = clock()
        if ledger.on:
            generation = int(table.generation[row])
            if not ledger.stale(node, used.get(name), now_s, generation=generation):
                continue
            pods = list(pods_on(name))
            judged += 1 + len(pods)
            ledger.look(node, pods, used.get(name), partial(uses.get, now_s=now_s), now_s)
        work = ledger.due(node, now_s)
        if work is not None:
            found.append(work)
            uncertain += not work.certain
            if not ledger.on and uncertain >= UNCERTAIN:
                break
    return found
