"""Who may write what into the status of a claim: permissions that are asked beside ``resourceclaims/status``.

Since 1.36 (DRAResourceClaimGranularStatusAuthorization): an allocation and who it is reserved for need the verb on
``resourceclaims/binding`` in all namespaces, what a driver tells of its devices ``arbitrary-node:VERB`` on
``resourceclaims/driver`` by the driver's name. ``associated-node:VERB`` is for accounts whose token names a node, of
which the twin issues none. Source: ``pkg/registry/resource/utils.go``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.registry.access.rbac import Attributes, allowed_by
from twin.registry.status import FieldError, forbidden_field
from twin.registry.strategy import RequestContext

Json = dict[str, Any]

GROUP, PLURAL = "resource.k8s.io", "resourceclaims"
ANY_NODE = "arbitrary-node:"
_ADMINS = "system:masters"


def check_writer(obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
    """Refused: fields whose permission the user lacks."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    found: list[FieldError] = []
    if any((status.get(key) or None) != (before.get(key) or None) for key in ("allocation", "reservedFor")):
        lacking = _lacking(ctx, Attributes(ctx.verb, GROUP, f"{PLURAL}/binding"))
        if lacking:
            needed = f'changing status.allocation or status.reservedFor requires resource="{PLURAL}/binding"'
            found.append(forbidden_field("status.allocation", f'{needed}, verb="{ctx.verb}" permission: {lacking}'))
    if status.get("allocation"):
        verb = f"{ANY_NODE}{ctx.verb}"
        for driver in sorted(_changed_drivers(status.get("devices") or (), before.get("devices") or ())):
            lacking = _lacking(ctx, Attributes(verb, GROUP, f"{PLURAL}/driver", ctx.namespace, driver))
            if lacking:
                needed = f'changing status.devices requires resource="{PLURAL}/driver", verb="[{verb}]" permission'
                found.append(forbidden_field("status.devices", f"{needed}: {lacking}"))
    return found


def _changed_drivers(new: Iterable[Json], old: Iterable[Json]) -> set[str]:
    """Drivers of which an entry came, changed or went."""
    before, after = {device_key(one): one for one in old}, {device_key(one): one for one in new}
    return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def device_key(one: Json) -> tuple[str, str, str, str]:
    """Driver, pool, device, share."""
    return one["driver"], one["pool"], one["device"], one.get("shareID") or ""


def _lacking(ctx: RequestContext, wanted: Attributes) -> str:
    """What the user may not do, in the server's words; "" where it is allowed."""
    if _ADMINS in ctx.groups or allowed_by(ctx.reader, ctx.user, ctx.groups, wanted):
        return ""
    subject = f'{PLURAL}.{GROUP} "{wanted.name}"' if wanted.name else f"{PLURAL}.{GROUP}"
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    who = f'User "{ctx.user}" cannot {wanted.verb} resource "{wanted.resource}" in API group "{GROUP}" {where}'
    return f"{subject} is forbidden: {who}"
