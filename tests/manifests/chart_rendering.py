"""Renders the chart's templates: the part of Go's templates and Helm's functions that ``release/chart`` writes.

Actions are ``if``, ``else if``, ``else``, ``end``, ``range`` and values; anything else raises. It was
held against Helm 4.2.3 on every preset and 40 other choices of values (ADR 0099).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.manifests.rendering import LOADER

Scope = dict[str, Any]
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[()|]|[^\s()|]+')


class NotOfTheSubset(Exception):
    """A template says what this renderer does not know."""


def split(text: str) -> Iterator[tuple[str, str]]:
    """(what stands before, action) of each action, less white space where a dash says so; the last is ""."""
    at, strips = 0, False
    for found in re.finditer(r"\{\{(-?) (.*?) (-?)\}\}", text, re.DOTALL):
        before = text[at : found.start()]
        before = before.lstrip() if strips else before
        yield (before.rstrip() if found[1] else before), found[2]
        at, strips = found.end(), bool(found[3])
    yield (text[at:].lstrip() if strips else text[at:]), ""


def parse(pieces: Iterator[tuple[str, str]], nodes: list[Any]) -> str:
    """Fill ``nodes`` up to the ``else`` or ``end`` that closes them, which is returned ("" at the end of the text)."""
    for before, action in pieces:
        nodes.append(before)
        word = action.partition(" ")[0]
        if word in ("else", "end", ""):
            return action
        if word == "range":
            body: list[Any] = []
            if parse(pieces, body) != "end":
                raise NotOfTheSubset(action)
            nodes.append(("range", (action[6:], body)))
        elif word == "if":
            branches: list[tuple[str, list[Any]]] = []
            while word:
                body = []
                branches.append((action.removeprefix("else ").removeprefix("if ") if "if" in action else "", body))
                action = parse(pieces, body)
                word = action.partition(" ")[0].replace("end", "")
            nodes.append(("if", branches))
        else:
            nodes.append(("value", action))
    return ""


@dataclass
class Rendering:
    """One rendering of a chart: ``values`` are the defaults with a person's over them."""

    chart: Path
    values: dict[str, Any]
    namespace: str
    _read: dict[str, list[Any]] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """What a template comes to."""
        if name not in self._read:
            self._read[name] = []
            closed = parse(split((self.chart / "templates" / name).read_text(encoding="utf-8")), self._read[name])
            assert closed == "", closed
        manifest = yaml.safe_load((self.chart / "Chart.yaml").read_text())
        scope: Scope = {
            "Values": self.values,
            "Release": {"Namespace": self.namespace, "Revision": 1},
            "Chart": {"AppVersion": manifest["appVersion"]},
            "Template": {"BasePath": "conclave/templates"},
        }
        return "".join(self._shown(self._read[name], scope, {"$": scope}))

    def documents(self) -> list[dict[str, Any]]:
        """Every object, of every template."""
        texts = [self.file(path.name) for path in sorted((self.chart / "templates").glob("*.yaml"))]
        return [one for text in texts for one in yaml.load_all(text, Loader=LOADER) if one]

    def _shown(self, nodes: list[Any], dot: Any, names: Scope) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield node
                continue
            kind, said = node
            if kind == "value":
                found = self._pipe(said, dot, names)
                yield str(found)
            elif kind == "if":
                for condition, body in said:
                    if not condition or self._pipe(condition, dot, names):
                        yield from self._shown(body, dot, names)
                        break
            else:
                yield from self._each(said, dot, names)

    def _each(self, said: tuple[str, list[Any]], dot: Any, names: Scope) -> Iterator[str]:
        declared, _, expression = said[0].rpartition(" := ")
        over = self._pipe(expression, dot, names) or []
        items = sorted(over.items()) if isinstance(over, dict) else enumerate(over)
        for pair in items:
            mine = dict(zip(declared.split(", "), pair, strict=True)) if declared else {}
            yield from self._shown(said[1], pair[1], {**names, **mine})

    def _pipe(self, text: str, dot: Any, names: Scope) -> Any:
        """A pipeline: the result of each command is the last argument of the next."""
        words, before = WORD.findall(text), []
        while words:
            before = [self._command(words, dot, names, before)]
            if words and words.pop(0) != "|":
                raise NotOfTheSubset(text)
        return before[0]

    def _command(self, words: list[str], dot: Any, names: Scope, before: list[Any]) -> Any:
        head = words.pop(0)
        given: list[Any] = []
        function = FUNCTIONS.get(head) or (self._own(head, dot) if head in ("include", ".Files.Get") else None)
        if function is None:
            return self._value(head, words, dot, names)
        while words and words[0] not in ("|", ")"):
            given.append(self._value(words.pop(0), words, dot, names))
        return function(*given, *before)

    def _value(self, word: str, words: list[str], dot: Any, names: Scope) -> Any:
        if word == "(":
            found = self._command(words, dot, names, [])
            assert words.pop(0) == ")"
            return found
        if word.startswith('"') or word.isdigit():
            return json.loads(word)
        first, *path = word.split(".")
        if first not in ("", *names):
            raise NotOfTheSubset(word)
        found = dot if first == "" else names[first]
        for part in path if word != "." else ():
            found = (found or {}).get(part)
        return found

    def _own(self, name: str, dot: Any) -> Callable[..., Any]:
        if name == ".Files.Get":
            return lambda path: (self.chart / path).read_text(encoding="utf-8")
        return lambda path, _: self.file(path.rpartition("/")[2])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": lambda *values: next((one for one in values if not one), values[-1]),
    "default": lambda other, value: value or other,
    "dict": lambda key, value: {key: value},
    "eq": lambda one, other: one == other,
    "hasKey": lambda mapping, key: key in mapping,
    "join": lambda between, items: between.join(items),
    "ne": lambda one, other: one != other,
    "not": lambda value: not value,
    "or": lambda *values: next((one for one in values if one), values[-1]),
    "print": lambda *parts: "".join(parts),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toJson": lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True),
    "toYaml": lambda value: yaml.safe_dump(value, allow_unicode=True).removesuffix("\n"),
}
