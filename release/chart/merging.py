"""Objects of many variants as one template: what all have stands bare, the rest under guards.

    {variant: value} --the same in all--> lines
                     --keys or items that some lack--> {{- if condition }} lines {{- end }}
                     --another in each--> {{- if }} one {{- else if }} other {{- end }}

Items of a list are told apart by their name (container, volume), path or key, else by what they are; their order is
what all variants have in common. Values that a person sets (``parameters.py``) take the place of theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from itertools import groupby
from typing import Any

from release.chart.conditions import Literal, condition

Values = Mapping[int, Any]
"""The value in each variant that has one, by the variant's number."""
Path = tuple[str, ...]
Parameter = Callable[[Path, Any], list[str] | None]
"""The lines, without indentation, that stand for the value at a path, with its key or dash; None: the value itself.
Asked with ``END`` for the last part of the path it may add lines to a mapping."""

END = ""
ITEM_KEYS = ("mountPath", "name", "topologyKey", "secretName")
PLAIN = re.compile(r"[A-Za-z/][\w./-]*")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True)
class Merger:
    """``asked``: what guards may ask; ``text``: what becomes of each string (namespaces, braces) once it is quoted."""

    asked: Sequence[Literal]
    text: Callable[[str], str]
    parameter: Parameter

    def document(self, values: Values, within: int, more: Sequence[str] = ()) -> list[str]:
        """One object; ``more``: conditions of its kind beside those of its variants."""
        lines = ["---", *self._mapping(values, ())]
        terms = [*more, *self._terms(values, within)]
        if not terms:
            return lines
        guard = (
            terms[0] if len(terms) == 1 else "and " + " ".join(f"({term})" if " " in term else term for term in terms)
        )
        return [f"{{{{- if {guard} }}}}", *lines, "{{- end }}"]

    def _terms(self, values: Values, within: int) -> list[str]:
        present = bits(values)
        return [] if present == within else [condition(present, within, self.asked)]

    def _mapping(self, values: Values, path: Path) -> list[str]:
        inner: dict[str, dict[int, Any]] = {}
        for at, value in values.items():
            for key, one in value.items():
                inner.setdefault(key, {})[at] = one
        emit = {key: partial(self._entry, key, path=(*path, key)) for key in inner}
        return self._guarded(inner, bits(values), emit) + (self.parameter((*path, END), None) or [])

    def _guarded(
        self, parts: Mapping[str, Values], within: int, emit: Mapping[str, Callable[[Values], list[str]]]
    ) -> list[str]:
        """The parts one after the other; neighbours that are there on the same condition stand under one guard."""
        lines: list[str] = []
        for terms, names in groupby(parts, lambda name: self._terms(parts[name], within)):
            inner = [line for name in names for line in emit[name](parts[name])]
            lines += [f"{{{{- if {terms[0]} }}}}", *inner, "{{- end }}"] if terms else inner
        return lines

    def _entry(self, key: str, values: Values, path: Path) -> list[str]:
        """``key: value``, whatever the value is."""
        first = next(iter(values.values()))
        whole = self.parameter(path, first) if isinstance(first, (dict, list)) else None
        if whole is not None:
            return whole
        head = f"{self._scalar(key)}:"
        if all(isinstance(value, dict) and value for value in values.values()):
            return [head, *indented(self._mapping(values, path))]
        if all(isinstance(value, list) and value for value in values.values()):
            return [head, *self._list(values, path)]
        return self._chosen(values, lambda value: self.parameter(path, value) or self._line(head, value))

    def _chosen(self, values: Values, emit: Callable[[Any], list[str]]) -> list[str]:
        """One of several values, by what decides between them."""
        groups = grouped(values)
        if len(groups) == 1:
            return emit(groups[0][1])
        lines: list[str] = []
        left = bits(values)
        for number, (where, value) in enumerate(groups):
            word = (
                "else"
                if number == len(groups) - 1
                else f"{'else ' if number else ''}if {condition(where, left, self.asked)}"
            )
            lines += [f"{{{{- {word} }}}}", *emit(value)]
            left &= ~where
        return [*lines, "{{- end }}"]

    def _list(self, values: Values, path: Path) -> list[str]:
        named = {at: dict(zip(identities(items), items, strict=True)) for at, items in values.items()}
        order = merged_order([list(items) for items in named.values()])
        inner = {name: {at: items[name] for at, items in named.items() if name in items} for name in order}
        return self._guarded(inner, bits(values), {name: partial(self._item, path=(*path, name)) for name in order})

    def _item(self, values: Values, path: Path) -> list[str]:
        if all(isinstance(value, dict) for value in values.values()):
            return dashed(self._mapping(values, path))
        return self._chosen(values, lambda value: self.parameter(path, value) or self._line("-", value))

    def _line(self, head: str, value: Any) -> list[str]:
        if isinstance(value, str) and "\n" in value and not value.startswith((" ", "\n")):
            keeps_end = "" if value.endswith("\n") else "-"
            return [f"{head} |{keeps_end}", *indented(self.text(value).removesuffix("\n").split("\n"))]
        if isinstance(value, (dict, list)) and value:
            inner = {0: value}
            return [
                head,
                *(indented(self._mapping(inner, (head,))) if isinstance(value, dict) else self._list(inner, (head,))),
            ]
        return [f"{head} {self._scalar(value)}"]

    def _scalar(self, value: Any) -> str:
        if not isinstance(value, str):
            return json.dumps(value)
        plain = PLAIN.fullmatch(value) and value.lower() not in WORDS and self.text(value) == value
        return value if plain else self.text(json.dumps(value, ensure_ascii=False))


def bits(values: Values) -> int:
    """The variants as a set of bits."""
    return sum(1 << at for at in values)


def grouped(values: Values) -> list[tuple[int, Any]]:
    """Which variants share a value, the rarest first."""
    found: dict[str, tuple[int, Any]] = {}
    for at, value in values.items():
        name = json.dumps(value, sort_keys=True)
        where, _ = found.get(name, (0, None))
        found[name] = where | 1 << at, value
    return sorted(found.values(), key=lambda one: one[0].bit_count())


def identities(items: Sequence[Any]) -> list[str]:
    """What an item of a list is known by in all variants; the second of the same gets a number."""
    names: list[str] = []
    for item in items:
        keys = [key for key in ITEM_KEYS if isinstance(item, dict) and isinstance(item.get(key), str)]
        name = f"{keys[0]}={item[keys[0]]}" if keys else json.dumps(item, sort_keys=True)
        names.append(name if name not in names else f"{name}#{names.count(name)}")
    return names


def merged_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """One order that agrees with all. ``CycleError``: there is none."""
    graph: dict[str, set[str]] = {}
    for one in lists:
        for at, name in enumerate(one):
            graph.setdefault(name, set())
            if at:
                graph[name].add(one[at - 1])
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    first_seen = {name: at for at, name in enumerate(graph)}
    order: list[str] = []
    ready = list(sorter.get_ready())
    while ready:
        ready.sort(key=lambda name: first_seen[name])
        name = ready.pop(0)
        order.append(name)
        sorter.done(name)
        ready += sorter.get_ready()
    return order


def indented(lines: Sequence[str]) -> list[str]:
    """Two columns further in; guards too."""
    return [f"  {line}" if line else line for line in lines]


def dashed(lines: Sequence[str]) -> list[str]:
    """An item of a list: the first line that is no guard bears the dash."""
    return list(_dashes(lines))


def _dashes(lines: Sequence[str]) -> Iterator[str]:
    if lines and lines[0].startswith("{{"):
        raise ValueError(f"the first field of a list's item is under a guard: {lines[0]}")
    for number, line in enumerate(lines):
        yield f"- {line}" if number == 0 else f"  {line}" if line else line
