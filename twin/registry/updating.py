"""Update (PUT, and PATCH after the patch was applied): concurrency, what is kept, validation, storing, or deleting.

Mirrors apiserver ``registry/rest/update.go`` and ``registry/generic/registry/store.go``. Works on the registry it is
given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twin.registry import creating, metadata
from twin.registry.apply.field_owners import Owner
from twin.registry.apply.owning import owners_after, owners_after_sent
from twin.registry.changes import ChangeStore
from twin.registry.list_options import parse_revision
from twin.registry.served import ServedKind
from twin.registry.status import (
    MODIFIED_MESSAGE,
    FieldError,
    Json,
    bad_request,
    conflict,
    invalid,
    plain_error,
    unprocessable,
)
from twin.registry.stored import Owners, StoredObject
from twin.registry.strategy import RequestContext, Subresource


def update(
    registry: ChangeStore,
    ctx: RequestContext,
    kind: ServedKind,
    old: StoredObject,
    obj: Json,
    *,
    subresource: Subresource | None = None,
    patch: bool = False,
    owners: Callable[[bool], tuple[Owner, ...]] | None = None,
) -> StoredObject:
    """Replace ``old`` by ``obj``. A change that changes nothing writes nothing. Refused: 400, 403, 409, 422.

    ``owners``: an apply's own idea of the owners afterwards, told whether anything else changed.
    """
    strategy = kind.strategy
    check_identity(ctx, obj, old)
    # An empty list (or a list of nothing) of managers is the request to forget them.
    sent_owners = obj["metadata"].get("managedFields") if isinstance(obj["metadata"], dict) else None
    creating.decode(ctx, kind, obj)
    strategy.default(obj)
    obj = strategy.to_storage(obj)
    before = old.obj
    _check_revision(kind, obj["metadata"], old, patch=patch)
    _keep_system_metadata(obj["metadata"], before["metadata"], kind)
    strategy.admit(obj, before, ctx)
    if subresource is not None and subresource.owns_dropped and owners is None:
        sent = owners_after_sent(ctx, kind, old, obj)
        owners = partial(_as_sent, sent)
    errors = _prepare(ctx, kind, obj, before, subresource)
    obj["metadata"] = meta = metadata.ordered(obj["metadata"])
    errors[:0] = metadata.update_errors(meta, before["metadata"], builtin=not kind.custom)
    if errors:
        raise unprocessable(kind.info.kind, kind.info.group, old.name, errors)
    ctx.warnings.extend(strategy.warnings(obj, before, ctx))
    if _empties_deleted(before["metadata"], meta) and strategy.ready_to_delete(obj):
        return _finish_delete(registry, ctx, kind, old, obj)
    if owners is not None:
        return _apply_owners(registry, ctx, kind, old, obj, owners(obj != before))
    forget = sent_owners is not None and not any(sent_owners)
    if obj == before and not (forget and old.owners):
        return old
    after: Owners = () if forget else owners_after(ctx, kind, old)
    if ctx.dry_run:
        return StoredObject(old.namespace, old.name, old.revision, obj, after)
    return registry.write(ctx, kind, old.namespace, old.name, obj, ctx.verb, after)


def _as_sent(sent: tuple[Owner, ...], changes: bool) -> tuple[Owner, ...]:  # noqa: ARG001 - the shape of ``owners``
    return sent


def _apply_owners(
    registry: ChangeStore,
    ctx: RequestContext,
    kind: ServedKind,
    old: StoredObject,
    obj: Json,
    owners: tuple[Owner, ...],
) -> StoredObject:
    if obj == old.obj and sorted(owners) == sorted(old.owners):
        return old
    if ctx.dry_run:
        return StoredObject(old.namespace, old.name, old.revision, obj, owners)
    return registry.write(ctx, kind, old.namespace, old.name, obj, ctx.verb, owners)


def check_identity(ctx: RequestContext, obj: Json, old: StoredObject) -> None:
    """The name and namespace in the body must be those of the URL. Refused: 400."""
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    if not isinstance(meta, dict):
        return
    name = meta.get("name")
    if name and name != old.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({old.name})")
    if not name and ctx.verb == "update":
        raise bad_request("name must be provided")
    namespace = meta.get("namespace")
    if namespace and namespace != old.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _check_revision(kind: ServedKind, meta: Json, old: StoredObject, *, patch: bool) -> None:
    info = kind.info
    text = meta.get("resourceVersion") or ""
    if text in ("", "0"):
        if not kind.strategy.allow_unconditional_update:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise unprocessable(info.plural, info.group, old.name, [error])
    else:
        try:
            revision = parse_revision(text)
        except ValueError as error_:
            raise plain_error(str(error_)) from None
        if revision != old.revision:
            raise conflict(info.plural, info.group, old.name, MODIFIED_MESSAGE)
    uid, expected = meta.get("uid"), old.obj["metadata"]["uid"]
    if uid and uid != expected and not patch:
        stored_as = "minions" if info.resource == "nodes" else info.plural  # etcd still knows nodes by their first name
        text = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{stored_as}/{old.key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {expected}"
        )
        raise conflict(info.plural, info.group, old.name, text)


def _keep_system_metadata(meta: Json, old: Json, kind: ServedKind) -> None:
    meta["name"] = old["name"]
    if kind.namespaced:
        meta["namespace"] = old["namespace"]
    if not meta.get("uid"):
        meta["uid"] = old["uid"]
    meta["resourceVersion"] = old["resourceVersion"]
    meta["creationTimestamp"] = old["creationTimestamp"]
    meta["generation"] = old.get("generation", 0)
    if "deletionTimestamp" in old:
        meta["deletionTimestamp"] = old["deletionTimestamp"]
    if old.get("deletionGracePeriodSeconds") is not None and meta.get("deletionGracePeriodSeconds") is None:
        meta["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def _prepare(
    ctx: RequestContext, kind: ServedKind, obj: Json, old: Json, subresource: Subresource | None
) -> list[FieldError]:
    """Run the hooks of the main object or of its view; the generation grows where what it counts has changed."""
    strategy = kind.strategy
    if subresource is None:
        if strategy.resets_status:
            if "status" in old:
                obj["status"] = old["status"]
            else:
                obj.pop("status", None)
        strategy.prepare_for_update(obj, old, ctx)
        _count(kind, obj, old)
        return strategy.validate_update(obj, old, ctx)
    if subresource.prepare is None:
        strategy.keep_for_status(obj, old)
        strategy.prepare_for_status_update(obj, old, ctx)
        return strategy.validate_status_update(obj, old, ctx)
    subresource.prepare(obj, old, ctx)
    _count(kind, obj, old)
    return subresource.validate(obj, old, ctx) if subresource.validate is not None else []


def _count(kind: ServedKind, obj: Json, old: Json) -> None:
    if kind.strategy.has_generation and kind.strategy.generation_changed(obj, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _empties_deleted(old: Json, meta: Json) -> bool:
    """An object that only its finalizers held, and now holds none (``ShouldDeleteDuringUpdate``)."""
    return (
        bool(old.get("deletionTimestamp")) and not meta.get("finalizers") and not old.get("deletionGracePeriodSeconds")
    )


def _finish_delete(
    registry: ChangeStore, ctx: RequestContext, kind: ServedKind, old: StoredObject, obj: Json
) -> StoredObject:
    """The update is answered as if it had been stored, under the old revision; watchers see the old state DELETED."""
    if not ctx.dry_run:
        registry.remove(ctx, kind, old)
    return StoredObject(old.namespace, old.name, old.revision, obj, old.owners)
