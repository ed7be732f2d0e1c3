"""Definitions with one thing odd about them: short enough that the odd thing is what one reads."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

GROUP = "check.conclave.io"
STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
BOOLEAN: Json = {"type": "boolean"}


def obj(properties: Json | None = None, **more: Any) -> Json:
    """An object's schema; in keyword arguments ``x_`` stands for ``x-kubernetes-`` and ``_`` for ``-`` in those."""
    found: Json = {"type": "object", **keywords(more)}
    return {**found, "properties": properties} if properties is not None else found


def array(items: Json | None, **more: Any) -> Json:
    """A list's schema."""
    found: Json = {"type": "array", **keywords(more)}
    return {**found, "items": items} if items is not None else found


def mapping(values: Any, **more: Any) -> Json:
    """A map's schema."""
    return {"type": "object", "additionalProperties": values, **keywords(more)}


def keywords(given: Json) -> Json:
    """``x_list_type`` becomes ``x-kubernetes-list-type``; ``rules`` the validations; others stay."""
    found: Json = {}
    for key, value in given.items():
        if key == "rules":
            found["x-kubernetes-validations"] = [{"rule": one} if isinstance(one, str) else one for one in value]
        elif key.startswith("x_"):
            found["x-kubernetes-" + key[2:].replace("_", "-")] = value
        else:
            found[key] = value
    return found


def kw(base: Json, **more: Any) -> Json:
    """A schema with more keywords."""
    return {**base, **keywords(more)}


def version(schema: Any = None, name: str = "v1", *, storage: bool = True, served: bool = True, **more: Any) -> Json:
    """One version; without a schema it has a plain one, with ``schema=False`` none."""
    found: Json = {"name": name, "served": served, "storage": storage}
    if schema is not False:
        found["schema"] = {"openAPIV3Schema": obj({"spec": obj()}) if schema is None else schema}
    return {**found, **more}


def definition(schema: Any = None, *, names: Json | None = None, metadata: Json | None = None, **spec: Any) -> Json:
    """A definition whose one version has this root schema; what is given of the spec replaces its part."""
    known: Json = {"plural": "things", "kind": "Thing", **(names or {})}
    whole: Json = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {key: value for key, value in known.items() if value is not None},
        "versions": [version(schema)],
        **spec,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{whole['names'].get('plural', 'things')}.{whole['group']}", **(metadata or {})},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def spec(properties: Json, **more: Any) -> Json:
    """A definition whose objects have a ``spec`` of these properties."""
    return definition(obj({"spec": obj(properties, **more)}))


def field(schema: Json) -> Json:
    """A definition whose objects have one field ``spec.x``."""
    return spec({"x": schema})
