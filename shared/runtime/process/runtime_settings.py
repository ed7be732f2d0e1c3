"""Which settings of a process may change while it runs: their types, ranges and texts, from the settings class itself.

Why derived: a second list of ranges would drift from the one that ``--help`` shows. A service names its settings that
may change; type, range, choices, default and help come from the annotation and the docstring of the field.

Not its job: storing values (``settings.py``), carrying them out.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from shared.errors import InvalidValue
from shared.runtime.process.settings import describe

S = TypeVar("S")
Value = int | float | str
Source = Literal["default", "start", "runtime"]


@dataclass(frozen=True, slots=True)
class RuntimeSetting:
    """One setting that may change. ``minimum`` and ``maximum`` None: no bound; ``above``: the minimum itself is out.

    ``choices``: the only texts allowed; empty for numbers.
    """

    name: str
    type: Literal["integer", "number", "string"]
    default: Value
    minimum: int | float | None
    maximum: int | float | None
    above: bool
    choices: tuple[str, ...]
    help: str

    @property
    def range(self) -> str:
        """What is allowed, for people: ``an integer from 1 to 1024``."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = "an integer" if self.type == "integer" else "a number"
        if self.minimum is None and self.maximum is None:
            return kind
        low = "" if self.minimum is None else f"{'above' if self.above else 'from'} {self.minimum}"
        high = "" if self.maximum is None else f"{'up to' if self.above or not low else 'to'} {self.maximum}"
        return " ".join(part for part in (kind, low, high) if part)


@dataclass(frozen=True, slots=True)
class SettingShown:
    """A setting with its value. ``source``: the default, how the process was started, or changed while running."""

    setting: RuntimeSetting
    value: Value
    source: Source


class RuntimeTable:
    """The settings ``names`` of a settings class."""

    def __init__(self, cls: type, names: Sequence[str]) -> None:
        known = {leaf.dotted: (leaf, text) for leaf, text in describe(cls)}
        self.settings: dict[str, RuntimeSetting] = {}
        self._types: dict[str, Any] = {}
        for name in names:
            leaf, text = known[name]
            self.settings[name] = _setting(name, leaf.type, leaf.default, " ".join(text.split()))
            self._types[name] = leaf.type

    def validate(self, values: Mapping[str, object]) -> None:
        """``InvalidValue`` for the first one that is unknown, of the wrong type or out of range; the message says what
        is allowed."""
        for name, value in values.items():
            setting = self.settings.get(name)
            if setting is None:
                import difflib

                close = difflib.get_close_matches(name, list(self.settings), n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(self.settings)}"
                raise InvalidValue(f"{name[:64]}: cannot be changed while running; {hint}")
            self._check(setting, value)

    def usable(self, values: Mapping[str, object]) -> tuple[dict[str, Value], list[str]]:
        """The values that this version takes, and one line for each that it does not: another version, or a person,
        may have written them."""
        good: dict[str, Value] = {}
        problems = []
        for name, value in values.items():
            try:
                self.validate({name: value})
            except InvalidValue as error:
                problems.append(str(error))
            else:
                good[name] = typing.cast("Value", value)
        return good, problems

    def applied(self, started: S, values: Mapping[str, object]) -> S:
        """The settings a process was ``started`` with, with these values instead. ``InvalidValue``."""
        self.validate(values)
        return dataclasses.replace(started, **values)  # type: ignore[type-var]  # a settings class

    def shown(self, started: object, values: Mapping[str, object]) -> list[SettingShown]:
        """Every setting as it is in force, in the order of the table; values that cannot be used do not count."""
        good, _ = self.usable(values)
        found = []
        for name, setting in self.settings.items():
            at_start: Value = getattr(started, name)
            source: Source = "default" if at_start == setting.default else "start"
            found.append(
                SettingShown(setting, good[name], "runtime")
                if name in good
                else SettingShown(setting, at_start, source)
            )
        return found

    def _check(self, setting: RuntimeSetting, value: object) -> None:
        usable = not isinstance(value, bool) and not (isinstance(value, float) and not math.isfinite(value))
        if usable:
            try:
                msgspec.convert(value, self._types[setting.name], strict=True)
            except (msgspec.ValidationError, ValueError):
                usable = False
        if not usable:
            raise InvalidValue(f"{setting.name}: {repr(value)[:64]} cannot be used; give {setting.range}")


def _setting(name: str, kind: Any, default: Value, text: str) -> RuntimeSetting:
    info = msgspec.inspect.type_info(kind)
    match info:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            low = info.ge if info.ge is not None else info.gt
            high = info.le if info.le is not None else info.lt
            whole = isinstance(info, msgspec.inspect.IntType)
            return RuntimeSetting(
                name, "integer" if whole else "number", default, low, high, info.gt is not None, (), text
            )
        case msgspec.inspect.LiteralType():
            return RuntimeSetting(name, "string", default, None, None, False, typing.get_args(kind), text)
        case _:
            raise TypeError(f"{name}: a setting of this type cannot change while running")
