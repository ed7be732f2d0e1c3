"""Every route of the OpenAPI document with whatever fits it, almost fits it, or does not: no 5xx but 503, no hang.

What is sent comes from the document that the API serves, so a route that is not documented would not be here; the first
test holds the two together. Answers must be what the document says: status, content type, schema.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.coordinator.http.table import ROUTES
from shared.runtime.http import admin, openapi
from shared.runtime.http.limits import Rate
from shared.runtime.http.routes import Route
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.http.api_world import ApiWorld, api_world

DOCUMENT = openapi.document(ROUTES, version="0")
UNLIMITED = Rate(per_s=1e9, burst=1e9)

texts = st.text(max_size=40) | st.sampled_from(
    ["n0", "p0", "default", "fgd", "train", "research", "0", "-1", "500", "active", "%00", "../x"]
)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts
documents = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(admin, "READS", UNLIMITED)
    monkeypatch.setattr(admin, "WRITES", UNLIMITED)
    async with api_world(tmp_path) as world:
        yield world


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """What a reference means."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema of the document, more or less: ranges and patterns are missed now and then."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return st.one_of([fitting(one) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return st.fixed_dictionaries(
                {}, optional={name: fitting(one) for name, one in schema["properties"].items()}
            )
        case "object":
            names = st.sampled_from(["batch_units", "log_level", "offer_deadline_ms", "nothing"])
            return st.dictionaries(names, fitting(schema.get("additionalProperties") or {}), max_size=3)
        case "integer":
            return st.integers(schema.get("minimum", 0) - 1, schema.get("maximum", 200) + 1)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "string":
            return texts
        case "null":
            return st.none()
        case _:
            return documents


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[Route, str, dict[str, Any]]]:
    """One request of each route that answers in JSON: (route, path with query, options)."""
    found = []
    for route in ROUTES:
        if route.media_type != "application/json":
            continue
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        path, query = route.path, {}
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                value = draw(texts.filter(bool))
                path = path.replace(f"{{{parameter['name']}}}", quote(value, safe=""))
            elif draw(st.booleans()):
                query[parameter["name"]] = str(draw(fitting(parameter["schema"]) | scalars))
        options: dict[str, Any] = {"headers": {"X-Request-Id": draw(st.sampled_from(["", "r-1", "x" * 99]))}}
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            body = draw(fitting(schema) | documents)
            data = draw(st.just(json.dumps(body).encode()) | st.binary(max_size=40))
            kind = draw(st.sampled_from(["application/json", "application/json", "text/plain", ""]))
            options["data"] = data
            options["headers"] |= {"Content-Type": kind} if kind else {}
        joined = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in query.items())
        found.append((route, f"{path}?{joined}" if joined else path, options))
    return found


def test_the_document_holds_every_route_and_nothing_else() -> None:
    documented = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert documented == {(route.method, route.path) for route in ROUTES}
    names = [one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names) == len(ROUTES)
    text = json.dumps(DOCUMENT)
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in DOCUMENT["components"]["schemas"]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=requests())
async def test_whatever_is_asked_is_answered_as_documented(
    world: ApiWorld, asked: list[tuple[Route, str, dict[str, Any]]]
) -> None:
    for number, (route, path, options) in enumerate(asked):
        async with asyncio.timeout(PATIENCE_S):
            answered = await world.ask(route.method, path, at=("c0", "c1")[number % 2], **options)
        told = (route.method, path, options, answered.status, answered.text[:300])
        assert answered.status < 500 or answered.status == 503, told
        assert answered.headers["Content-Type"].startswith("application/json"), told
        documented = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
        # a path with an empty part or a dot segment is another path
        assert str(answered.status) in documented or answered.code in ("route_unknown", "method_not_allowed"), told
        if answered.status != 200:
            assert set(answered.json) == {"code", "message"}, told
        elif isinstance(route.answer, type) and issubclass(route.answer, msgspec.Struct):
            msgspec.convert(answered.json, route.answer)
            assert set(answered.json) <= set(
                resolved(documented["200"]["content"][route.media_type]["schema"])["properties"]
            )
