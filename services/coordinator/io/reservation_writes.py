"""Writes what becomes of Reservations, and the annotations of nodes that room is kept on, one after the other; what is
due is ``reservations/keeper.py``'s.

A write that fails is made again at a later look, since the watch does not show it. One that is refused (by the role, or
by a webhook that guards one namespace) is told once and made again rarely, each for itself: the others go on.

Annotations of a node that others have written stay: the node says itself which were added, so whoever leads takes away
those and no others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from services.coordinator.core.core import Core
from services.coordinator.core.instructions import KeepRoom
from services.coordinator.reservations.keeper import (
    DropReservation,
    EndReservation,
    MarkNode,
    ReservationKeeper,
    ReservationWork,
    TellReservation,
)
from shared.errors import NAMESPACE_ENDS, KubeError, KubeRejected
from shared.kube.pods.convert import controller_of
from shared.kube.reservations import RESERVATIONS
from shared.kube.resources import NODES, PODS
from shared.model.node import NOT_REMOVED
from shared.model.pod import Pod
from shared.model.units.reservation import RESERVED_ANNOTATIONS, reservation_of
from shared.ports import KubeApi
from shared.runtime.kube import reservations
from shared.runtime.kube.reservations import ReservationName

log = structlog.get_logger()

EVERY_S = 1.0
REFUSED_S = 300.0
REMEDY = "apply k8s/base/reservations-crd.yaml and rbac.yaml of this version"


class ReservationWrites:
    """``may_act``: whether the lease holds; ``reached``: names the gaps in which a process may die."""

    def __init__(self, api: KubeApi, *, may_act: Callable[[], bool], reached: Callable[[str], None]) -> None:
        self._api = api
        self._may_act = may_act
        self._reached = reached
        self._refused_until: dict[str, float] = {}
        """By what was to be written to, when that is tried again."""

    async def keep(self, core: Core, *, clock: Callable[[], float], every_s: float = EVERY_S) -> None:
        """Write what is due; eternal."""
        keeper = ReservationKeeper(core.state)
        while True:
            await asyncio.sleep(every_s)
            ready = core.state.started and RESERVATIONS.plural not in core.takeover.missing
            if ready:
                await self.write_all(keeper.due(time.time()), clock)

    async def write_all(self, due: Sequence[ReservationWork], clock: Callable[[], float]) -> None:
        """What is due, but what was refused lately."""
        objects = [work.node if isinstance(work, MarkNode) else work.pod.uid for work in due]
        self._refused_until = {one: self._refused_until[one] for one in objects if one in self._refused_until}
        for work, one in zip(due, objects, strict=True):
            if clock() < self._refused_until.get(one, 0.0):
                continue
            if not self._may_act():
                break
            if not await self.write(work, told=one in self._refused_until):
                self._refused_until[one] = clock() + REFUSED_S

    async def write(self, work: ReservationWork, *, told: bool = False) -> bool:
        """False: we may not write that, which no other try would change; people are told of it, unless they were."""
        try:
            match work:
                case EndReservation(pod=pod):
                    self._reached("before_reservation_end")
                    await reservations.end(
                        self._api, _name(pod), version=pod.resource_version, phase=work.phase, reason=work.reason,
                        message=work.message, owners=work.owners,
                    )  # fmt: skip
                    self._reached("after_reservation_end")
                case TellReservation(pod=pod):
                    await reservations.tell(
                        self._api, _name(pod), version=pod.resource_version, reason=work.reason or "Available",
                        message=work.message or f"room is kept on {pod.node_name}", owners=work.owners,
                        ready=not work.reason,
                    )  # fmt: skip
                case DropReservation(pod=pod):
                    await reservations.give_back(self._api, _name(pod))
                case MarkNode():
                    self._reached("before_node_mark")
                    await self._mark(work)
                    self._reached("after_node_mark")
        except KubeRejected as error:
            log.info("reservation_unwritten", work=type(work).__name__, error=error)
            if error.status in (403, 405):
                if not told:
                    log.warning("reservation_refused", object=_key(work), error=error, remedy=REMEDY)
                return False
        except KubeError as error:
            log.info("reservation_unwritten", work=type(work).__name__, error=error)
        return True

    async def reserve(self, work: KeepRoom) -> None:
        """Make the Reservation for what a pod leaves, while the lease holds. One that is there already is that. It goes
        with the pod's controller; of a pod that is gone by then it ends with its time."""
        try:
            pod = await self._api.get(PODS, namespace=work.namespace, name=work.pod)
            owner = controller_of(pod.metadata) if pod is not None and pod.metadata.uid == work.uid else None
            if not self._may_act():
                return
            self._reached("before_keep_room")
            await reservations.create(
                self._api, ReservationName(work.namespace, work.name), work.spec, owner=owner, labels=work.labels
            )  # fmt: skip
        except KubeError as error:
            there = isinstance(error, KubeRejected) and error.status == 409
            level = log.debug if there or NAMESPACE_ENDS in str(error) else log.warning
            level("room_not_kept", reservation=f"{work.namespace}/{work.name}", error=error)

    async def _mark(self, work: MarkNode) -> None:
        node = await self._api.get(NODES, namespace="", name=work.node)
        if node is None:
            return
        changes = marks_of(node.metadata.annotations or {}, keep=work.keep)
        if not changes:
            return
        meta = node.metadata
        patch = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": changes}}
        await self._api.patch(
            NODES, namespace="", name=work.node, patch=patch, strategy="merge", wait_when_busy=False
        )  # fmt: skip


def marks_of(shown: Mapping[str, str], *, keep: bool) -> dict[str, Any]:
    """The merge patch of a node's annotations, empty where they are as they should be; None takes one away."""
    noted = [key for key in shown.get(RESERVED_ANNOTATIONS, "").split(",") if key in NOT_REMOVED]
    if not keep:
        if RESERVED_ANNOTATIONS not in shown:
            return {}
        return dict.fromkeys([RESERVED_ANNOTATIONS, *(key for key in noted if key in shown)])
    missing = [key for key in NOT_REMOVED if key not in shown]
    ours = [key for key in NOT_REMOVED if key in noted or key in missing]
    if not missing and RESERVED_ANNOTATIONS in shown:
        return {}
    return {**dict.fromkeys(missing, "true"), RESERVED_ANNOTATIONS: ",".join(ours)}


def _key(work: ReservationWork) -> str:
    return work.node if isinstance(work, MarkNode) else f"{work.pod.namespace}/{reservation_of(work.pod.name)}"


def _name(pod: Pod) -> ReservationName:
    return ReservationName(pod.namespace, reservation_of(pod.name), pod.uid)
