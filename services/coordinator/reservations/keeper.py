"""What becomes of Reservations, and which nodes are to say that room is kept on them. Pure; asked now and then.

    Pending, Available --time over--> Expired
    Available --a pod took it, for once--> Succeeded        shared: its owners are told
              --its node is gone, or holds more than it has--> Failed: room that is not there is kept for nobody
    over for ``KEPT_S`` --> deleted

What is due follows from what the API server shows, so whoever leads next goes on, and a write that was lost is made
again. Owners that go take their Reservations along by themselves: those name them (the garbage collector).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from services.coordinator.core.state import CoordinatorState
from shared.model.constraints import gpu_milli_of
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.model.units.reservation import Reservation, ReservationPhase

KEPT_S = 600.0
"""So long people can read how a Reservation ended."""
FOREIGN_S = 10.0
"""So long the scheduler that a template names has the word; then it is told that it is not this one."""
MARK_AGAIN_S = 30.0
"""Pause before a node is marked again whose annotations somebody has taken away, or that could not be written."""


class EndReservation(Struct, frozen=True):
    """Write that it keeps nothing any more."""

    pod: Pod
    phase: ReservationPhase
    reason: str
    message: str
    owners: tuple[Pod, ...] = ()


class TellReservation(Struct, frozen=True):
    """Write who shares it, or (``reason``) why it waits."""

    pod: Pod
    owners: tuple[Pod, ...] = ()
    reason: str = ""
    message: str = ""


class DropReservation(Struct, frozen=True):
    """Delete it: it has been over for long."""

    pod: Pod


class MarkNode(Struct, frozen=True):
    """Make the node bear what keeps autoscalers from removing it, or (``keep`` False) take away what of it is ours."""

    node: str
    keep: bool


ReservationWork = EndReservation | TellReservation | DropReservation | MarkNode


class ReservationKeeper:
    """One term's."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._marked_at: dict[str, float] = {}

    def due(self, wall: float) -> list[ReservationWork]:
        """What is to be written now. ``wall``: seconds since 1970."""
        state = self._state
        if not state.reservations and not state.spared:
            return []
        found: list[ReservationWork] = [
            work for pod in state.reservations.values()
            if pod.reserves is not None and (work := self._of(pod, pod.reserves, wall)) is not None
        ]  # fmt: skip
        ending = {work.pod.uid for work in found if isinstance(work, EndReservation)}
        found += [work for work in self._lost() if work.pod.uid not in ending]
        found += self._marks()
        return found

    def _of(self, pod: Pod, terms: Reservation, wall: float) -> ReservationWork | None:
        reserved = self._state.cluster.reserved
        if terms.phase.over:
            ended = terms.ended or terms.expires
            return DropReservation(pod) if wall >= ended + KEPT_S else None
        owners = tuple(reserved.owners(pod.uid))
        if terms.once and (owners or pod.uid in reserved.spent):
            by = ", ".join(one.key for one in owners) or "a pod that is gone"
            return EndReservation(pod, ReservationPhase.SUCCEEDED, "Taken", f"taken by {by}", owners)
        if wall >= terms.expires and len(reserved.takers.get(pod.uid, ())) == len(owners):
            why = pod.invalid or "nobody took it in time"
            return EndReservation(pod, ReservationPhase.EXPIRED, "TimeOver", why, owners)
        if not terms.once and sorted(one.name for one in owners) != sorted(terms.taken_by):
            return TellReservation(pod, owners)
        waits = terms.phase is ReservationPhase.PENDING and not terms.reason and wall >= terms.created + FOREIGN_S
        if waits and pod.scheduler_name not in self._state.ours:
            return TellReservation(pod, reason="OtherScheduler", message=self._foreign(pod))
        return None

    def _foreign(self, pod: Pod) -> str:
        ours = ", ".join(sorted(self._state.ours))
        return (
            f"spec.template.spec.schedulerName: {pod.scheduler_name!r} is another scheduler's, and {ours} "
            "places none for it; make it again with one of these, or with none"
        )

    def _lost(self) -> Iterator[EndReservation]:
        """Those whose room is not there: the node has gone, or others took it who know of no reservation."""
        state, reserved = self._state, self._state.cluster.reserved
        table = state.cache.table
        for node, uids in reserved.on.items():
            row = table.row_of.get(node)
            kept = [reserved.standing[uid] for uid in uids]
            if row is None:
                yield from (self._failed(pod, "NodeGone", f"node {node} is gone") for pod in kept)
                continue
            over = [
                name for name, column in table.column_of.items()
                if table.requested[column, row] > table.allocatable[column, row]
            ]  # fmt: skip
            short = self._short_devices(node, row)
            if short and GPU_MILLI not in over:
                over.append(GPU_MILLI)
            if not over:
                continue
            for pod in sorted(kept, key=lambda one: (not self._taken_untold(one), one.priority, -_since(one))):
                account = state.cache.accounts.get(pod.uid)
                if account is None or (short and over == [GPU_MILLI] and not short.intersection(account.devices)):
                    continue
                if any(name in over for name, _ in account.pod_class.requests):
                    yield self._failed(pod, "RoomLost", f"{node} holds more than it has of {', '.join(sorted(over))}")
                    break

    def _short_devices(self, node: str, row: int) -> set[int]:
        """Devices of which pods that stand there have more than there is; which ones those on their way get is not
        known yet."""
        cache, used = self._state.cache, Counter[int]()
        if min(cache.table.device_free[row], default=0) >= 0:
            return set()
        for account in (cache.accounts[uid] for uid in cache.pods_on(node)):
            for device in account.devices if account.assumed_at is None else ():
                used[device] += gpu_milli_of(account.pod_class) // len(account.devices)
        return {device for device, milli in used.items() if milli > MILLI_PER_DEVICE}

    def _taken_untold(self, pod: Pod) -> bool:
        """Whether a pod that was let have it stands there beside it: then it is that one whose room is not there."""
        account = self._state.cache.accounts.get(self._state.cluster.reserved.untold.get(pod.uid, ""))
        return account is not None and account.node_name == pod.node_name

    def _failed(self, pod: Pod, reason: str, message: str) -> EndReservation:
        owners = tuple(self._state.cluster.reserved.owners(pod.uid))
        return EndReservation(pod, ReservationPhase.FAILED, reason, message, owners)

    def _marks(self) -> Iterator[MarkNode]:
        state, now = self._state, self._state.now
        wanted, rows = state.cluster.reserved.on, state.cache.table.row_of
        for node in [*wanted, *(name for name in state.spared if name not in wanted)]:
            marked, spared = state.spared.get(node, (False, False))
            keep = node in wanted
            right = (marked and spared) if keep else not marked
            if right:
                self._marked_at.pop(node, None)
            elif not keep and not state.reservations_served:
                continue  # who may not see them does not know that there are none
            elif node in rows and now >= self._marked_at.get(node, now):
                self._marked_at[node] = now + MARK_AGAIN_S
                yield MarkNode(node, keep)


def _since(pod: Pod) -> float:
    return pod.reserves.created if pod.reserves is not None else 0.0
