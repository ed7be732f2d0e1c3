"""A Reservation as the scheduler sees it: who may use the room that its *reserve pod* holds, and until when (ADR 0089).

The room itself is a ``Pod`` (``Pod.reserves``), so that every rule, policy and the binder count it as they count pods.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from shared.model.terms.labels import LabelSelector

RESERVATION_ANNOTATION = "conclave.io/reservation"
"""On a bound pod: the uid of the Reservation whose room it took. The Binding writes it."""

KEEP_ROOM_ANNOTATION = "conclave.io/keep-room"
"""On a pod (of a workload: in its template): for so many seconds after it begins to leave its room is kept for the next
pod of the same controller."""

KEEPS_ROOM_LABEL = "conclave.io/keeps-room"
"""On a Reservation that is made for what a pod leaves: it is nominated to its one node until that has the room."""

RESERVED_ANNOTATIONS = "conclave.io/reserved-annotations"
"""On a node that room is kept on: which annotations by which autoscalers leave a node alone it did not bear before."""

RESERVE_PREFIX = "reservation:"
"""How the names of reserve pods begin; no object's name has a colon."""

NEVER_EXPIRES = float("inf")


class ReservationPhase(Enum):
    """Where a Reservation is: ``Pending -> Available -> Succeeded | Expired | Failed``; Pending may end too."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    EXPIRED = "Expired"
    FAILED = "Failed"

    @property
    def over(self) -> bool:
        """Whether it keeps nothing any more, and never will."""
        return self in (ReservationPhase.SUCCEEDED, ReservationPhase.EXPIRED, ReservationPhase.FAILED)


class ReservationOwner(Struct, frozen=True, gc=False):
    """Whose pods may use it: all that is given must hold. ``kind``, ``name``: of the controller, a Deployment too;
    ``labels``: of the pod; ``pod``: its name."""

    kind: str = ""
    name: str = ""
    labels: LabelSelector | None = None
    pod: str = ""


class Reservation(Struct, frozen=True, gc=False):
    """What a reserve pod keeps its room for. ``once``: the first pod that takes it uses it up, whatever it leaves; else
    several share it, and what they leave comes back. ``expires``: seconds since 1970. ``observed``: generation that the
    status is about; ``taken_by``: names of pods, as the status says."""

    name: str
    phase: ReservationPhase = ReservationPhase.PENDING
    once: bool = True
    owners: tuple[ReservationOwner, ...] = ()
    namespaces: tuple[str, ...] = ()
    expires: float = NEVER_EXPIRES
    created: float = 0.0
    ended: float = 0.0
    """Seconds since 1970 at which it ended; 0: it has not."""
    reason: str = ""
    """Of the condition Ready, as the status says."""
    message: str = ""
    taken_by: tuple[str, ...] = ()
    taker: str = ""
    """Uid of the pod that the status names as the one who takes it, of one for once: bound, on its way, or gone."""
    observed: int = 0
    generation: int = 0


def reserve_name(name: str) -> str:
    """The name of the reserve pod of the Reservation called ``name``."""
    return f"{RESERVE_PREFIX}{name}"


def reservation_of(pod_name: str) -> str:
    """The name of the Reservation whose reserve pod is called so; "" for a pod."""
    return pod_name.removeprefix(RESERVE_PREFIX) if pod_name.startswith(RESERVE_PREFIX) else ""
