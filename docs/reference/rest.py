"""The admin API as a page, from the OpenAPI document that the API itself serves. Part of ``generate``."""

from __future__ import annotations

import textwrap
from typing import Any

Json = dict[str, Any]


def sections(document: Json) -> list[str]:
    """A table of all routes, a section for each, and one for each schema."""
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    rows = ["| route | role | what |", "|---|---|---|"]
    rows += [f"| `{method} {path}` | {one['x-role']} | {one['summary']} |" for method, path, one in operations]
    parts = ["\n".join(rows) + "\n", "## Routes\n"]
    parts += [_route(method, path, operation) for method, path, operation in operations]
    parts.append("## Schemas\n")
    parts += [_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return parts


def _route(method: str, path: str, operation: Json) -> str:
    lines = [f"### {method} {path}", "", f"{operation['summary']}. Role: {operation['x-role']}.", ""]
    given = [one for one in operation["parameters"] if one["in"] != "path"]
    if given:
        lines += ["| parameter | value | meaning |", "|---|---|---|"]
        lines += [f"| `{p['name']}` | {_type(p['schema'])} | {_cell(p.get('description', ''))} |" for p in given]
        lines.append("")
    body = operation.get("requestBody")
    if body is not None:
        lines += [f"Body: {_type(_content(body['content']))}.", ""]
    answer = operation["responses"]["200"]["content"]
    media = next(iter(answer))
    lines += [f"Answer: {_type(_content(answer))}" + ("." if media == "application/json" else f" (`{media}`)."), ""]
    codes = [f"{status} {told['description']}" for status, told in operation["responses"].items() if status != "200"]
    own = [code for code in codes if not code.startswith(("400", "401", "403", "408", "413", "415", "429", "503"))]
    if own:
        lines += ["Refused: " + "; ".join(own) + ".", ""]
    return "\n".join(lines)


def _content(content: Json) -> Json:
    schema: Json = next(iter(content.values()))["schema"]
    return schema


def _schema(name: str, schema: Json) -> str:
    about = " ".join(schema.get("description", "").split()).replace("``", "`")
    about = textwrap.fill(about, 130, break_long_words=False, break_on_hyphens=False)
    if "properties" not in schema:
        return f"### {name}\n\n{about or _type(schema)}\n"
    needed = set(schema.get("required", ()))
    rows = ["| field | value | |", "|---|---|---|"]
    for field, one in schema["properties"].items():
        default = f"default `{one['default']}`" if "default" in one and field not in needed else ""
        rows.append(f"| `{field}` | {_type(one)} | {_cell(one.get('description', '') or default)} |")
    return f"### {name}\n\n" + (f"{about}\n\n" if about else "") + "\n".join(rows) + "\n"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items') or schema.get('prefixItems', [{}])[0])}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"map to {_type(inner)}" if isinstance(inner, dict) and inner else "object"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    bounds = " ".join(f"{word} {value}" for word, value in (("from", low), ("to", high)) if value is not None)
    if "maxLength" in schema:
        bounds = f"of at most {schema['maxLength']} characters"
    return f"{kind} {bounds}".strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")
