"""Lists: which revision, which page, which objects.

The semantics of resourceVersion, resourceVersionMatch, limit and continue of the real server's ``storage/etcd3`` and
``storage/cacher``. Waiting for a revision that is still to come is the only asynchronous part.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from twin.registry.list_options import (
    ListOptions,
    decode_continue,
    encode_continue,
    parse_fields,
    parse_labels,
)
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import ApiError, Json, expired, status
from twin.registry.store import Compacted
from twin.registry.stored import StoredObject
from twin.registry.watching import Selection

TOO_LARGE_WAIT_S = 3.0
"""How long a read waits for a resourceVersion that has not happened (``blockTimeout`` of the watch cache)."""

_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
_TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """What a list answers. ``meta`` is the ListMeta."""

    objects: list[StoredObject]
    meta: Json


def selection_of(kind: ServedKind, namespace: str, name: str, options: ListOptions) -> Selection:
    """The selectors of a query. Refused: 400."""
    strategy = kind.strategy
    return Selection(
        namespace=namespace,
        name=name,
        labels=parse_labels(options.label_selector),
        fields=parse_fields(options.field_selector, kind.fields, strategy.field_label_error),
        selectable=strategy.selectable_fields,
    )


async def wait_for_revision(registry: TwinRegistry, revision: int) -> None:
    """Return when the store has reached ``revision``. Refused: 504 after three seconds."""
    if revision <= registry.store.revision:
        return
    reached = asyncio.Event()
    forget = registry.store.when_revision(revision, reached.set)
    try:
        await asyncio.wait_for(reached.wait(), TOO_LARGE_WAIT_S)
    except TimeoutError:
        text = f"Timeout: Too large resource version: {revision}, current: {registry.store.revision}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        body = status(504, "Timeout", text, {"causes": [cause], "retryAfterSeconds": 1})
        raise ApiError(body) from None
    finally:
        forget()


async def read_page(registry: TwinRegistry, kind: ServedKind, selection: Selection, options: ListOptions) -> ListedPage:
    """The objects of one list call. Refused: 400 (token), 410, 504."""
    shelf = registry.store.shelf(kind.storage)
    start = ""
    limit = options.limit
    if options.continue_token:
        token = decode_continue(options.continue_token)
        start = token.start
        revision = token.revision if token.revision > 0 else registry.store.revision
        try:
            found = selection.narrow(shelf.at(revision))
        except Compacted:
            body = expired(_TOO_OLD_CONTINUE).body
            body["metadata"] = {"continue": encode_continue(-1, start)}
            raise ApiError(body) from None
        found = [one for one in found if one.key >= start]
    elif options.revision and (options.match == "Exact" or (not options.match and limit)):
        revision = options.revision
        await wait_for_revision(registry, revision)
        try:
            found = selection.narrow(shelf.at(revision))
        except Compacted:
            raise expired(_TOO_OLD_LIST) from None
    else:
        if options.revision:
            await wait_for_revision(registry, options.revision)
        if options.revision == 0:
            limit = 0  # served from the watch cache, which does not page
        revision = registry.store.revision
        found = selection.pick(shelf)
    return _cut(found, limit, revision, kind, selection)


def _cut(found: list[StoredObject], limit: int, revision: int, kind: ServedKind, selection: Selection) -> ListedPage:
    meta: Json = {"continue": ""} if kind.custom else {}
    meta["resourceVersion"] = str(revision)
    if limit and len(found) > limit:
        meta["continue"] = encode_continue(revision, found[limit - 1].key + "\0")
        if selection.everything:
            meta["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return ListedPage(found, meta)
