"""Reservations as the leader accounts them, for people: all of them, and which keep a pod from a node. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from services.coordinator.core.core import Core
from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.model.resources import amount_text
from shared.model.units.reservation import NEVER_EXPIRES, reservation_of
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.room.reserved_room import serves

LOOKED_AT, NAMED = 256, 3
"""Of who asks about one pod: reservations that are looked at, and named."""


class ReservationShown(Struct, frozen=True, kw_only=True):
    """One Reservation. ``keeps``: all of its amounts, as people write them; ``left``: of those nobody has taken;
    ``expires_s``: seconds until it is given back, null: never; ``message``: why it waits or has ended."""

    namespace: str
    name: str
    phase: str
    node: str
    priority: int
    once: bool
    keeps: dict[str, str]
    left: dict[str, str]
    taken_by: list[str]
    expires_s: float | None
    message: str


def reservations_shown(core: Core, wall: float) -> list[ReservationShown]:
    """All there are, by namespace and name. ``wall``: seconds since 1970."""
    pods = sorted(core.state.reservations.values(), key=lambda pod: (pod.namespace, pod.name))
    return [_shown(core.state.cluster, pod, wall) for pod in pods]


def _shown(cluster: ClusterState, pod: Pod, wall: float) -> ReservationShown:
    terms = pod.reserves
    assert terms is not None
    reserved = cluster.reserved
    left = reserved.left(pod.uid) if pod.uid in reserved.standing else None
    return ReservationShown(
        namespace=pod.namespace,
        name=reservation_of(pod.name),
        phase=terms.phase.value,
        node=pod.node_name,
        priority=pod.priority,
        once=terms.once,
        keeps=_amounts(pod.pod_class.requests),
        left=_amounts(left.requests) if left is not None else {},
        taken_by=[one.key for one in reserved.owners(pod.uid)] or list(terms.taken_by),
        expires_s=None if terms.phase.over or terms.expires == NEVER_EXPIRES else round(terms.expires - wall, 1),
        message=pod.invalid or terms.message,
    )


def _amounts(requests: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {name: amount_text(name, amount) for name, amount in requests}


def kept_from(core: Core, pod: Pod) -> str:
    """Which reservations alone keep the pod from a node, in words; "" where none does."""
    found = [f"{reserve.namespace}/{reservation_of(reserve.name)} on {node}" for reserve, node in _keeping(core, pod)]
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"room for it is kept for others by reservation {', '.join(found[:NAMED])}{more}"


def kept_by(core: Core, pod: Pod) -> str:
    """Whose kept room a bound pod took, in words: why it is there; "" where it took none, or only says so."""
    if not pod.takes or not pod.node_name or pod.reserves is not None:
        return ""
    reserve = core.state.reservations.get(pod.takes)
    if reserve is None or reserve.reserves is None:
        return f"why here: room was kept for it by a reservation that is gone by now ({pod.takes})"
    if reserve.node_name != pod.node_name or not serves(reserve.reserves, pod):
        return ""
    return f"why here: room was kept for it by reservation {reserve.namespace}/{reservation_of(reserve.name)}"


def _keeping(core: Core, pod: Pod) -> Iterator[tuple[Pod, str]]:
    cluster, state = core.state.cluster, core.state
    table, looked = cluster.table, 0
    for node, uids in cluster.reserved.on.items():
        row = table.row_of.get(node)
        rejection = check_placement(state.feasibility, pod.pod_class, node) if row is not None else None
        if row is None or rejection is None or rejection.plugin != "NodeResourcesFit":
            continue
        for uid in uids:
            looked += 1
            reserve, account = cluster.reserved.standing[uid], cluster.cache.accounts.get(uid)
            if looked > LOOKED_AT:
                return
            if account is None or (reserve.reserves is not None and serves(reserve.reserves, pod)):
                continue
            kept = dict(account.pod_class.requests)
            if all(_free(core, name, row) + kept.get(name, 0) >= amount for name, amount in fitted(pod.pod_class)):
                yield reserve, node


def _free(core: Core, name: str, row: int) -> int:
    table = core.state.cluster.table
    column = table.column_of.get(name)
    return 0 if column is None else int(table.allocatable[column, row] - table.requested[column, row])
