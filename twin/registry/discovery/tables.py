"""Objects as Table and as PartialObjectMetadata: what kubectl and metadata informers ask for.

Source: apiserver ``endpoints/handlers/response.go``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from twin.registry.served import ServedKind
from twin.registry.status import Json, bad_request
from twin.registry.stored import StoredChange, StoredObject

INCLUDE = ("", "Metadata", "Object", "None")


def check_include(include: str) -> str:
    """``includeObject`` of the query. Refused: 400."""
    if include not in INCLUDE:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return include or "Metadata"


def partial(stored: StoredObject, version: str = "v1") -> Json:
    """One object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": stored.obj["metadata"],
    }


def columns(kind: ServedKind) -> list[Json]:
    """``columnDefinitions``."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in kind.strategy.table_columns
    ]


def row(kind: ServedKind, stored: StoredObject, include: str, now_s: float, version: str) -> Json:
    """One row; ``include`` says how much of the object goes with it. Cells are made of the stored form."""
    shown = kind.shown(stored)
    embedded: Any = None
    if include == "Metadata":
        embedded = partial(shown, version)
    elif include == "Object":
        embedded = kind.wrap(shown.obj)
    line: Json = {"cells": kind.strategy.table_cells(stored.obj, now_s)}
    conditions = kind.strategy.table_row_conditions(shown.obj)
    if conditions:
        line["conditions"] = conditions
    line["object"] = embedded
    return line


def table(
    kind: ServedKind,
    objects: Iterable[StoredObject],
    meta: Json,
    *,
    include: str,
    now_s: float,
    version: str = "v1",
    with_columns: bool = True,
) -> Json:
    """A Table of a list, of one object, or of a watch event (``with_columns`` in the first only)."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": meta,
        "columnDefinitions": columns(kind) if with_columns else None,
        "rows": [row(kind, one, include, now_s, version) for one in objects],
    }


def partial_list(objects: Iterable[StoredObject], meta: Json, version: str) -> Json:
    """A PartialObjectMetadataList."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": meta,
        "items": [partial(one, version) for one in objects],
    }


def event(type_: str, obj: Json) -> bytes:
    """A watch event line around an object that is not the stored bytes."""
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


class TableFrames:
    """Renders the changes of one watch as Tables; the first one carries the columns."""

    def __init__(self, kind: ServedKind, include: str, version: str, clock: Any) -> None:
        self._kind = kind
        self._include = include
        self._version = version
        self._clock = clock
        self._first = True

    def __call__(self, change: StoredChange, type_: str) -> bytes:
        stored = change.left if type_ == "DELETED" else change.new
        return self.frame(stored, type_)

    def frame(self, stored: StoredObject, type_: str) -> bytes:
        """One event."""
        meta = {"resourceVersion": str(stored.revision)}
        first, self._first = self._first, False
        body = table(
            self._kind,
            [stored],
            meta,
            include=self._include,
            now_s=self._clock(),
            version=self._version,
            with_columns=first,
        )
        return event(type_, body)
