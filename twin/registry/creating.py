"""Create: the order of decoding, defaulting, admission, metadata, validation and storing.

Mirrors apiserver ``endpoints/handlers/create.go`` and ``registry/rest/create.go``. Works on the registry it is given.
"""

from __future__ import annotations

import copy

from twin.registry import metadata
from twin.registry.apply.field_owners import Owner
from twin.registry.apply.owning import owners_of_new
from twin.registry.changes import ChangeStore
from twin.registry.served import ServedKind
from twin.registry.status import (
    ApiError,
    Json,
    already_exists,
    bad_request,
    forbidden,
    not_found,
    plain_error,
    status,
    unprocessable,
)
from twin.registry.stored import StoredObject
from twin.registry.strategy import RequestContext


def create(
    registry: ChangeStore, ctx: RequestContext, kind: ServedKind, obj: Json, *, owners: tuple[Owner, ...] | None = None
) -> StoredObject:
    """Create ``obj`` in ``ctx.namespace``; nothing is stored with ``ctx.dry_run``. Refused: 400, 403, 404, 409, 422.

    ``owners``: of an apply, who knows what it owns; else the creator owns what it sent.
    """
    strategy = kind.strategy
    meta = _own_metadata(ctx, kind, obj)
    decode(ctx, kind, obj)
    meta = obj.get("metadata", meta)
    strategy.default(obj)
    obj = strategy.to_storage(obj)
    meta = obj["metadata"]
    if kind.namespaced:
        meta["namespace"] = ctx.namespace
        check_namespace(registry, ctx, kind, meta.get("name") or meta.get("generateName") or "")
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = metadata.generated_name(meta["generateName"], registry.rng)
    name = ctx.name = str(meta.get("name") or "")
    if owners is None:
        owners = owners_of_new(ctx, kind, obj)
    strategy.admit(obj, None, ctx)
    revision = meta.get("resourceVersion")
    fill_metadata(registry, ctx, kind, obj)
    if strategy.resets_status:
        obj.pop("status", None)
        if "status" in strategy.blank:
            obj["status"] = copy.deepcopy(strategy.blank["status"])
    strategy.prepare_for_create(obj, ctx)
    errors = metadata.create_errors(obj["metadata"], rule=strategy.name_rule, builtin=not kind.custom)
    errors.extend(strategy.validate(obj, ctx))
    if errors:
        raise unprocessable(kind.info.kind, kind.info.group, name, errors)
    ctx.warnings.extend(strategy.warnings(obj, None, ctx))
    key = f"{ctx.namespace}/{name}" if kind.namespaced else name
    if registry.store.shelf(kind.storage).get(key) is not None:
        raise already_exists(kind.info.plural, kind.info.group, name)
    namespace = ctx.namespace if kind.namespaced else ""
    if ctx.dry_run:
        return StoredObject(namespace, name, 0, obj, owners)
    if revision and revision != "0" and not strategy.allow_create_on_update:
        raise plain_error("resourceVersion should not be set on objects to be created")
    return registry.write(ctx, kind, namespace, name, obj, "create", owners)


def _own_metadata(ctx: RequestContext, kind: ServedKind, obj: Json) -> Json:
    meta = obj.get("metadata")
    if meta is None:
        meta = obj["metadata"] = {}
    if isinstance(meta, dict) and kind.namespaced:
        own = meta.get("namespace")
        if own and own != ctx.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return meta if isinstance(meta, dict) else {}


def decode(ctx: RequestContext, kind: ServedKind, obj: Json) -> None:
    """Typed decoding by the kind, and what ``fieldValidation`` makes of unknown fields. Refused: 400."""
    kind.strategy.decode(obj, ctx)
    if not ctx.unknown_fields:
        return
    mode = ctx.query.get("fieldValidation") or "Warn"
    if mode == "Strict":
        listed = ", ".join(ctx.unknown_fields)
        raise bad_request(
            f'{kind.info.kind} in version "{kind.info.version}" cannot be handled as a {kind.info.kind}: '
            f"strict decoding error: {listed}"
        )
    if mode == "Warn":
        ctx.warnings.extend(ctx.unknown_fields)
    ctx.unknown_fields.clear()


def check_namespace(registry: ChangeStore, ctx: RequestContext, kind: ServedKind, name: str) -> None:
    """NamespaceLifecycle: nothing is created in a namespace that is not there (404) or is ending (403)."""
    namespace = registry.store.shelf("namespaces").get(ctx.namespace)
    if namespace is None:
        raise not_found("namespaces", "", ctx.namespace)
    if namespace.obj.get("status", {}).get("phase") == "Terminating":
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {ctx.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        text = f"unable to create new content in namespace {ctx.namespace} because it is being terminated"
        raise forbidden(kind.info.plural, kind.info.group, name, text, [cause])


def fill_metadata(registry: ChangeStore, ctx: RequestContext, kind: ServedKind, obj: Json) -> None:
    """What the server sets, in its order; a client's uid, times and generation are dropped."""
    meta = obj["metadata"]
    meta["uid"] = metadata.new_uid(registry.rng)
    meta["creationTimestamp"] = ctx.now
    meta["generation"] = 1 if kind.strategy.has_generation else 0
    meta.pop("resourceVersion", None)
    meta.pop("deletionTimestamp", None)
    obj["metadata"] = metadata.ordered(meta)


def too_large(limit: int) -> ApiError:
    """413 of a body over ``limit`` bytes."""
    return ApiError(status(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}"))
