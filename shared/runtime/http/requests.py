"""Does what a caller of the admin API sends fit its route's schemas: path, query and body, each within its bounds.

Unknown fields, values given twice, and bodies that are too large, too slow or not JSON are refused, naming the field.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect
from aiohttp import web

from shared.runtime.http.callers import Caller
from shared.runtime.http.guard import read_body
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import PRINTED, Ask, Route

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
            raise RequestRefused(f"{name}: given twice; give it once", code="invalid_request")
        given[name] = value
    try:
        return msgspec.convert(given, route.query, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise RequestRefused(_told(error, route.query), code="invalid_request") from None


async def _body(route: Route, request: web.Request) -> Any:
    if route.body is None:
        return None
    data = await read_body(request, route.body_bytes)
    if data and request.content_type != "application/json":
        raise RequestRefused("send application/json", code="media_type_unsupported")
    try:
        return msgspec.json.decode(data or b"{}", type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(f"body: {_told(error, route.body)}", code="invalid_request") from None


def _told(error: Exception, kind: type) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "not UTF-8"
    choices = re.search(r"^Invalid enum value .*`\$\.(\w+)`$", str(error))
    if choices is not None and (allowed := _choices(kind).get(choices[1])):
        return f"{error}; it is one of {', '.join(allowed)}"
    return str(error).replace(f"matching regex {PRINTED!r}", "without control characters or line breaks")


@cache
def _choices(kind: type) -> dict[str, list[str]]:
    """What the fields of a schema may be, by name, where there is a choice. The empty text is as good as none."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    found = {}
    for field in info.fields:
        types = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        found[field.encode_name] = [
            str(value) for one in types if isinstance(one, msgspec.inspect.LiteralType) for value in one.values if value
        ]
    return found
