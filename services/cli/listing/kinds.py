"""What a command lists: kinds with their columns. Each kind is declared once, next to the command that shows it.

A kind says what its items are called, where they are, and what their columns show; how they are chosen, sorted and
printed is the same for all of them (``wanted``). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cli.terminal.tables import GAP, cell, table

Json = Mapping[str, Any]
Of = Callable[[Json], Any]

API_VERSION = "conclave.io/v1"
WIDTH = 160
"""Columns of a terminal that a table fits."""
LEAST = 24
"""Characters that are left of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumn:
    """``value``: what it is sorted by; ``text``: what a cell shows, the value where None. ``wide``: only with -o wide.
    ``where_any``: only where some item has a value; ``cut``: sentences, shortened where the table is wider than
    ``WIDTH``; -o wide and json have them whole."""

    title: str
    value: Of
    text: Of | None = None
    right: bool = False
    wide: bool = False
    where_any: bool = False
    cut: bool = False


def text(
    title: str,
    value: str | Of,
    show: Of | None = None,
    *,
    wide: bool = False,
    where_any: bool = False,
    cut: bool = False,
) -> ListColumn:
    """A column of text; ``value``: a field's name, or a function of the item."""
    return ListColumn(title=title, value=_of(value), text=show, wide=wide, where_any=where_any, cut=cut)


def number(
    title: str, value: str | Of, show: Of | None = None, *, wide: bool = False, where_any: bool = False
) -> ListColumn:
    """A column of numbers, aligned to the right."""
    return ListColumn(title=title, value=_of(value), text=show, right=True, wide=wide, where_any=where_any)


def shown(show: Callable[[Any], str], name: str) -> Of:
    """A cell's text made of the field ``name``."""
    return lambda item: show(item.get(name))


def _of(value: str | Of) -> Of:
    return value if callable(value) else lambda item: item.get(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKind:
    """``title``: ``Node``, of whose items a list is a ``NodeList``; ``resource``: as ``-o name`` writes it."""

    title: str
    resource: str
    columns: Sequence[ListColumn]
    name: Of = field(default=lambda item: item.get("name"))
    namespace: Of | None = None
    """None: items have no namespace, and ``-n`` leaves all of them, as in kubectl."""
    labelled: bool = False
    """Whether whoever answers can select by labels."""
    empty: str = ""
    """Said to people where there is none."""

    def lines(self, items: Sequence[Json], *, wide: bool = False, headers: bool = True) -> list[str]:
        """The table, or that there is nothing in it."""
        if not items:
            return [self.empty] if self.empty and headers else []
        columns = [column for column in self.columns if _fits(column, items, wide)]
        rows = [[(column.text or column.value)(item) for column in columns] for item in items]
        if not wide:
            rows = fitting(columns, rows)
        found = table([(column.title, column.right) for column in columns], rows)
        return found if headers else found[1:]

    def object(self, item: Json) -> dict[str, Any]:
        """One item as ``-o json`` shows it: the API's fields, with a kind and metadata as every Kubernetes object."""
        metadata = {"name": str(self.name(item))}
        if self.namespace is not None:
            metadata["namespace"] = str(self.namespace(item) or "")
        found = {name: item[name] for name in ("uid", "labels") if item.get(name)}
        return {"kind": self.title, "apiVersion": API_VERSION, "metadata": metadata | found, **item}

    def document(self, items: Iterable[Json], beside: Json | None = None) -> dict[str, Any]:
        """A list as ``-o json`` shows it. ``beside``: what the answer holds beside its items."""
        return {
            "kind": f"{self.title}List",
            "apiVersion": API_VERSION,
            "metadata": {},
            **(beside or {}),
            "items": [self.object(item) for item in items],
        }

    def names(self, items: Iterable[Json]) -> list[str]:
        """Items as ``-o name`` shows them."""
        return [f"{self.resource}/{self.name(item)}" for item in items]


def fitting(columns: Sequence[ListColumn], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The rows with their sentences cut to what ``WIDTH`` leaves them, the longest column first; names and numbers are
    never cut."""
    widths = [max(len(column.title), *(len(cell(row[at])) for row in rows)) for at, column in enumerate(columns)]
    over = sum(widths) + len(GAP) * (len(columns) - 1) - WIDTH
    while over > 0:
        sentences = [at for at, column in enumerate(columns) if column.cut and widths[at] > LEAST]
        if not sentences:
            break
        at = max(sentences, key=widths.__getitem__)
        others = [widths[other] for other in sentences if other != at]
        less = min(over, widths[at] - LEAST, max(1, widths[at] - max(others, default=LEAST)))
        widths[at] -= less
        over -= less
    return [[_cut(value, widths[at]) if columns[at].cut else value for at, value in enumerate(row)] for row in rows]


def _cut(value: Any, width: int) -> Any:
    text = cell(value)
    return value if len(text) <= width else f"{text[: width - 3].rstrip()}..."


def _fits(column: ListColumn, items: Sequence[Json], wide: bool) -> bool:
    if column.wide and not wide:
        return False
    return not column.where_any or any(column.value(item) is not None for item in items)
