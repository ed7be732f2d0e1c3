"""Which items of a list are wanted, in which order and form: what kubectl's options say, for every list. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cli.listing.kinds import Json, Kind
from services.cli.listing.sorting import parse_path, sorter

Lines = Sequence[str]
LABELS = (".metadata.labels", "metadata.labels")


@dataclass(frozen=True, slots=True)
class Found:
    """What a server has of a kind. ``beside``: what its answer holds beside the items."""

    items: Sequence[Json]
    beside: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of one call. ``namespace`` "": of all; ``selector``: the server's to apply; ``limit`` 0: all."""

    kind: Kind
    output: str = "table"
    namespace: str = ""
    selector: str = ""
    sort_by: str = ""
    headers: bool = True
    limit: int = 0
    _sorted: Callable[[Sequence[Json]], list[Json]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sorted", sorter(self.kind, self.sort_by) if self.sort_by else list)

    @property
    def most(self) -> int:
        """How many to ask a server for, who knows of no namespaces; 0: all."""
        return 0 if self._narrows else self.limit

    @property
    def label(self) -> str:
        """The label that is sorted by, which a server must be asked for; "" where it is none."""
        steps = parse_path(self.sort_by, self.kind) if self.sort_by.strip("{}$ ").startswith(LABELS) else []
        return str(steps[2]) if len(steps) == 3 else ""

    @property
    def _narrows(self) -> bool:
        return bool(self.namespace) and self.kind.namespace is not None

    def arranged(self, items: Iterable[Json]) -> list[Json]:
        """The items that are wanted: at most ``limit`` in the list's own order, and then sorted."""
        kept = [item for item in items if not self._narrows or self._in_namespace(item)]
        return self._sorted(kept[: self.limit] if self.limit else kept)

    def _in_namespace(self, item: Json) -> bool:
        assert self.kind.namespace is not None
        return bool(self.kind.namespace(item) == self.namespace)

    def text(self, found: Found, head: Callable[[Found], Lines] | None = None) -> list[str]:
        """The lines to print. ``head``: lines above the table, for people."""
        items = self.arranged(found.items)
        if self.output == "name":
            return self.kind.names(items)
        if self.output in DOCUMENTS:
            return [document_text(self.kind.document(items, found.beside), self.output)]
        above = [*head(found), ""] if head is not None and self.headers else []
        if not items and self._narrows and self.headers:
            lines = [f"none in namespace {self.namespace}"]
        else:
            lines = self.kind.lines(items, wide=self.output == "wide", headers=self.headers)
        return [*above, *lines] if lines else above[:-1]

    def line(self, found: Found) -> list[str]:
        """As ``text``, of one look of many: a document on one line."""
        if self.output == "json":
            return [json.dumps(self.kind.document(self.arranged(found.items), found.beside))]
        return self.text(found)


DOCUMENTS = ("json", "yaml")
"""Outputs that print a whole document."""


def document_text(document: Any, output: str) -> str:
    """The document as JSON or YAML, without a line break at its end."""
    if output == "yaml":
        import yaml

        text: str = yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=120)
        return text.rstrip("\n")
    return json.dumps(document, indent=2)


def _plain(value: Any) -> Any:
    """The value in the types that YAML knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
