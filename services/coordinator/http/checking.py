"""Does what a caller sends fit its route's schemas: path, query and body, each within its bounds.

It refuses unknown fields, values given twice, bodies that are too large, too slow or not JSON, and says which field.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from services.coordinator.http.access import Caller
from services.coordinator.http.answers import refusal
from services.coordinator.http.routing import PRINTED, Ask, Route
from shared.runtime.http.listener import BODY_TIMEOUT_S, Refused

T = TypeVar("T")

MAX_BODY_BYTES = 64 << 10
MAX_EVENT_ID = 64


async def ask_of(route: Route, request: web.Request, caller: Caller, request_id: str) -> Ask[Any, Any]:
    """Checked against the route's schemas. Refused: 4xx."""
    query, body = _query(route, request), await _body(route, request)
    last_seen = request.headers.get("Last-Event-ID", "")[:MAX_EVENT_ID]
    return Ask(caller, request_id, dict(request.match_info), query, body, last_seen)


def _query(route: Route, request: web.Request) -> Any:
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise refusal(f"{name}: given twice; give it once")
        given[name] = value
    return checked(given, route.query, strict=False)


async def _body(route: Route, request: web.Request) -> Any:
    if route.body is None:
        return None
    data = await read_body(request)
    if not data:
        return checked({}, route.body, strict=True)
    if request.content_type != "application/json":
        raise Refused("send application/json", code="media_type_unsupported", status=415)
    try:
        return msgspec.json.decode(data, type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refusal(f"body: {_told(error)}") from None


async def read_body(request: web.Request) -> bytes:
    """The body, within its bounds. Refused: 413, 408."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise Refused(f"body over {MAX_BODY_BYTES} bytes", code="too_large", status=413)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise Refused("the body came too slowly", code="body_timeout", status=408) from None
    except web.HTTPRequestEntityTooLarge:
        raise Refused(f"body over {MAX_BODY_BYTES} bytes", code="too_large", status=413) from None


def checked(given: dict[str, Any], kind: type[T], *, strict: bool) -> T:
    """``given`` as the schema wants it. Refused: 400 ``invalid_request`` naming the field."""
    try:
        return msgspec.convert(given, kind, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise refusal(_told(error)) from None


def _told(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    return str(error).replace(f"matching regex {PRINTED!r}", "without control characters or line breaks")
