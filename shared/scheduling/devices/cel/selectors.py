"""CEL selectors of devices: compiled once each, and remembered by what they said of devices that are alike.

Google's C++ evaluator (``cel-expr-python``) does the work; it is imported when the first selector comes. A device is
told as Kubernetes tells it: ``driver``, ``allowMultipleAllocations``, ``attributes`` and ``capacity`` by domain, of
which an unknown one is an empty map, while an unknown attribute is an error. Length and cost are bounded before the
first evaluation (``expressions.py``). Quantities and versions are values of their own (``cel_values.py``).

Source: KEP-4381; kube-scheduler 1.36 ``dynamic-resource-allocation/cel``.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from shared.model.devices import Capacity, Device, DeviceAttribute
from shared.scheduling.devices.cel.cel_values import (
    DEVICE,
    VALUE,
    declared_functions,
    descriptor_pool,
    quantity_of,
    semver_of,
)
from shared.scheduling.devices.cel.expressions import EXACT, DeviceSelectorError, read
from shared.scheduling.state.releases import Release

MOST_CHARACTERS = 10 * 1024
"""``CELSelectorExpressionMaxLength``."""

MOST_COMPILED, MOST_REMEMBERED = 1024, 65_536
"""Selectors, and answers about devices; when full, all are forgotten and made again."""

MOST_COMPUTED = 8
"""Domains that are not named in a selector but made by it. For each it is evaluated once more."""

MISSING = "selectors of devices need cel-expr-python and protobuf, of which one is not installed"


class Facts(Struct, frozen=True, gc=False, cache_hash=True):
    """All of a device that a selector reads: devices of equal facts are answered for once."""

    driver: str
    shareable: bool
    attributes: tuple[tuple[str, DeviceAttribute], ...]
    capacity: tuple[tuple[str, Capacity], ...]


def facts_of(driver: str, device: Device) -> Facts:
    """The facts of one device."""
    return Facts(driver, device.shareable, device.attributes, device.capacity)


class Selectors:
    """``matches(expression, facts)``, with everything remembered that was found out on the way."""

    def __init__(self, release: Release = Release.V1_38) -> None:
        self._release = release
        self._environments: tuple[Any, Any] | None = None
        """For a device of known fields, by which a selector is checked, and for the maps on which it is evaluated."""
        self._programs: dict[str, _Program | DeviceSelectorError] = {}
        self._answers: dict[tuple[str, Facts], bool | DeviceSelectorError] = {}

    def matches(self, expression: str, facts: Facts) -> bool:
        """Raises ``DeviceSelectorError``: the selector does not compile, or fails on such a device."""
        key = (expression, facts)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= MOST_REMEMBERED:
                self._answers.clear()
            try:
                found = self._program(expression).evaluate(facts)
            except DeviceSelectorError as error:
                found = error
            self._answers[key] = found
        if isinstance(found, DeviceSelectorError):
            raise found
        return found

    def compile(self, expression: str) -> None:
        """Raises ``DeviceSelectorError`` where no device could be asked about."""
        self._program(expression)

    def _program(self, expression: str) -> _Program:
        found = self._programs.get(expression)
        if found is None:
            if len(self._programs) >= MOST_COMPILED:
                self._programs.clear()
            try:
                found = self._compiled(expression)
            except DeviceSelectorError as error:
                found = error
            self._programs[expression] = found
        if isinstance(found, DeviceSelectorError):
            raise found
        return found

    def _compiled(self, expression: str) -> _Program:
        if len(expression) > MOST_CHARACTERS:
            raise DeviceSelectorError(
                f"CEL compile error: too long: {len(expression)} characters; at most {MOST_CHARACTERS} are allowed"
            )
        if self._environments is None:
            self._environments = _environments()
        from cel_expr_python import cel

        checking, evaluating = self._environments
        try:
            kind = checking.compile(expression).return_type()
            program = evaluating.compile(expression)
        except RuntimeError as error:
            raise DeviceSelectorError(f"CEL compile error: compilation failed: {_plain(str(error))}") from None
        if kind not in (cel.Type.BOOL, cel.Type.DYN):
            raise DeviceSelectorError(
                f"CEL compile error: must evaluate to bool or the unknown type, not {kind.name().lower()}"
            )
        try:
            found = read(program.serialize())
        except DeviceSelectorError as error:
            raise type(error)(f"CEL compile error: {error}") from None
        return _Program(evaluating.deserialize(found.serialized), found.domains, self._release)


class _Program:
    """A compiled selector, and the domains that it names."""

    def __init__(self, program: Any, domains: frozenset[str], release: Release) -> None:
        self._program, self._domains, self._release = program, domains, release

    def evaluate(self, facts: Facts) -> bool:
        from cel_expr_python import cel

        attributes: dict[str, dict[str, Any]] = {}
        for name, attribute in facts.attributes:
            domain, _, id_ = name.rpartition("/")
            attributes.setdefault(domain or facts.driver, {})[id_] = self._value(name, attribute)
        capacity: dict[str, dict[str, Any]] = {}
        for name, one in facts.capacity:
            domain, _, id_ = name.rpartition("/")
            capacity.setdefault(domain or facts.driver, {})[id_] = quantity_of(one.value)
        empty: dict[str, dict[str, Any]]
        empty = {domain: {} for domain in (*self._domains, facts.driver, *attributes, *capacity)}
        for _ in range(MOST_COMPUTED):
            device = {
                "driver": facts.driver,
                "allowMultipleAllocations": facts.shareable,
                "attributes": empty | attributes,
                "capacity": empty | capacity,
                EXACT["attributes"]: attributes,
                EXACT["capacity"]: capacity,
            }
            try:
                result = self._program.eval(data={"device": device})
            except RuntimeError as error:
                raise DeviceSelectorError(_runtime(str(error))) from None
            if result.type() == cel.Type.BOOL:
                return bool(result.value())
            if result.type() != cel.Type.ERROR:
                name = result.type().name().lower()
                raise DeviceSelectorError(
                    f"CEL runtime error: CEL result of type {name} could not be converted to bool"
                )
            text = _runtime(str(result.value()))
            key = text.removeprefix(_NO_KEY)
            if key == text or key in empty:
                break
            empty[key] = {}  # perhaps a domain whose name was computed: then it is an empty map, too
        raise DeviceSelectorError(text)

    def _value(self, name: str, attribute: DeviceAttribute) -> Any:
        """As CEL sees it. Lists are not served by 1.36: there a device that has one fails every selector."""
        try:
            match attribute.kind, attribute.value:
                case "version", str(text):
                    return semver_of(text)
                case (("int" | "bool" | "string"), value):
                    return value
                case "versions", tuple(texts) if self._release is not Release.V1_36:
                    return [semver_of(str(text)) for text in texts]
                case _, tuple(values) if self._release is not Release.V1_36:
                    return list(values)
        except ValueError as error:
            raise DeviceSelectorError(f"CEL runtime error: attribute {name}: parse semantic version: {error}") from None
        raise DeviceSelectorError(f"CEL runtime error: attribute {name}: unsupported attribute value")


def _environments() -> tuple[Any, Any]:
    """Built once: it costs a hundred selectors."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

        messages = descriptor_pool()
    except ImportError:
        raise DeviceSelectorError(MISSING) from None

    def seen_as(device: Any) -> Any:
        return cel.NewEnv(
            descriptor_pool=messages,
            variables={"device": device},
            extensions=[ext_strings.ExtStrings(2), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
            functions=declared_functions(cel, cel.Type(VALUE)),
        )

    return seen_as(cel.Type(DEVICE)), seen_as(cel.Type.Map(cel.Type.STRING, cel.Type.DYN))


_NO_KEY = "CEL runtime error: no such key: "
_GO_WORDS = (
    (re.compile(r'^Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"^Index error: index=(-?\d+).*"), r"index out of bounds: \1"),
    (re.compile(r"^divide by zero"), "division by zero"),
    (re.compile(r"^Iteration budget exceeded.*"), "operation cancelled: actual cost limit exceeded"),
    (re.compile(r"^No matching overloads found\s*:?\s*"), "no such overload: "),
)
_STATUS = re.compile(r"^[A-Z_]+: |\s\[[A-Z_]+\]$")


def _plain(text: str) -> str:
    """The library's error without the code around it."""
    return _STATUS.sub("", text).replace(f" not found in struct '{DEVICE}'", "")


def _runtime(text: str) -> str:
    text = _plain(text)
    for pattern, words in _GO_WORDS:
        text = pattern.sub(words, text)
    return f"CEL runtime error: {text}"
