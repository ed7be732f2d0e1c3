"""Requests on a collection: list, watch, deletecollection."""

from __future__ import annotations

from aiohttp import web

from twin.api.answers import encode
from twin.api.pages import ListedPage, read_page, selection_of
from twin.api.requests.negotiation import not_acceptable
from twin.api.resources import ApiCall, context, delete_options
from twin.api.streams import WatchStream, open_stream
from twin.registry import deleting
from twin.registry.discovery import tables
from twin.registry.list_options import ListOptions, parse_list_options
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import ApiError


def list_body(kind: ServedKind, page: ListedPage) -> bytes:
    """A list in JSON, joined from the bytes of its items."""
    opening = kind.head if kind.custom else b"{"
    items = b",".join([opening + kind.body(one) for one in page.objects])
    return b"".join((kind.list_prefix, encode(page.meta), b',"items":[', items, b"]}"))


async def list_objects(registry: TwinRegistry, call: ApiCall, kind: ServedKind, options: ListOptions) -> web.Response:
    """GET of a collection in the form the client accepts. Refused: 400, 406, 410, 504."""
    selection = selection_of(kind, call.path.namespace, call.path.name, options)
    form = call.answers.form
    if form.transform == "PartialObjectMetadata":
        text = f"you requested PartialObjectMetadata, but the requested object is a list (*core.{kind.list_kind})"
        raise not_acceptable(text)
    include = tables.check_include(call.query.get("includeObject", "")) if form.transform == "Table" else ""
    page = await read_page(registry, kind, selection, options)
    warnings = context(registry, call, kind, "list").warnings
    if form.transform == "Table":
        meta = {key: value for key, value in page.meta.items() if value != ""}
        now_s = registry.clock()
        body = tables.table(kind, page.objects, meta, include=include, now_s=now_s, version=form.version)
        return call.answers.json(body, warnings=warnings)
    if form.transform:
        meta = {key: value for key, value in page.meta.items() if value != ""}
        return call.answers.json(tables.partial_list(page.objects, meta, form.version), warnings=warnings)
    return call.answers.raw(list_body(kind, page), warnings=warnings)


async def open_watch(registry: TwinRegistry, call: ApiCall, kind: ServedKind, options: ListOptions) -> WatchStream:
    """A watch that is ready to run. Refused: 400, 422, 500, 504."""
    selection = selection_of(kind, call.path.namespace, call.path.name, options)
    form = call.answers.form
    include = tables.check_include(call.query.get("includeObject", "")) if form.transform == "Table" else ""
    return await open_stream(registry, kind, selection, options, form, include)


async def delete_collection(registry: TwinRegistry, call: ApiCall, kind: ServedKind) -> web.Response:
    """DELETE of everything selected; answers with the list as it was before. Refused: 400, 422."""
    options = delete_options(call)
    list_options = parse_list_options({k: v for k, v in call.query.items() if k not in ("watch", "dryRun")})
    selection = selection_of(kind, call.path.namespace, "", list_options)
    page = await read_page(registry, kind, selection, list_options)
    body = list_body(kind, page)
    for stored in page.objects:
        ctx = context(registry, call, kind, "deletecollection", dry_run=bool(options.get("dryRun")))
        ctx.name = stored.name
        ctx.namespace = stored.namespace
        current = registry.store.shelf(kind.storage).get(stored.key)
        if current is None:
            continue
        try:
            deleting.delete(registry, ctx, kind, current, dict(options))
        except ApiError as error:
            if error.code != 404:
                raise
    return call.answers.raw(body)
