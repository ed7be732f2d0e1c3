"""Queue objects (``conclave.io/v1alpha1``) as typed structs, and their conversion to the model. Pure.

A field that cannot be used never loses the queue: it is told in ``Queue.problem``, with the remedy, and the queue's
units wait. So the structs are lenient: what a CRD's schema would refuse may still come from one that was changed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from msgspec import field

from shared.kube.objects import Json, ObjectMeta
from shared.kube.resources import Resource
from shared.kube.spec_reader import SpecReader
from shared.model.resources import parse_amount, quantity_text
from shared.model.units.queue import Queue, QueueCondition, QueueStatus, QueueStrategy, ReclaimUpTo, UnitOrder


class QueueSpec(Json, frozen=True):
    parent: Any = None
    weight: Any = None
    order: Any = None
    strategy: Any = None
    namespaces: Any = None
    guaranteed: Any = None
    maximum: Any = None
    borrowing_limit: Any = None
    lending_limit: Any = None
    reclaim: Any = None
    min_runtime_seconds: Any = None
    history: Any = None


class QueueObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: Any = None


QUEUES = Resource("Queue", "conclave.io", "v1alpha1", "queues", False, QueueObject)


def queue_from_api(item: QueueObject) -> Queue:
    """The queue; what is wrong with it in ``problem``."""
    meta, spec, read = item.metadata, item.spec, SpecReader()
    guaranteed, maximum = (
        _amounts(read, "guaranteed", spec.guaranteed) or {},
        _amounts(read, "maximum", spec.maximum) or {},
    )
    lending = _amounts(read, "lendingLimit", spec.lending_limit)
    parent = read.text("parent", spec.parent, "is no text; write the name of a queue, or nothing")
    for name in guaranteed.keys() & maximum.keys():
        if guaranteed[name] > maximum[name]:
            most = quantity_text(name, maximum[name])
            read.refuse(
                f"guaranteed[{name}]", quantity_text(name, guaranteed[name]),
                f"is more than spec.maximum[{name}], {most}; lower the one or raise the other",
            )  # fmt: skip
    for name in lending or ():
        if name not in guaranteed:
            read.refuse(f"lendingLimit[{name}]", name, f"is not guaranteed; name it in spec.guaranteed[{name}] too")
    if parent == meta.name != "":
        read.refuse("parent", parent, "is the queue itself; name another queue, or none for the top")
    reclaim, history = read.object("reclaim", spec.reclaim), read.object("history", spec.history)
    within = reclaim.get("withinQueue")
    if within not in (None, "Never", "LowerPriority"):
        read.refuse("reclaim.withinQueue", within, "is not known; write Never or LowerPriority")
    return Queue(
        name=meta.name,
        parent=parent,
        weight=_weight(read, spec.weight),
        order=read.one_of("order", spec.order, UnitOrder, UnitOrder.PRIORITY),
        strategy=read.one_of("strategy", spec.strategy, QueueStrategy, QueueStrategy.DRF),
        namespaces=_names(read, "namespaces", spec.namespaces),
        guaranteed=guaranteed,
        maximum=maximum,
        borrowing=_amounts(read, "borrowingLimit", spec.borrowing_limit),
        lending=lending,
        reclaim=read.flag("reclaim.enabled", reclaim.get("enabled")),
        reclaim_after_s=read.seconds("reclaim.delaySeconds", reclaim.get("delaySeconds"), 0.0),
        reclaim_up_to=read.one_of("reclaim.upTo", reclaim.get("upTo"), ReclaimUpTo, ReclaimUpTo.GUARANTEED),
        preempts_within=within == "LowerPriority",
        min_run_s=read.seconds("minRuntimeSeconds", spec.min_runtime_seconds, 0.0),
        half_life_s=read.seconds("history.halfLifeSeconds", history.get("halfLifeSeconds"), None, least=1),
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation or 0,
        deleting=meta.deletion_timestamp is not None,
        problem="; ".join(read.problems),
        written=_status(item.status),
        times=_times(item.status),
    )


def _status(status: Any) -> QueueStatus:
    """The status as last written; whatever is not as we write it counts as something else."""
    if not isinstance(status, dict):
        return QueueStatus()
    conditions = [c for c in status.get("conditions") or () if isinstance(c, dict)]
    used = status.get("used")
    return QueueStatus(
        tuple(
            QueueCondition(*(str(c.get(name, "")) for name in ("type", "status", "reason", "message")))
            for c in conditions
        ),
        {str(name): str(amount) for name, amount in used.items()} if isinstance(used, dict) else {},
        _whole(status.get("pendingUnits")),
        _whole(status.get("heldUnits")),
        _whole(status.get("observedGeneration")),
    )


def _times(status: Any) -> dict[str, str]:
    """lastTransitionTime by condition type."""
    found = status.get("conditions") or () if isinstance(status, dict) else ()
    return {str(c.get("type", "")): str(c.get("lastTransitionTime", "")) for c in found if isinstance(c, dict)}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def status_body(
    status: QueueStatus, written: QueueStatus, now: str, *, times: dict[str, str] | None = None
) -> dict[str, Any]:
    """The merge patch of the status subresource. ``times``: lastTransitionTime by condition type as it stands, kept
    while the condition's status is the same; otherwise ``now`` (RFC 3339)."""
    before = {condition.type: condition.status for condition in written.conditions}
    used: dict[str, str | None] = {name: None for name in written.used if name not in status.used}
    conditions = []
    for condition in status.conditions:
        same = before.get(condition.type) == condition.status
        at = (times or {}).get(condition.type, now) if same else now
        conditions.append(
            {
                "type": condition.type, "status": condition.status, "reason": condition.reason,
                "message": condition.message, "lastTransitionTime": at, "observedGeneration": status.generation,
            }
        )  # fmt: skip
    return {
        "status": {
            "observedGeneration": status.generation,
            "pendingUnits": status.pending,
            "heldUnits": status.held,
            "used": {**status.used, **used},
            "conditions": conditions,
        }
    }


def _weight(read: SpecReader, value: Any) -> Fraction:
    if value is None:
        return Fraction(1)
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            weight = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            weight = Fraction(0)
        if 0 < weight <= 1_000_000:
            return weight
    read.refuse("weight", value, "must be a number above 0 and at most 1000000, such as 2 or 0.5")
    return Fraction(1)


def _amounts(read: SpecReader, name: str, value: Any) -> dict[str, int] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        read.refuse(name, value, "must be amounts by resource, such as {cpu: 40}")
        return {}
    found: dict[str, int] = {}
    for resource, quantity in value.items():
        try:
            if isinstance(quantity, bool) or not isinstance(quantity, int | float | str):
                raise ValueError("it is no quantity")
            amount = parse_amount(resource, quantity)
        except ValueError:
            read.refuse(f"{name}[{resource}]", quantity, "is not a quantity; write one such as 500m, 2, 1.5Gi")
            continue
        if amount < 0:
            read.refuse(f"{name}[{resource}]", quantity, "is negative; write 0 or more")
            continue
        found[resource] = amount
    return found


def _names(read: SpecReader, name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return tuple(dict.fromkeys(value))
    read.refuse(name, value, "must be a list of namespaces")
    return ()
