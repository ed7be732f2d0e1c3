"""What a scheduler may write into the status of a ResourceClaim.

An allocation is written once: it may be taken away, never changed. A claim is reserved only while it is allocated, for
256 consumers at most, and for no further one once it is being deleted. Source: ``pkg/apis/resource/validation``
(validateResourceClaimStatusUpdate).
"""

from __future__ import annotations

from typing import Any

from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, required, too_many

Json = dict[str, Any]

MOST_CONSUMERS = 256
"""``ResourceClaimReservedForMaxSize``."""

_RESERVED = "status.reservedFor"


def validate_claim_status(obj: Json, old: Json) -> list[FieldError]:
    """Everything that is wrong with a new status."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    reserved: list[Json] = status.get("reservedFor") or []
    found: list[FieldError] = []
    if len(reserved) > MOST_CONSUMERS:
        found.append(too_many(_RESERVED, len(reserved), MOST_CONSUMERS))
    seen: set[str] = set()
    for index, one in enumerate(reserved):
        where = f"{_RESERVED}[{index}]"
        found += [required(f"{where}.{key}") for key in ("resource", "name", "uid") if not one.get(key)]
        if one.get("uid") in seen:
            found.append(duplicate(where, one))
        seen.add(one.get("uid", ""))
    if reserved and not status.get("allocation"):
        found.append(forbidden_field(_RESERVED, "may not be specified when `allocated` is not set"))
    elif obj["metadata"].get("deletionTimestamp"):
        known = before.get("reservedFor") or []
        if any(one not in known for one in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            found.append(forbidden_field(_RESERVED, text))
    if before.get("allocation") and status.get("allocation") and status["allocation"] != before["allocation"]:
        found.append(invalid("status.allocation", status["allocation"], "field is immutable"))
    return found
