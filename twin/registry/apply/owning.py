"""Field owners of one request: the link between a write and ``field_owners``."""

from __future__ import annotations

from twin.registry.apply.field_owners import Owner, after_change, fields_set, packed
from twin.registry.served import ServedKind
from twin.registry.status import Json
from twin.registry.stored import Inherited, StoredObject
from twin.registry.strategy import RequestContext


def owners_of_new(ctx: RequestContext, kind: ServedKind, obj: Json) -> tuple[Owner, ...]:
    """The creator owns what it sent and what decoding filled in; call before admission adds its own."""
    fields = fields_set(kind.strategy.blank, obj, status_only=False, skip_status=kind.strategy.status_is_apart)
    return (Owner(ctx.manager, ctx.subresource, kind.info.api_version, ctx.now, packed(fields)),) if fields else ()


def owners_after(ctx: RequestContext, kind: ServedKind, old: StoredObject) -> Inherited:
    """The owners after a write on top of ``old``, to be worked out when they are asked for."""
    writer = Owner(ctx.manager, ctx.subresource, kind.info.api_version, ctx.now)
    skip = kind.strategy.status_is_apart and not ctx.subresource
    return Inherited(old, writer, status_only=ctx.subresource == "status", skip_status=skip)


def owners_after_sent(ctx: RequestContext, kind: ServedKind, old: StoredObject, sent: Json) -> tuple[Owner, ...]:
    """The owners after a write of ``sent``, whatever of it is stored."""
    writer = Owner(ctx.manager, ctx.subresource, kind.info.api_version, ctx.now)
    return after_change(old.owners, old.obj, sent, writer, status_only=False, skip_status=False)
