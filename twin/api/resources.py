"""One API request on a resource: verb, options, the registry's call, the answer.

Source: apiserver ``endpoints/handlers``. Everything here is synchronous; lists and watches (which may wait) are in
``collection.py``. It does not know sockets: a request comes in as ``ApiCall``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from twin.api.answers import ResponseMaker, encode
from twin.api.requests import bodies
from twin.api.requests.access import ApiUser
from twin.api.requests.bodies import duplicate_fields
from twin.api.requests.negotiation import not_acceptable
from twin.api.requests.paths import ResourcePath
from twin.patches.json_patch import json_patch, merge_patch
from twin.patches.strategic_patch import strategic_patch
from twin.registry import creating, deleting, updating
from twin.registry.apply import applying
from twin.registry.discovery import tables
from twin.registry.list_options import parse_revision, query_bool, query_list
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import (
    ApiError,
    FieldError,
    Json,
    forbidden_field,
    invalid,
    named,
    not_found,
    not_supported,
    plain_error,
    required,
    status,
    success,
    too_long,
    unprocessable,
)
from twin.registry.stored import StoredObject
from twin.registry.strategy import HandlerResult, RequestContext, Subresource

MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class ApiCall:
    """One request, decoded as far as HTTP goes."""

    method: str
    path: ResourcePath
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    caller: ApiUser
    answers: ResponseMaker

    @property
    def content_type(self) -> str:
        """The Content-Type header, empty when there is none."""
        return self.headers.get("Content-Type", "")


def write_options(call: ApiCall, verb: str) -> bool:
    """Check dryRun, fieldManager, fieldValidation (and force); True = dry run. Refused: 422."""
    query = call.query
    errors: list[FieldError] = []
    manager = query.get("fieldManager", "")
    if verb == "patch":
        if media_type(call) == APPLY:
            if not manager:
                errors.append(required("fieldManager", "is required for apply patch"))
        elif "force" in query:
            errors.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > 128:
        errors.append(too_long("fieldManager", 128))
    errors.extend(_unprintable("fieldManager", manager))
    dry_run = query_list(query, "dryRun")
    if any(one != "All" for one in dry_run):
        errors.append(not_supported("dryRun", dry_run, ("All",)))
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errors.append(not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    if errors:
        raise unprocessable(f"{verb.capitalize()}Options", "meta.k8s.io", "", errors)
    return bool(dry_run)


def _unprintable(field: str, text: str) -> list[FieldError]:
    """A field manager is printable; Go counts positions in bytes and names a character by its code."""
    errors: list[FieldError] = []
    for index, character in enumerate(text):
        if not character.isprintable():
            at = len(text[:index].encode())
            name = f"U+{ord(character):04X}"
            errors.append(invalid(field, text, f"invalid character {name} (at position {at})"))
    return errors


def context(
    registry: TwinRegistry, call: ApiCall, kind: ServedKind, verb: str, *, dry_run: bool = False
) -> RequestContext:
    """The strategies' view of this request."""
    now_s = registry.clock()
    path = call.path
    manager = call.query.get("fieldManager") or call.headers.get("User-Agent", "unknown").partition("/")[0]
    return RequestContext(
        verb=verb,
        info=kind.info,
        namespace=path.namespace,
        name=path.name,
        reader=registry,
        now=registry.now_text(now_s),
        now_s=now_s,
        subresource=path.subresource,
        user=call.caller.name,
        groups=call.caller.groups,
        user_uid=call.caller.uid,
        dry_run=dry_run,
        manager=manager,
        query=call.query,
        registry=registry,
        warnings=[kind.strategy.deprecation] if kind.strategy.deprecation else [],
    )


def show(
    call: ApiCall, kind: ServedKind, stored: StoredObject, code: int = 200, *, ctx: RequestContext
) -> web.Response:
    """One object in the form the client accepts."""
    form = call.answers.form
    if not form.transform:
        return call.answers.raw(kind.whole_with_owners(stored), code, warnings=ctx.warnings)
    if form.transform == "PartialObjectMetadataList":
        text = f"you requested PartialObjectMetadataList, but the requested object is not a list (*{kind.info.kind})"
        raise not_acceptable(text)
    if form.transform == "PartialObjectMetadata":
        return call.answers.json(tables.partial(stored, form.version), code, warnings=ctx.warnings)
    include = tables.check_include(call.query.get("includeObject", ""))
    meta = {"resourceVersion": str(stored.revision)}
    body = tables.table(kind, [stored], meta, include=include, now_s=ctx.now_s, version=form.version)
    return call.answers.json(body, code, warnings=ctx.warnings)


def handle(registry: TwinRegistry, call: ApiCall, kind: ServedKind) -> web.Response:
    """Any request but a list, a watch and a deletecollection, of a path that has the method. Refused: ``ApiError``."""
    path = call.path
    if path.subresource:
        return _subresource(registry, call, kind)
    if not path.name:
        return _create(registry, call, kind)
    verb = _VERBS[call.method]
    if verb == "get":
        return _get(registry, call, kind)
    if verb == "delete":
        return _delete(registry, call, kind)
    if verb == "create":
        return _create(registry, call, kind)
    return _write(registry, call, kind, None)


def _get(registry: TwinRegistry, call: ApiCall, kind: ServedKind) -> web.Response:
    version = call.query.get("resourceVersion", "")
    if version:
        try:
            parse_revision(version)
        except ValueError as error:
            raise plain_error(f'resourceVersion: Invalid value: "{version}": {error}') from None
    ctx = context(registry, call, kind, "get")
    return show(call, kind, registry.stored(kind, call.path.namespace, call.path.name), ctx=ctx)


def _create(registry: TwinRegistry, call: ApiCall, kind: ServedKind) -> web.Response:
    dry_run = write_options(call, "create")
    ctx = context(registry, call, kind, "create", dry_run=dry_run)
    collection_create = kind.strategy.collection_create
    if collection_create is not None:
        body = bodies.decode_object(call.body, call.content_type, kind)
        body = bodies.decode_typed(body, kind.info.group, kind.info.version, kind.info.kind)
        return _result(call, ctx, collection_create(ctx, registry, "", body))
    obj = _decoded(call, ctx, kind)
    try:
        stored = creating.create(registry, ctx, kind, obj)
    except ApiError as error:
        return call.answers.error(error, warnings=ctx.warnings)
    return show(call, kind, stored, 201, ctx=ctx)


def _decoded(call: ApiCall, ctx: RequestContext, kind: ServedKind) -> Json:
    """The body as an object; fields named twice are reported with the unknown ones. Refused: 400, 415, 422."""
    obj, taken_off = bodies.decode_counted(call.body, call.content_type, kind)
    if call.query.get("fieldValidation") != "Ignore":
        ctx.unknown_fields.extend(duplicate_fields(call.body, taken_off, obj))
    return obj


def _result(call: ApiCall, ctx: RequestContext, result: HandlerResult) -> web.Response:
    return call.answers.raw(encode(result.body), result.code, warnings=ctx.warnings)


def _write(registry: TwinRegistry, call: ApiCall, kind: ServedKind, view: Subresource | None) -> web.Response:
    """PUT or PATCH of an object, or of it through a view such as status."""
    patch = call.method == "PATCH"
    verb = "patch" if patch else "update"
    patch_type = _patch_type(call, kind, APPLY) if patch else ""
    dry_run = write_options(call, verb)
    ctx = context(registry, call, kind, verb, dry_run=dry_run)
    path = call.path
    if patch_type == APPLY:
        return _apply(registry, call, kind, ctx, view)
    if patch:
        change = bodies.decode_patch(call.body)
        old = registry.stored(kind, path.namespace, path.name)
        obj = apply_patch(kind, patch_type, kind.shown(old).fresh(), change)
    else:
        obj = _decoded(call, ctx, kind)
        found = registry.store.shelf(kind.storage).get(
            f"{path.namespace}/{path.name}" if kind.namespaced else path.name
        )
        if found is None:
            return _create_by_put(registry, call, kind, ctx, obj, view)
        old = found
    try:
        stored = updating.update(registry, ctx, kind, old, obj, subresource=view, patch=patch)
    except ApiError as error:
        return call.answers.error(error, warnings=ctx.warnings)
    return show(call, kind, stored, ctx=ctx)


def _apply(
    registry: TwinRegistry, call: ApiCall, kind: ServedKind, ctx: RequestContext, view: Subresource | None
) -> web.Response:
    """PATCH with an apply configuration: creates what is not there."""
    path = call.path
    config = bodies.decode_object(call.body, "application/yaml", kind)
    old = registry.store.shelf(kind.storage).get(f"{path.namespace}/{path.name}" if kind.namespaced else path.name)
    if old is None and view is not None:
        raise not_found(kind.info.plural, kind.info.group, path.name)
    metadata = config.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if name and name != path.name:
        text = f"the name of the object ({name}) does not match the name on the URL ({path.name})"
        raise ApiError(status(400, "BadRequest", text))
    force = query_bool(call.query.get("force"))
    stored, created = applying.apply(registry, ctx, kind, old, config, force=force, view=view)
    return show(call, kind, stored, 201 if created else 200, ctx=ctx)


def _create_by_put(
    registry: TwinRegistry,
    call: ApiCall,
    kind: ServedKind,
    ctx: RequestContext,
    obj: Json,
    view: Subresource | None,
) -> web.Response:
    """PUT of an object that is not there: 201 for the kinds that allow it, 404 for the others."""
    name = call.path.name
    if view is not None or not kind.strategy.allow_create_on_update:
        raise not_found(kind.info.plural, kind.info.group, name)
    meta = obj.setdefault("metadata", {})
    if isinstance(meta, dict):
        meta.setdefault("name", name)
    ctx.verb = "create"
    return show(call, kind, creating.create(registry, ctx, kind, obj), 201, ctx=ctx)


def media_type(call: ApiCall) -> str:
    """The Content-Type without its parameters."""
    return call.content_type.partition(";")[0].strip().lower()


def _patch_type(call: ApiCall, kind: ServedKind, *more: str) -> str:
    """The media type of a patch; ``more``: what is allowed beside patches proper. Refused: 415."""
    media = media_type(call)
    allowed = (MERGE, JSON_PATCH, STRATEGIC) if kind.strategy.supports_strategic else (MERGE, JSON_PATCH)
    if media not in (*allowed, *more):
        if kind.custom:
            accepted = f"{JSON_PATCH}, {MERGE}, {APPLY}"
            text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            raise ApiError(status(415, "UnsupportedMediaType", text))
        body = status(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        del body["code"]
        raise ApiError({**body, "details": {}, "code": 415})
    return media


def apply_patch(kind: ServedKind, patch_type: str, document: Json, change: object) -> Json:
    """The patched document (``document`` is changed in place). Refused: 400, 422, 500."""
    if patch_type == MERGE:
        return merge_patch(document, change)
    if patch_type == JSON_PATCH:
        return json_patch(document, change)
    return strategic_patch(document, change, kind.strategy.merge_keys)


def delete_options(call: ApiCall) -> Json:
    """The DeleteOptions of body or query. Refused: 400, 422."""
    body = None
    if call.body:
        body = bodies.decode_optional(call.body, call.content_type)
        body = bodies.decode_typed(body, "meta", "v1", "DeleteOptions")
    return deleting.delete_options(call.query, body)


def _delete(registry: TwinRegistry, call: ApiCall, kind: ServedKind) -> web.Response:
    options = delete_options(call)
    ctx = context(registry, call, kind, "delete", dry_run=bool(options.get("dryRun")))
    old = registry.stored(kind, call.path.namespace, call.path.name)
    deleted = deleting.delete(registry, ctx, kind, old, options)
    if deleted.gone and not kind.strategy.returns_deleted:
        info = kind.info
        details = {**named(info.plural, info.group, old.name), "uid": old.obj["metadata"]["uid"]}
        return call.answers.json(success(details), warnings=ctx.warnings)
    code = 202 if not deleted.gone and options.get("orphanDependents") is False else 200
    return show(call, kind, deleted.stored, code, ctx=ctx)


def _subresource(registry: TwinRegistry, call: ApiCall, kind: ServedKind) -> web.Response:
    path = call.path
    view = kind.subresources.get(path.subresource)
    if view is None:
        registry.stored(kind, path.namespace, path.name)
        text = f"the twin runs no containers: {kind.info.plural}/{path.subresource} leads nowhere"
        raise ApiError(status(501, "NotImplemented", text))
    verb = _VERBS[call.method]
    if verb == "create" or view.get is not None or view.update is not None:
        return _handled(registry, call, kind, view, verb)
    if verb == "get":
        ctx = context(registry, call, kind, "get")
        return show(call, kind, registry.stored(kind, path.namespace, path.name), ctx=ctx)
    return _write(registry, call, kind, view)


def _handled(registry: TwinRegistry, call: ApiCall, kind: ServedKind, view: Subresource, verb: str) -> web.Response:
    """A subresource made of functions (binding, eviction, scale, token)."""
    name = call.path.name
    patch_type = _patch_type(call, kind) if verb == "patch" else ""
    dry_run = verb != "get" and write_options(call, verb)
    ctx = context(registry, call, kind, verb, dry_run=dry_run)
    handler = {"create": view.create, "get": view.get}.get(verb, view.update)
    assert handler is not None, "a verb that is listed has a handler"
    if verb == "patch":
        assert view.get is not None, "a view that is patched can be read"
        change = bodies.decode_patch(call.body)
        document = _own(view.get(ctx, registry, name, {}).body)
        body = apply_patch(kind, patch_type, document, change)
    else:
        body = bodies.decode_optional(call.body, call.content_type)
    bodies.check_envelope(body)
    return _result(call, ctx, handler(ctx, registry, name, body))


def _own(body: Json) -> Json:
    decoded: Json = bodies.parse_json(encode(body))
    return decoded
