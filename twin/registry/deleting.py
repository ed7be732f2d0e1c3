"""Delete: options, preconditions, grace, finalizers, propagation.

Mirrors apiserver ``registry/rest/delete.go`` and ``registry/generic/registry/store.go`` (Delete,
updateForGracefulDeletionAndFinalizers). There is no garbage collector behind the twin: ``orphan`` and
``foregroundDeletion`` stay until somebody takes them off.
"""

from __future__ import annotations

import calendar
import time as _time
from collections.abc import Mapping
from dataclasses import dataclass

from twin.registry.changes import ChangeStore
from twin.registry.list_options import query_bool, query_int, query_list
from twin.registry.metadata import ordered
from twin.registry.served import ServedKind
from twin.registry.status import (
    ApiError,
    FieldError,
    Json,
    bad_request,
    invalid,
    named,
    not_supported,
    qualified,
    status,
    unprocessable,
)
from twin.registry.stored import StoredObject
from twin.registry.strategy import RequestContext

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Deletion:
    """The object afterwards (or as it was last), and whether it is gone."""

    stored: StoredObject
    gone: bool


def delete_options(query: Mapping[str, str], body: Json | None) -> Json:
    """The body's options, or the query's where there is no body (None). Refused: 400, 422."""
    options: Json = dict(body) if body is not None else _of_query(query)
    kind = options.pop("kind", "DeleteOptions")
    version = options.pop("apiVersion", "v1")
    if kind != "DeleteOptions":
        scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"
        raise bad_request(f'no kind "{kind}" is registered for version "{version}" in scheme "{scheme}"')
    check_options(options)
    return options


def _of_query(query: Mapping[str, str]) -> Json:
    options: Json = {}
    grace = query_int(query.get("gracePeriodSeconds"))
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if "propagationPolicy" in query:
        options["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        options["orphanDependents"] = query_bool(query["orphanDependents"])
    if "dryRun" in query:
        options["dryRun"] = query_list(query, "dryRun")
    return options


def check_options(options: Json) -> None:
    """Refused: 422 (propagation, dry run)."""
    errors: list[FieldError] = []
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, text))
    if policy is not None and policy not in ("Foreground", "Background", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        errors.append(not_supported("propagationPolicy", policy, supported))
    dry_run = options.get("dryRun")
    if dry_run and any(one != "All" for one in dry_run):
        errors.append(not_supported("dryRun", dry_run, ("All",)))
    if errors:
        raise unprocessable("DeleteOptions", "meta.k8s.io", "", errors)


def delete(registry: ChangeStore, ctx: RequestContext, kind: ServedKind, old: StoredObject, options: Json) -> Deletion:
    """Delete, or mark as being deleted. Refused: 403, 409, 422."""
    check_options(options)
    if options.get("dryRun"):
        ctx.dry_run = True
    strategy = kind.strategy
    strategy.admit_delete(old.obj, ctx)
    _check_preconditions(kind, old, options)
    instead = strategy.before_delete(old.obj, ctx)
    if instead is not None:
        return Deletion(_store(registry, ctx, kind, old, instead), gone=False)
    marked, pending = _grace(ctx, kind, old.obj, options)
    if pending:
        return Deletion(old, gone=False)
    current = marked if marked is not None else old.obj
    finalizers = _propagation_finalizers(kind, current, options)
    held = bool(finalizers)
    if held and marked is None:
        current = _mark(current, ctx, 0)
    if finalizers != (current["metadata"].get("finalizers") or []):
        meta = {k: v for k, v in current["metadata"].items() if k != "finalizers"}
        if finalizers:
            meta["finalizers"] = finalizers
        current = {**current, "metadata": meta}
    updated = old if current is old.obj else _store(registry, ctx, kind, old, current)
    if held or (marked is not None and marked["metadata"]["deletionGracePeriodSeconds"] > 0):
        return Deletion(updated, gone=False)
    if ctx.dry_run:
        return Deletion(updated, gone=True)
    return Deletion(registry.remove(ctx, kind, updated), gone=True)


def _store(registry: ChangeStore, ctx: RequestContext, kind: ServedKind, old: StoredObject, obj: Json) -> StoredObject:
    if obj == old.obj:
        return old
    if ctx.dry_run:
        return StoredObject(old.namespace, old.name, old.revision, obj, old.owners)
    obj = {**obj, "metadata": dict(obj["metadata"])}
    # The audit keeps "delete" for the moment the object is gone.
    return registry.write(ctx, kind, old.namespace, old.name, obj, "update", old.owners)


def _check_preconditions(kind: ServedKind, old: StoredObject, options: Json) -> None:
    conditions = options.get("preconditions") or {}
    meta = old.obj["metadata"]
    for field, label, ending in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        wanted = conditions.get(field)
        if wanted is not None and wanted != meta[field]:
            info = kind.info
            text = (
                f'Operation cannot be fulfilled on {qualified(info.kind, info.group)} "{old.name}": the {label} in the '
                f"precondition ({wanted}) does not match the {label} in record ({meta[field]}). {ending}"
            )
            raise ApiError(status(409, "Conflict", text, named(info.kind, info.group, old.name)))


def _grace(ctx: RequestContext, kind: ServedKind, obj: Json, options: Json) -> tuple[Json | None, bool]:
    """``BeforeDelete``: the object marked with its new grace period (None: the kind knows none).

    (None, True) when an earlier delete is pending and this one does not shorten it.
    """
    wanted = kind.strategy.grace_period_for_delete(obj, options, ctx)
    if wanted is None:
        return None, False
    meta = obj["metadata"]
    current = meta.get("deletionGracePeriodSeconds")
    if meta.get("deletionTimestamp"):
        if current is None:
            return None, False
        asked = options.get("gracePeriodSeconds")
        if asked is None or max(int(asked), 0) >= current:
            return None, True
        started = calendar.timegm(_time.strptime(meta["deletionTimestamp"], _TIME_FORMAT)) - current
        return _remark(obj, started + int(asked), int(asked)), False
    return _mark(obj, ctx, wanted), False


def _mark(obj: Json, ctx: RequestContext, grace_s: int) -> Json:
    """Being deleted from now on; a generation that counts grows by one."""
    meta = obj["metadata"]
    if meta.get("deletionTimestamp"):
        return obj
    marked = _remark(obj, int(ctx.now_s) + grace_s, grace_s)
    if meta.get("generation"):
        marked["metadata"]["generation"] = meta["generation"] + 1
    return marked


def _remark(obj: Json, at_s: int, grace_s: int) -> Json:
    meta = dict(obj["metadata"])
    meta["deletionTimestamp"] = _time.strftime(_TIME_FORMAT, _time.gmtime(at_s))
    meta["deletionGracePeriodSeconds"] = grace_s
    return {**obj, "metadata": ordered(meta)}


def _propagation_finalizers(kind: ServedKind, obj: Json, options: Json) -> list[str]:
    """The finalizers after the propagation policy (``deletionFinalizersForGarbageCollection``)."""
    finalizers: list[str] = list(obj["metadata"].get("finalizers") or [])
    policy = options.get("propagationPolicy")
    orphan = options.get("orphanDependents")
    if policy is None and orphan is None:
        if kind.strategy.default_propagation == "Orphan" and "orphan" not in finalizers:
            finalizers.append("orphan")
        return finalizers
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    kept = [one for one in finalizers if one not in ("orphan", "foregroundDeletion")]
    if policy == "Orphan":
        kept.append("orphan")
    elif policy == "Foreground":
        kept.append("foregroundDeletion")
    return kept
