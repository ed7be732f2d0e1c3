"""Which items of a list are wanted, in which order and form: what kubectl's options say, for every list. Pure.

``--sort-by`` takes a column's title, or a path into the object as kubectl takes it:

    NAME    cpu-requested    .metadata.name    {.requested.cpu_millis}    .considered[0].node    ['metadata']['name']
    .metadata.labels.topology\\.kubernetes\\.io/zone

Numbers are compared as numbers, text so that ``node-2`` comes before ``node-10``; what is not there comes first, as in
kubectl. Equal ones keep the list's own order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cli.listing.kinds import Json, ListKind
from shared.errors import ConfigError

Step = str | int

_STEP = re.compile(r"""\.?(?:((?:[^.\[\]{}\\]|\\.)+)|\[(-?[0-9]{1,9})\]|\['([^']*)'\]|\["([^"]*)"\])""")
_RUN = re.compile(r"([0-9]+)")


def sorter(kind: ListKind, by: str) -> Callable[[Sequence[Json]], list[Json]]:
    """Puts items in order. ``ConfigError``, also later: ``by`` is no column and no path, or no item has it."""
    title = by.strip().replace("_", "-").upper()
    column = next((column for column in kind.columns if column.title == title), None)
    if column is not None:
        return lambda items: sorted(items, key=lambda item: rank(column.value(item)))
    steps = parse_path(by, kind)

    def in_order(items: Sequence[Json]) -> list[Json]:
        found = [look_up(kind.object(item), steps) for item in items]
        if items and all(value is None for value in found):
            raise ConfigError(f"--sort-by: nothing listed has {by}; {_remedy(kind)}")
        ranks = [rank(value) for value in found]
        return [items[at] for at in sorted(range(len(items)), key=ranks.__getitem__)]

    return in_order


def parse_path(text: str, kind: ListKind) -> list[Step]:
    """The steps of a path. ``ConfigError``: it is none."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(inner):
        found = _STEP.match(inner, at)
        if found is None:
            break
        name, index, quoted, double = found.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(re.sub(r"\\(.)", r"\1", name) if name is not None else (quoted or double or ""))
        at = found.end()
    if not steps or at < len(inner) or steps == ["*"]:
        raise ConfigError(f"--sort-by: {text!r} is neither a column nor a path; {_remedy(kind)}")
    return steps


def look_up(value: Any, steps: Sequence[Step]) -> Any:
    """What lies at the end of the steps; None where one leads nowhere."""
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list | tuple) or not -len(value) <= step < len(value):
                return None
            value = value[step]
        elif isinstance(value, Mapping):
            value = value.get(step)
        else:
            return None
    return value


def rank(value: Any) -> tuple[int, Any]:
    """What a value is compared by."""
    if value is None or value == "":
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    if isinstance(value, str):
        # every second part is a run of digits, so that numbers are compared with numbers
        return 2, [int(part) if at % 2 else part for at, part in enumerate(_RUN.split(value))]
    return 3, json.dumps(value, sort_keys=True, default=str)


def _remedy(kind: ListKind) -> str:
    return f"give {', '.join(column.title for column in kind.columns)}, or a path such as .metadata.name"


Lines = Sequence[str]
LABELS = (".metadata.labels", "metadata.labels")


@dataclass(frozen=True, slots=True)
class FoundItems:
    """What a server has of a kind. ``beside``: what its answer holds beside the items."""

    items: Sequence[Json]
    beside: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The options of one call. ``namespace`` "": of all; ``selector``: the server's to apply; ``limit`` 0: all."""

    kind: ListKind
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

    def text(self, found: FoundItems, head: Callable[[FoundItems], Lines] | None = None) -> list[str]:
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

    def line(self, found: FoundItems) -> list[str]:
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
