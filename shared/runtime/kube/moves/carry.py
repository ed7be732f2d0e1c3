"""Carries a plan out at the API server: what ``shared/rebalance/carrying.py`` says, by watches.

Every request is bounded; an answer that does not come is asked again until the move's time is over. A move is written
down before its pod is asked to leave: whoever runs next knows of it however this ends. However it ends, evictions on
their way are waited for, and the reservations that nobody uses are given back; where it is killed they end by their
time to live.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from shared.errors import ConfigError, KubeError, KubeExpired, KubeRejected
from shared.kube.objects import KubePod
from shared.kube.pods.convert import owner_of
from shared.kube.pods.standing_pods import SourcedPod
from shared.kube.reservations import RESERVATIONS, ReservationObject, reserve_pod_from_api
from shared.kube.resources import PODS, DeletedObject, Resource, Upserted
from shared.model.units.reservation import RESERVATION_ANNOTATION
from shared.ports import Clock, KubeApi
from shared.rebalance.carrying import (
    Carrying,
    CarryingEvent,
    CarryingInstruction,
    EvictionAnswered,
    EvictMoved,
    GiveBack,
    MoveState,
    PodWatched,
    Reserve,
    ReserveRefused,
    RoomTold,
    StopAsked,
    WatchLost,
)
from shared.rebalance.history import PastMove
from shared.rebalance.plan import Move
from shared.runtime.kube.reservations import ReservationName, create, give_back
from shared.runtime.process.failpoints import Failpoints

LABEL, POD_LABEL = "conclave.io/rebalance", "conclave.io/rebalance-pod"
"""On our Reservations: the run that made them, and the uid of the pod that is to leave."""
NOT_LEADING = "another process may lead by now"
REQUEST_S = 10.0
NO_KIND = "; the cluster has no Reservations: apply k8s/base/reservations-crd.yaml"
BUSY = (409, 429, 500, 502, 503, 504)
GIVE_BACK_S = 15.0
STOP_S = 30.0
"""So long evictions on their way are waited for at the end."""
MOST_AT_A_TIME = 256
"""Objects looked at before others have their turn."""
LEAST_PRIORITY, MOST_PRIORITY = -(10**9), 10**9
"""Of a Reservation."""

WriteMoves = Callable[[Sequence[PastMove]], Awaitable[None]]
"""Writes down what was moved, in place of what was written before. Raises ``KubeError``, ``ConfigError``."""


class CarryOut:
    """One run. ``raws``: the pods of the plan as the API server told them, by uid; ``tell``: a line for people;
    ``write``: the history; ``leads``: asked before whatever takes room or a pod away from others: whether it may go on;
    ``unit``: pods for which room is made, and on which node: what is freed there is kept for them until they stand, or
    ``unit_s`` after the last move; ``changed``: called when a move may be elsewhere."""

    def __init__(
        self,
        api: KubeApi,
        carrying: Carrying,
        raws: Mapping[str, SourcedPod],
        clock: Clock,
        tell: Callable[[str], None],
        write: WriteMoves,
        run: str = "",
        leads: Callable[[], bool] = lambda: True,
        unit: Sequence[tuple[SourcedPod, str]] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._api, self._carrying, self._raws, self._clock, self._tell = api, carrying, raws, clock, tell
        self._write, self._leads, self._unit, self._changed = write, leads, unit, changed
        self._unit_rooms: list[tuple[str, str]] = []
        self.homeless = {raw.metadata.uid: f"{raw.metadata.namespace}/{raw.metadata.name}" for raw, _ in unit}
        """Pods of the unit that stand nowhere yet, by uid."""
        self._unit_seen = asyncio.Event()
        self._failpoints = Failpoints.from_environment()
        self._batch = 0
        self._writing = asyncio.Lock()
        self._written: dict[str, str] = {}
        """The steps that are written down, and who came for each."""
        self.run_name = run or uuid4().hex[:8]
        self._events: asyncio.Queue[CarryingEvent] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._of: dict[tuple[str, str], str] = {}
        """Which step each of our Reservations is for, by namespace and name."""
        self._uids: dict[tuple[str, str], str] = {}
        self._step_of: dict[str, str] = {}
        """Which step each of our Reservations is for, by its uid."""
        self._open: set[tuple[str, str]] = set()
        self._steps = 0

    async def run(self) -> None:
        """Until the plan is carried out, or stopped. Every reservation that nobody uses is given back."""
        try:
            async with asyncio.TaskGroup() as group:
                watches = [
                    group.create_task(self._follow(RESERVATIONS, self._reservation)),
                    group.create_task(self._follow(PODS, self._pod)),
                ]
                try:
                    await asyncio.gather(*(self._keep(number, *one) for number, one in enumerate(self._unit)))
                    self._do(self._carrying.start(self._clock()))
                    await self._turns()
                    await self._housed()
                finally:
                    await self._ended()
                    for watch in watches:
                        watch.cancel()
        finally:
            for task in self._tasks:
                task.cancel()
            expected = self._carrying.expected()
            rest = [where for where in sorted(self._open) if self._of[where] not in expected]
            await self._clean([*rest, *self._unit_rooms])

    async def _housed(self) -> None:
        """Every move was made: the unit is to take the room that is kept for it, before that is given back."""
        if not self.homeless or any(one.state is not MoveState.DONE for one in self._carrying.underway):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._carrying.patience.unit_s):
                await self._unit_seen.wait()

    def stop(self, why: str) -> None:
        """Begin nothing more; ``run`` returns once what is on its way is known."""
        self._events.put_nowait(StopAsked(why))

    async def _ended(self) -> None:
        """What is told already is heard, evictions on their way are waited for, and what became of them is written."""
        while not self._events.empty():
            self._do(self._carrying.tell(self._events.get_nowait(), self._clock()))
        if not self._carrying.over:
            self._do(self._carrying.stop("it ended early"))
        try:
            async with asyncio.timeout(STOP_S):
                await self._turns()
                await self._write_down(again=True)
        except (KubeError, ConfigError, TimeoutError) as error:
            self._tell(f"note     what became of the last moves was not written down: {str(error)[:200]}")

    async def _turns(self) -> None:
        while not self._carrying.over:
            due = self._carrying.due()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                    event = await self._events.get()
            except TimeoutError:
                self._do(self._carrying.tick(self._clock()))
                continue
            self._do(self._carrying.tell(event, self._clock()))

    def _do(self, instructions: Sequence[CarryingInstruction]) -> None:
        self._changed()
        for one in instructions:
            match one:
                case Reserve(move):
                    if move.batch > self._batch:
                        self._batch = move.batch
                        self._failpoints.reach("before_move_batch")
                    self._steps += 1
                    where = move.namespace, f"rebalance-{self.run_name}-{self._steps}"
                    self._of[where] = move.step
                    self._open.add(where)
                    self._tell(f"reserve  {move.key}: room on {move.target}")
                    self._start(self._reserve(move, *where))
                case EvictMoved(move, uid, name):
                    self._tell(f"evict    {move.namespace}/{name} from {move.source}")
                    self._start(self._evict(move, uid, name))
                case GiveBack(move):
                    for where in sorted(self._open):
                        if self._of[where] == move.step:
                            self._start(self._return(where))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reserve(self, move: Move, namespace: str, name: str) -> None:
        patience = self._carrying.patience
        spec = reservation_spec(self._raws[move.uid], move, patience.time_to_live_s)
        where = ReservationName(namespace, name)
        if not self._leads():
            self._open.discard((namespace, name))
            self.stop(NOT_LEADING)
            self._events.put_nowait(ReserveRefused(move.step, NOT_LEADING))
            return
        try:
            async with asyncio.timeout(REQUEST_S):
                await create(self._api, where, spec, labels={LABEL: self.run_name, POD_LABEL: move.uid})
            self._failpoints.reach("after_move_reserve")
        except KubeRejected as error:
            self._open.discard((namespace, name))
            hint = NO_KIND if error.status == 404 else ""
            self._events.put_nowait(ReserveRefused(move.step, f"{str(error)[:200]}{hint}"))
        except (KubeError, TimeoutError):
            pass  # the watch shows it, or its time passes

    async def _keep(self, number: int, raw: SourcedPod, node: str) -> None:
        """Ask for room for a pod of the unit: it is kept as soon as it is free there. Without it others may come first,
        which is told."""
        where = raw.metadata.namespace or "", f"rebalance-{self.run_name}-unit-{number}"
        batches = max((move.batch for move in self._carrying.moves), default=1)
        spec = room_spec(raw, node, batches * self._carrying.patience.time_to_live_s)
        spec["priority"] = min(spec["priority"] + 1, MOST_PRIORITY)  # what others left for it is no older pod's
        self._unit_rooms.append(where)
        try:
            async with asyncio.timeout(REQUEST_S):
                await create(self._api, ReservationName(*where), spec, labels={LABEL: self.run_name})
        except (KubeError, TimeoutError) as error:
            self._tell(f"note     no room is kept for {raw.metadata.name} on {node}: {str(error)[:200] or 'no answer'}")

    async def _write_down(self, *, again: bool = False) -> None:
        """The moves as they are now, unless that is written. Raises ``KubeError``, ``ConfigError``."""
        async with self._writing:
            told = self._carrying.departed()
            if told != self._written if again else not told.keys() <= self._written.keys():
                async with asyncio.timeout(REQUEST_S):
                    await self._write(self._carrying.past(time.time()))
                self._written = told

    async def _evict(self, move: Move, uid: str, name: str) -> None:
        try:
            await self._write_down()
        except (KubeError, ConfigError, TimeoutError) as error:
            why = f"the move cannot be written down: {str(error)[:200] or 'no answer'}"
            self._events.put_nowait(EvictionAnswered(move.step, why, later=True))
            return
        if not self._leads():
            self.stop(NOT_LEADING)
            self._events.put_nowait(EvictionAnswered(move.step, NOT_LEADING))
            return
        self._failpoints.reach("before_move_evict")
        try:
            async with asyncio.timeout(REQUEST_S):
                await self._api.evict(namespace=move.namespace, name=name, uid=uid)
            answer = EvictionAnswered(move.step)
            self._failpoints.reach("after_move_evict")
        except KubeRejected as error:
            if error.status == 404:
                answer = EvictionAnswered(move.step)  # it has left already
            else:
                answer = EvictionAnswered(move.step, str(error)[:200], later=error.status in BUSY)
        except (KubeError, TimeoutError) as error:
            why = str(error)[:200] or "no answer: does a webhook hang?"
            answer = EvictionAnswered(move.step, why, later=True, unsure=True)
        self._events.put_nowait(answer)

    async def _return(self, where: tuple[str, str]) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await give_back(self._api, ReservationName(*where, self._uids.get(where, "")))
            self._open.discard(where)
        except (KubeError, TimeoutError) as error:
            self._tell(f"note     {where[0]}/{where[1]} was not given back ({error}); it ends by its time to live")

    async def _clean(self, rest: Sequence[tuple[str, str]]) -> None:
        """Give back what nobody uses, also where a request had no answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_BACK_S):
                await asyncio.gather(*(self._return(where) for where in rest))

    async def _follow(self, resource: Resource[Any], take: Callable[[Any, bool], None]) -> None:
        """List and watch, again and again where a watch cannot go on."""
        while True:
            try:
                found = await self._api.list(resource)
                for number, item in enumerate(found.items, start=1):
                    take(item, False)
                    if number % MOST_AT_A_TIME == 0:
                        await asyncio.sleep(0)
                if resource is RESERVATIONS:
                    self._missing({(item.metadata.namespace or "", item.metadata.name) for item in found.items})
                else:
                    self._left({item.metadata.uid for item in found.items})
                async for event in self._api.watch(resource, resource_version=found.resource_version):
                    if isinstance(event, Upserted | DeletedObject):
                        take(event.object, isinstance(event, DeletedObject))
            except KubeExpired:
                continue
            except KubeRejected as error:
                if error.status in (401, 403, 404):
                    hint = NO_KIND if error.status == 404 and resource is RESERVATIONS else ""
                    self._events.put_nowait(WatchLost(f"{resource.plural} cannot be watched: {error}{hint}"))
                    return
                await asyncio.sleep(1.0)
            except KubeError:
                await asyncio.sleep(1.0)

    def _missing(self, there: set[tuple[str, str]]) -> None:
        """Ours that a list does not show any more, and that were seen before."""
        for where in [where for where in self._open if where in self._uids and where not in there]:
            self._gone(where)

    def _left(self, there: set[str]) -> None:
        """Pods of moves that a list does not show any more."""
        for pod in self._carrying.watched():
            if pod.uid not in there:
                self._events.put_nowait(pod)

    def _gone(self, where: tuple[str, str]) -> None:
        self._open.discard(where)
        self._events.put_nowait(RoomTold(self._of[where], ""))

    def _reservation(self, item: ReservationObject, deleted: bool) -> None:
        where = item.metadata.namespace or "", item.metadata.name
        step = self._of.get(where)
        if step is None:
            return
        if deleted:
            self._gone(where)
            return
        self._uids[where] = item.metadata.uid
        self._step_of[item.metadata.uid] = step
        pod = reserve_pod_from_api(item)
        if (terms := pod.reserves) is None:
            return
        if terms.phase.over:
            self._open.discard(where)
        message = pod.invalid or terms.message or terms.reason
        if terms.phase.value == "Succeeded":
            self._failpoints.reach("after_move_taken")
        taken = terms.taken_by[0] if terms.taken_by else ""
        self._events.put_nowait(RoomTold(step, terms.phase.value, pod.node_name, message, taken))

    def _pod(self, pod: KubePod, deleted: bool) -> None:
        meta = pod.metadata
        if meta.uid in self.homeless and (pod.spec.node_name or deleted):
            if not deleted:
                del self.homeless[meta.uid]
            if deleted or not self.homeless:
                self._unit_seen.set()
        _, kind, name = owner_of(meta)
        reservation = (meta.annotations or {}).get(RESERVATION_ANNOTATION, "")
        took = self._step_of.get(reservation, "") if reservation else ""
        owner = f"{kind}/{name}" if name else ""
        if not took and not self._carrying.concerns(meta.uid, meta.namespace or "", owner):
            return
        self._events.put_nowait(
            PodWatched(
                meta.uid,
                meta.namespace or "",
                meta.name,
                owner,
                pod.spec.node_name or "",
                took=took,
                gone=deleted or meta.deletion_timestamp is not None,
                ready=is_ready(pod),
            )
        )


def is_ready(pod: KubePod) -> bool:
    """Whether it serves, or has done what it was to do."""
    conditions = pod.status.conditions or ()
    return pod.status.phase == "Succeeded" or any(one.type == "Ready" and one.status == "True" for one in conditions)


def reservation_spec(raw: SourcedPod, move: Move, time_to_live_s: int) -> dict[str, Any]:
    """What is asked for: room for a pod as its owner makes it, on the target, for one of that owner's pods."""
    _, kind, name = owner_of(raw.metadata)
    found = room_spec(raw, move.target, time_to_live_s)
    return found | {"owners": [{"controller": {"kind": kind, "name": name}}]}


def room_spec(raw: SourcedPod, node: str, time_to_live_s: int) -> dict[str, Any]:
    """Room of the pod's shape on a node, for the pod itself."""
    spec = msgspec.to_builtins(raw.spec)
    for field in ("nodeName", "schedulingGates", "priority"):
        spec.pop(field, None)
    meta = {"labels": raw.metadata.labels or {}}
    return {
        "template": {"metadata": meta, "spec": spec},
        "owners": [{"pod": raw.metadata.name}],
        "nodes": {"names": [node]},
        "priority": min(max(raw.spec.priority or 0, LEAST_PRIORITY), MOST_PRIORITY),
        "allocateOnce": True,
        "ttlSeconds": time_to_live_s,
    }
