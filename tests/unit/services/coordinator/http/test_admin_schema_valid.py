"""What fits the document is not refused as if it did not: a client made from it must not meet a 400.

Every parameter and body is generated from its schema, patterns and bounds included; the rest of the API's answers
(404 for a name that is not there, 409, 422) say something about the mesh and not about the request's form.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from services.coordinator.http.table import ROUTES
from shared.runtime.http import admin
from shared.runtime.http.limits import Rate
from shared.runtime.http.routes import Route
from tests.unit.services.coordinator.http.api_world import ApiWorld, api_world
from tests.unit.services.coordinator.http.test_admin_fuzz import DOCUMENT, resolved

UNLIMITED = Rate(per_s=1e9, burst=1e9)
LEAST, MOST = -(2**31), 2**31


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(admin, "READS", UNLIMITED)
    monkeypatch.setattr(admin, "WRITES", UNLIMITED)
    async with api_world(tmp_path) as world:
        yield world


def valid(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema allows, and no others."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return st.one_of([valid(one) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            needed = {name: valid(schema["properties"][name]) for name in schema.get("required", ())}
            rest = {name: valid(one) for name, one in schema["properties"].items() if name not in needed}
            return st.fixed_dictionaries(needed, optional=rest)
        case "object":
            names = st.sampled_from(["batch_units", "log_level", "offer_deadline_ms", "nothing"])
            inner = valid(schema["additionalProperties"])
            return st.dictionaries(names, inner, min_size=schema.get("minProperties", 0), max_size=3)
        case "array":
            return st.lists(valid(schema["items"]), max_size=schema.get("maxItems", 8))
        case "integer":
            return st.integers(schema.get("minimum", LEAST), schema.get("maximum", MOST))
        case "number":
            least, most = schema.get("minimum", -1e6), schema.get("maximum", 1e6)
            return st.floats(least, most, allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "string":
            least, most = schema.get("minLength", 0), schema.get("maxLength", 64)
            if schema.get("contentEncoding") == "base64":
                return st.binary(max_size=64).map(lambda data: b64encode(data).decode())
            if "pattern" in schema:
                found = st.from_regex(schema["pattern"], fullmatch=True)
            else:
                found = st.text(st.characters(exclude_categories=["Cs"]), max_size=min(most, 64))
            return found.filter(lambda text: least <= len(text) <= most)
        case "null":
            return st.none()
        case kind:
            raise AssertionError(f"no values are made for {kind}")


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[Route, str, dict[str, Any]]]:
    """One request of each route that answers in JSON."""
    found = []
    for route in ROUTES:
        if route.media_type != "application/json":
            continue
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        path, query = route.path, {}
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                value = draw(st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True))
                path = path.replace(f"{{{parameter['name']}}}", quote(value, safe=""))
            elif draw(st.booleans()):
                value = draw(valid(parameter["schema"]))
                if value is not None:  # a parameter that is null is one that is not given
                    query[parameter["name"]] = value if isinstance(value, str) else json.dumps(value)
        options: dict[str, Any] = {}
        if "requestBody" in operation:
            options["json"] = draw(valid(operation["requestBody"]["content"]["application/json"]["schema"]))
        found.append((route, f"{path}?{urlencode(query)}" if query else path, options))
    return found


@settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(asked=requests())
async def test_what_fits_the_document_is_not_refused_for_its_form(
    world: ApiWorld, asked: list[tuple[Route, str, dict[str, Any]]]
) -> None:
    for route, path, options in asked:
        answered = await world.ask(route.method, path, **options)
        assert answered.status not in (400, 413, 415), (route.method, path, options, answered.text[:300])
