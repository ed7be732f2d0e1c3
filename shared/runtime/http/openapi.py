"""The OpenAPI 3.1 document, made from the route table and the schemas that handlers decode and encode with.

What is documented is what is done: there is no second description to fall behind. What is open to everybody
(``/healthz``, ``/ui``) is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shared.runtime.http.refusals import CODES, ErrorAnswer
from shared.runtime.http.routes import Route

REF = "#/components/schemas/{name}"

ALWAYS = ("invalid_request", "unauthenticated", "forbidden", "overloaded")
WITH_BODY = ("body_timeout", "conflict", "too_large", "media_type_unsupported")
UNAVAILABLE = "`no_leader`, `not_ready` and others: not now, or the outcome is unknown; see Retry-After"


def document(routes: Sequence[Route], *, version: str) -> dict[str, Any]:
    """The whole document, JSON-able."""
    answers = [route.answer for route in routes if route.answer is not None]
    bodies = [route.body for route in routes if route.body is not None]
    queries = list(dict.fromkeys(route.query for route in routes))
    kinds = list(dict.fromkeys([*_structs(answers), *bodies, ErrorAnswer]))
    (_, schemas) = msgspec.json.schema_components(kinds, ref_template=REF)
    (_, parameters) = msgspec.json.schema_components(queries, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        query = parameters.get(route.query.__name__, {})
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, query)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Conclave admin API",
            "version": version,
            "description": "What operators read and change. Lists come in pieces: `limit` and `continue`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
        "security": [{"token": []}, {"certificate": []}],
    }


def _structs(answers: list[Any]) -> list[Any]:
    return [answer for answer in answers if isinstance(answer, type) and issubclass(answer, msgspec.Struct)]


def _operation(route: Route, query: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 253}}
        for part in route.variables
    ]
    for name, schema in query.get("properties", {}).items():
        given = {"name": name, "in": "query", "required": name in query.get("required", ()), "schema": schema}
        if "description" in schema:
            given["description"] = schema["description"]
        parameters.append(given)
    shared = [CODES[code] for code in (*ALWAYS, *(WITH_BODY if route.body is not None else ()))]
    told = {row.status: f"`{row.code}`: {row.meaning}" for row in shared} | {503: UNAVAILABLE}
    told |= {CODES[code].status: f"`{code}`" for code in route.errors if CODES[code].status not in told}
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.path.split("/")[2]],
        "x-role": route.role.title,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": {route.media_type: {"schema": _schema(route.answer)}}},
            **{str(status): _refused(text) for status, text in sorted(told.items())},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": bool(_required(route.body)),
            "content": {"application/json": {"schema": {"$ref": REF.format(name=route.body.__name__)}}},
        }
    return operation


def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [item.name for item in msgspec.structs.fields(kind) if item.required]


def _schema(answer: Any) -> dict[str, Any]:
    if answer is None:
        return {"type": "string"}
    if _structs([answer]):
        return {"$ref": REF.format(name=answer.__name__)}
    return {"type": "object"}


def _refused(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": {"$ref": REF.format(name="ErrorAnswer")}}}}


def _operation_id(route: Route) -> str:
    parts = [part.strip("{}").replace("-", "_").replace(".", "_") for part in route.path.split("/")[2:]]
    return "_".join([route.method.lower(), *parts])
