"""Server-side apply: a manager says what it wants of an object, and owns that.

What it says is merged into the object; a field that another manager owns and that would change is a conflict unless
forced; what it said before and does not say now is taken away where nobody else owns it. Source: structured-merge-diff
(``merge.Updater.Apply``), apimachinery ``util/managedfields``. The sets and what merges: ``apply_sets``.
"""

from __future__ import annotations

from typing import Any

from twin.registry import creating, updating
from twin.registry.apply.field_owners import (
    APPLY,
    UPDATE,
    FieldSet,
    Owner,
    fields_set,
    packed,
    union,
    unpacked,
    without,
)
from twin.registry.apply.sets import applied_set, common_paths, merge_applied, remove_fields
from twin.registry.changes import ChangeStore
from twin.registry.served import ServedKind
from twin.registry.status import ApiError, Json, bad_request, required, status, unprocessable
from twin.registry.stored import StoredObject
from twin.registry.strategy import RequestContext, Subresource

BEFORE = "before-first-apply"


def apply(
    registry: ChangeStore,
    ctx: RequestContext,
    kind: ServedKind,
    old: StoredObject | None,
    config: Json,
    *,
    force: bool,
    view: Subresource | None,
) -> tuple[StoredObject, bool]:
    """The object afterwards, and whether it was created. Refused: 400, 409 (conflicts), 422."""
    if not ctx.query.get("fieldManager"):
        error = required("fieldManager", "is required for apply patch")
        raise unprocessable("PatchOptions", "meta.k8s.io", "", [error])
    metadata = config.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    said = applied_set(config, status_only=view is not None, skip_status=kind.strategy.status_is_apart and view is None)
    mine = Owner(ctx.manager, ctx.subresource, kind.info.api_version, ctx.now, packed(said), APPLY)
    if old is None:
        metadata.setdefault("name", ctx.name)
        ctx.verb = "create"
        return creating.create(registry, ctx, kind, config, owners=(mine,)), True
    live = old.obj
    owners = old.owners or _before_first(kind, live)
    earlier = next((one for one in owners if one.key == mine.key), None)
    others = tuple(one for one in owners if one.key != mine.key)
    merged = merge_applied(kind.shown(old).fresh(), config)
    changed = fields_set(live, merged, status_only=view is not None, skip_status=False)
    conflicts = [(one, path) for one in others for path in common_paths(changed, unpacked(one.fields))]
    if conflicts and not force:
        raise _conflict(conflicts)
    if conflicts:
        others = _give_up(others, common=changed)
    if earlier is not None:
        _take_away(merged, without(unpacked(earlier.fields), said), said, others)
    after = _updated(registry, ctx, kind, old, merged, view, mine, earlier, others)
    return after, False


def _before_first(kind: ServedKind, live: Json) -> tuple[Owner, ...]:
    """An object that nobody owns yet belongs to an unknown writer."""
    fields = fields_set(kind.strategy.blank, live, status_only=False, skip_status=kind.strategy.status_is_apart)
    if not fields:
        return ()
    made = live["metadata"]["creationTimestamp"]
    return (Owner(BEFORE, "", kind.info.api_version, made, packed(fields), UPDATE),)


def _give_up(others: tuple[Owner, ...], *, common: FieldSet) -> tuple[Owner, ...]:
    kept = ((one, without(unpacked(one.fields), common)) for one in others)
    return tuple(one._replace(fields=packed(rest)) for one, rest in kept if rest)


def _take_away(merged: Json, unsaid: FieldSet, said: FieldSet, others: tuple[Owner, ...]) -> None:
    owned = said
    for one in others:
        owned = union(owned, unpacked(one.fields))
    remove_fields(merged, unsaid, owned)


def _updated(
    registry: ChangeStore,
    ctx: RequestContext,
    kind: ServedKind,
    old: StoredObject,
    merged: Json,
    view: Subresource | None,
    mine: Owner,
    earlier: Owner | None,
    others: tuple[Owner, ...],
) -> StoredObject:
    """Store the merge. An apply that changes no field keeps its old time, and has none where it has no past."""

    def owners(changes: bool) -> tuple[Owner, ...]:
        if changes:
            return (*others, mine)
        return (*others, mine._replace(time=earlier.time if earlier is not None else ""))

    merged["metadata"].pop("resourceVersion", None)
    if not kind.strategy.allow_unconditional_update:
        merged["metadata"]["resourceVersion"] = str(old.revision)
    return updating.update(registry, ctx, kind, old, merged, subresource=view, patch=True, owners=owners)


def _using(owner: Owner) -> str:
    text = f'conflict with "{owner.manager}"'
    if owner.subresource:
        text += f' with subresource "{owner.subresource}"'
    return text if owner.operation == APPLY else f"{text} using {owner.api_version}"


def _conflict(conflicts: list[tuple[Owner, str]]) -> ApiError:
    causes: list[dict[str, Any]] = [
        {"reason": "FieldManagerConflict", "message": _using(owner), "field": path} for owner, path in conflicts
    ]
    noun = "conflict" if len(causes) == 1 else "conflicts"
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return ApiError(status(409, "Conflict", f"Apply failed with {len(causes)} {noun}: {listed}", {"causes": causes}))
