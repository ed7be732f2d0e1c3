"""Drains a node at the API server: what ``shared/rebalance/draining`` says, by watches.

Every request is bounded. Room is kept by Reservations with a short time to live that is renewed while this runs:
however it ends, those that nobody needs are given back, and where it is killed they end by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from services.cli.drain.rooms import Going, RoomJudge, Way, room_spec
from services.cli.reserve.spec import WORKLOADS, OwningWorkload
from shared.errors import KubeError, KubeExpired, KubeRejected, ObjectError
from shared.kube.objects import Json, KubeNode, KubePod, OwnerReference, PartialObject
from shared.kube.pods.convert import owner_of
from shared.kube.pods.standing_pods import SourcedPod
from shared.kube.reservations import RESERVATIONS, ReservationObject, reserve_pod_from_api
from shared.kube.resources import NODES, PODS, DeletedObject, Resource, Upserted
from shared.model.units.reservation import RESERVATION_ANNOTATION, ReservationPhase
from shared.ports import Clock, KubeApi
from shared.rebalance.carrying import EvictionAnswered, ReserveRefused, RoomTold, WatchLost
from shared.rebalance.draining.draining import (
    NEVER,
    AskOwner,
    Departure,
    DrainEvent,
    Draining,
    DrainInstruction,
    EvictLeaver,
    LeaverState,
    OwnerWants,
    PodShown,
    ReturnRoom,
    RoomUnfit,
    SeekRoom,
)
from shared.rebalance.draining.leavers import Leaver
from shared.runtime.kube.moves.carry import BUSY, MOST_AT_A_TIME, NO_KIND, is_ready
from shared.runtime.kube.reservations import ReservationName, create, give_back

LEAVER_LABEL = "conclave.io/drained-pod"
"""On our Reservations: the uid of the pod that is to leave."""
TIME_TO_LIVE_S = 300
REQUEST_S = 10.0
GIVE_BACK_S = 15.0


class OwnerSpec(Json, frozen=True):
    replicas: int | None = None


class OwnerStatus(Json, frozen=True):
    ready_replicas: int | None = None
    completion_time: str | None = None


class OwnerObject(PartialObject, frozen=True):
    """What tells whether a controller wants more pods."""

    spec: OwnerSpec | None = None
    status: OwnerStatus | None = None


OWNER = msgspec.json.Decoder(OwnerObject)


class DrainingApi(KubeApi, Protocol):
    """An API server that workloads are read from too."""

    async def read(self, route: str, path: str, *, timeout_s: float = 5.0) -> bytes:
        """The answer of a GET."""
        ...


class DrainOut:
    """One node. ``raws``: its pods as the API server told them, by uid; ``judge``: which nodes a pod with volumes may
    go to; ``ours``: scheduler names that a mesh serves; ``tell``: a line for people; ``timeout_s``: 0 none."""

    def __init__(
        self,
        api: DrainingApi,
        draining: Draining,
        raws: Mapping[str, SourcedPod],
        judge: RoomJudge,
        ours: Sequence[str],
        clock: Clock,
        tell: Callable[[str], None],
        timeout_s: float = 0.0,
    ) -> None:
        self._api, self._draining, self._raws, self._judge = api, draining, raws, judge
        self._ours, self._clock, self._tell = ours, clock, tell
        self._until = clock() + timeout_s if timeout_s else NEVER
        self._run_name = uuid4().hex[:8]
        self._events: asyncio.Queue[DrainEvent] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[tuple[str, str], tuple[str, str, float]] = {}
        """Our Reservations by namespace and name: (step, uid, when they were asked for)."""
        self._step_of: dict[str, str] = {}
        """Which step each of our Reservations is for, by its uid."""
        self._sought = 0
        self._found: set[tuple[str, str]] = set()
        """Rooms that people were told of."""

    async def run(self) -> None:
        """Until the node is empty, or nothing more can be done. Every room that nobody needs is given back."""
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(self._follow(RESERVATIONS, self._reservation)),
                    group.create_task(self._follow(PODS, self._pod)),
                    group.create_task(self._follow(NODES, self._node)),
                    group.create_task(self._renew()),
                ]
                try:
                    self._do(self._draining.start(self._clock()))
                    await self._turns()
                finally:
                    for task in beside:
                        task.cancel()
        finally:
            if not self._draining.over:
                self._do(self._draining.stop("interrupted"))
            kept = self._draining.kept()
            await self._clean([where for where, (step, _, _) in self._open.items() if step not in kept])

    async def _turns(self) -> None:
        while not self._draining.over:
            due = min(self._draining.due(), self._until)
            try:
                async with asyncio.timeout(None if due == NEVER else max(0.0, due - self._clock())):
                    event = await self._events.get()
            except TimeoutError:
                now = self._clock()
                late = now >= self._until
                self._do(self._draining.stop("its --timeout is over") if late else
                         self._draining.tick(now))  # fmt: skip
                continue
            self._do(self._draining.tell(event, self._clock()))

    def _do(self, instructions: Sequence[DrainInstruction]) -> None:
        for one in instructions:
            match one:
                case SeekRoom(leaver, step):
                    self._sought += 1
                    where = leaver.namespace, f"drain-{self._run_name}-{self._sought}"
                    self._open[where] = step, "", self._clock()
                    self._start(self._seek(leaver, step, where))
                case EvictLeaver(leaver):
                    if self._unfit(leaver):
                        why = f"its room on {self._departure(leaver).room_on} would not take its replacement any more"
                        self._events.put_nowait(RoomUnfit(leaver.uid, why))
                        continue
                    self._tell(f"evict    {leaver.key}")
                    self._start(self._evict(leaver))
                case ReturnRoom(step):
                    for where in [where for where, (its, _, _) in self._open.items() if its == step]:
                        self._start(self._return(where))
                case AskOwner(leaver):
                    self._start(self._ask_owner(leaver))

    def _unfit(self, leaver: Leaver) -> bool:
        """What its Reservation does not keep may have changed since, and who leaves beside it counts where it goes."""
        one = self._departure(leaver)
        fits = self._judge.fits(leaver, one.room_on, self._room_of(one), *self._ways(leaver))
        return leaver.replaced and not fits

    def _ways(self, leaver: Leaver) -> tuple[Way, ...]:
        """Others have left; those who are asked may leave, or stay."""
        left, asked = list[Going](), list[Going]()
        for one in self._draining.departures:
            if one.leaver.uid != leaver.uid and one.state in (LeaverState.LEAVING, LeaverState.DONE, LeaverState.ASKED):
                # A room without a step has a pod that took it, not yet seen bound: its Reservation counts for it.
                waited = one.state is not LeaverState.DONE and not one.replacement[0] and bool(one.step)
                where = asked if one.state is LeaverState.ASKED else left
                where.append(Going(one.leaver.uid, one.room_on if waited else "", self._room_of(one)))
        return (left, [*left, *asked]) if asked else (left,)

    def _departure(self, leaver: Leaver) -> Departure:
        return next(one for one in self._draining.departures if one.leaver.uid == leaver.uid)

    def _room_of(self, one: Departure) -> str:
        return next((uid for step, uid, _ in self._open.values() if step == one.step), "") if one.step else ""

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _seek(self, leaver: Leaver, step: str, where: tuple[str, str]) -> None:
        judged = leaver.named or leaver.ruled
        names = self._judge.nodes_for(leaver, *self._ways(leaver)) if judged else []
        if judged and not names:
            del self._open[where]
            by = ["volumes or claims"] * leaver.named + ["rules of spread or affinity"] * leaver.ruled
            self._events.put_nowait(ReserveRefused(step, f"no other node takes it with its {' and '.join(by)}"))
            return
        raw = self._raws[leaver.uid]
        spec = room_spec(raw, leaver, self._draining.node, TIME_TO_LIVE_S, names=names, ours=self._ours)
        version, kind, name, uid = leaver.owner
        try:
            async with asyncio.timeout(REQUEST_S):
                await create(
                    self._api, ReservationName(*where), spec, owner=OwnerReference(version, kind, name, uid),
                    labels={LEAVER_LABEL: leaver.uid},
                )  # fmt: skip
        except KubeRejected as error:
            self._open.pop(where, None)
            hint = NO_KIND if error.status == 404 else ""
            self._events.put_nowait(ReserveRefused(step, f"{str(error)[:200]}{hint}"))
        except (KubeError, TimeoutError) as error:  # the watch shows it, or its time passes
            why = f"asking for room had no good answer: {str(error)[:200] or 'none at all'}"
            self._events.put_nowait(RoomTold(step, ReservationPhase.PENDING.value, message=why))

    async def _evict(self, leaver: Leaver) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await self._api.evict(namespace=leaver.namespace, name=leaver.name, uid=leaver.uid)
            answer = EvictionAnswered(leaver.uid)
        except KubeRejected as error:
            if error.status == 404:
                answer = EvictionAnswered(leaver.uid)  # it has left already
            else:
                answer = EvictionAnswered(leaver.uid, str(error)[:200], later=error.status in BUSY)
        except (KubeError, TimeoutError) as error:
            why = str(error)[:200] or "no answer: does a webhook hang?"
            answer = EvictionAnswered(leaver.uid, why, later=True, unsure=True)
        if answer.refused:
            self._tell(f"wait     {leaver.key}: {answer.refused}")
        self._events.put_nowait(answer)

    async def _ask_owner(self, leaver: Leaver) -> None:
        """Whether the controller has as many as it wants, or is gone; of one that does not say so it wants more."""
        group, _, version = leaver.owner[0].rpartition("/")
        workload = OwningWorkload(group, version, leaver.owner[1], leaver.owner[2])
        try:
            path = workload.path(leaver.namespace)
            found = OWNER.decode(await self._api.read("get workload", path, timeout_s=REQUEST_S))
            wanted = found.spec.replicas if found.spec is not None else None
            status = found.status or OwnerStatus()
            if found.metadata.uid != leaver.owner[3]:
                more = False
            elif wanted is not None:
                more = wanted > (status.ready_replicas or 0)
            else:
                more = not status.completion_time
        except KubeRejected as error:  # the path of a kind that is not known here is a guess
            more = error.status != 404 or workload.kind.lower() not in WORKLOADS
        except (KubeError, msgspec.DecodeError, TimeoutError):
            more = True
        self._events.put_nowait(OwnerWants(leaver.uid, more))

    async def _renew(self) -> None:
        """While this runs no room ends by its time."""
        while True:
            await asyncio.sleep(TIME_TO_LIVE_S / 3)
            for (namespace, name), (_, uid, since) in list(self._open.items()):
                patch = {"metadata": {"uid": uid}, "spec": {"ttlSeconds": int(self._clock() - since) + TIME_TO_LIVE_S}}
                with contextlib.suppress(KubeError, TimeoutError):
                    if uid:
                        await self._api.patch(
                            RESERVATIONS, namespace=namespace, name=name, patch=patch, strategy="merge"
                        )  # fmt: skip

    async def _return(self, where: tuple[str, str]) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                await give_back(self._api, ReservationName(*where, self._open.get(where, ("", "", 0.0))[1]))
        except (KubeError, TimeoutError) as error:
            self._tell(f"note     {where[0]}/{where[1]} was not given back ({error}); it ends by its time to live")
        self._open.pop(where, None)  # nor is it renewed

    async def _clean(self, rest: Sequence[tuple[str, str]]) -> None:
        """Give back what nobody needs, also where a request had no answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_BACK_S):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await asyncio.gather(*(self._return(where) for where in rest if where in self._open))
        for task in self._tasks:
            task.cancel()

    async def _follow(self, resource: Resource[Any], take: Callable[[Any, bool], None]) -> None:
        """List and watch, again and again where a watch cannot go on."""
        while True:
            try:
                found = await self._api.list(resource)
                for number, item in enumerate(found.items, start=1):
                    take(item, False)
                    if number % MOST_AT_A_TIME == 0:
                        await asyncio.sleep(0)
                there = {item.metadata.uid for item in found.items}
                self._judge.only(resource, there, {item.metadata.name for item in found.items})
                self._missing(resource, there)
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

    def _missing(self, resource: Resource[Any], there: set[str]) -> None:
        """What a list does not show any more."""
        if resource is NODES:
            return
        if resource is PODS:
            for one in self._draining.departures:
                leaver = one.leaver
                if not one.over and leaver.uid not in there:
                    self._events.put_nowait(PodShown(leaver.uid, leaver.namespace, leaver.name, gone=True))
                if one.replacement[0] and one.replacement[0] not in there:
                    uid, name = one.replacement
                    self._events.put_nowait(PodShown(uid, leaver.namespace, name, leaver.controller, gone=True))
            return
        for where in [where for where, (_, uid, _) in self._open.items() if uid and uid not in there]:
            self._gone(where)

    def _gone(self, where: tuple[str, str]) -> None:
        step, _, _ = self._open.pop(where)
        self._events.put_nowait(RoomTold(step, ""))

    def _reservation(self, item: ReservationObject, deleted: bool) -> None:
        pod = reserve_pod_from_api(item)
        self._judge.see_room(pod, gone=deleted)
        where = item.metadata.namespace or "", item.metadata.name
        known = self._open.get(where)
        if known is None:
            return
        if deleted:
            self._gone(where)
            return
        step, _, since = known
        self._open[where] = step, item.metadata.uid, since
        self._step_of[item.metadata.uid] = step
        if (terms := pod.reserves) is None:
            return
        if terms.phase is ReservationPhase.AVAILABLE and where not in self._found:
            self._found.add(where)
            self._tell(f"room     on {pod.node_name} for {item.metadata.namespace}/{self._name_of(step)}")
        if terms.phase.over:
            self._open.pop(where)
        message = pod.invalid or terms.message or terms.reason
        taken = terms.taken_by[0] if terms.taken_by else ""
        self._events.put_nowait(RoomTold(step, terms.phase.value, pod.node_name, message, taken))

    def _name_of(self, step: str) -> str:
        return next((one.leaver.name for one in self._draining.departures if one.step == step), "a pod")

    def _node(self, node: KubeNode, deleted: bool) -> None:
        with contextlib.suppress(ObjectError):  # of one that cannot be read the mesh knows nothing either
            self._judge.see_node(node, gone=deleted)

    def _pod(self, pod: KubePod, deleted: bool) -> None:
        self._judge.see_pod(pod, gone=deleted)
        meta = pod.metadata
        _, kind, name = owner_of(meta)
        reservation = (meta.annotations or {}).get(RESERVATION_ANNOTATION, "")
        took = self._step_of.get(reservation, "") if reservation else ""
        owner = f"{kind}/{name}" if name else ""
        if not took and not self._draining.concerns(meta.uid, meta.namespace or "", owner):
            return
        self._events.put_nowait(
            PodShown(
                meta.uid, meta.namespace or "", meta.name, owner, pod.spec.node_name or "", took=took,
                leaves=meta.deletion_timestamp is not None, gone=deleted, ready=is_ready(pod),
            )
        )  # fmt: skip
