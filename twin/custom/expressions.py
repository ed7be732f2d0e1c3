"""CEL expressions of validation rules: checked for a place of a schema, compiled, fed with JSON, evaluated.

Google's C++ evaluator (``cel-expr-python``) does the work; nothing is imported before the first rule comes. It checks
an expression against the types that the schema declares (``typed.py``), as the real server does, and evaluates it on
JSON, where an absent field is absent: for that integers are made doubles and names escaped where the schema wants it.
Errors are worded as the real server's evaluator (cel-go) words them.

Source: apiextensions ``pkg/apiserver/schema/cel``; k8s.io/apiserver ``pkg/cel/environment``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from twin.custom.checked import CheckedExpression, nodes, read
from twin.custom.declared import Declared, escaped, is_reserved
from twin.custom.formats import duration_ns
from twin.custom.patterns import pattern_problem
from twin.custom.typed import Typed

Json = dict[str, Any]
Convert = Callable[[Any], Any]

MISSING = (
    "rules need cel-expr-python and protobuf, of which one is not installed: pip install 'conclave-scheduler[twin]'"
)
NOT_EVALUATED = "not evaluated by this server"
_KUBERNETES_ONLY = frozenset(
    (
        "isSorted", "sum", "min", "max", "quantity", "isQuantity", "isLessThan", "isGreaterThan", "url", "isURL",
        "ip", "isIP", "cidr", "isCIDR", "find", "findAll", "semver", "isSemver", "sets", "lists", "format", "flatten",
        "slice", "distinct", "sort", "sortBy", "first", "last", "transformList", "transformMap", "existsOne",
    )
)  # fmt: skip
_UNDECLARED = re.compile(r"undeclared reference to '(\w+)'")
_NO_OVERLOAD = re.compile(r"found no matching overload for '(\S+)' applied to '(.*)'")
_ON_LISTS = ("indexOf", "lastIndexOf")
_TWO_VARIABLES = re.compile(r"\.(all|exists|existsOne|exists_one)\(\s*\w+\s*,\s*\w+\s*,")
_NUMBERS = re.compile(r"\((?:int|uint|double), (?:int|uint|double)\)")
_TEXT = re.compile(
    r"//[^\n]*|[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?''')|[rR][bB]?(?:\"[^\"]*\"|'[^']*')"
    r"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\boldSelf\b",
    re.DOTALL,
)
_OPTIONAL = "(hasOldSelf ? optional.of(oldSelf) : optional.none())"


class RuleError(Exception):
    """A rule that cannot be checked; the text says why as the real server words it."""


class Compiler:
    """Checks the expressions of one place against its declared type. Raises ``ImportError``."""

    def __init__(self, of: Declared) -> None:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings

        self.of = of
        self._cel = cel
        self._typed = Typed(of)
        own = cel.Type(self._typed.name)
        self._environment = cel.NewEnv(
            descriptor_pool=self._typed.pool,
            variables={"self": own, "oldSelf": own, "hasOldSelf": cel.Type.BOOL},
            extensions=[ext_strings.ExtStrings(2), ext_optional.ExtOptional()],
        )
        self._loose = _environment("dyn")

    def check(self, text: str, result: str, noun: str, *, optional_old: bool = False) -> CheckedExpression:
        """The checked tree of an expression that is to give ``result`` (bool or string). Raises ``RuleError``."""
        text = _with_optional(text) if optional_old else text
        try:
            program = self._environment.compile(text)
        except RuntimeError as error:
            detail = _plain(str(error))
            if not _mixes_numbers_alone(detail):
                prefix = "compilation failed" if result == "bool" else f"{noun} compilation failed"
                raise RuleError(f"{prefix}: {detail}{_note(text, detail)}") from None
            # the real server compares integers with doubles, this compiler does so where types are open
            program = self._loose.compile(text)
        if program.return_type() not in (self._cel.Type.DYN, getattr(self._cel.Type, result.upper())):
            raise RuleError(f"{noun} must evaluate to a {result}")
        checked = read(program.serialize())
        problem = _literals(checked)
        if problem:
            raise RuleError(
                f"compilation failed: {problem}" if result == "bool" else f"{noun} compilation failed: {problem}"
            )
        return checked


def compiled(text: str, schema: Json, *, optional_old: bool = False) -> Any:
    """The program of a checked expression at a place of this schema."""
    return _environment(_type_name(schema)).compile(_with_optional(text) if optional_old else text)


@lru_cache(maxsize=256)
def _environment(type_name: str) -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional, ext_strings

    own = cel.Type(type_name)
    return cel.NewEnv(
        variables={"self": own, "oldSelf": own, "hasOldSelf": cel.Type.BOOL},
        extensions=[ext_strings.ExtStrings(2), ext_optional.ExtOptional()],
    )


def _with_optional(text: str) -> str:
    """A rule whose ``oldSelf`` is an optional value, for a compiler that has no such variables."""
    return _TEXT.sub(lambda found: _OPTIONAL if found[0] == "oldSelf" else found[0], text)


def _mixes_numbers_alone(detail: str) -> bool:
    errors = [line for line in detail.splitlines() if line.startswith("ERROR: ")]
    found = [_NO_OVERLOAD.search(line) for line in errors]
    return bool(found) and all(
        one is not None and one[1] in ("_<_", "_<=_", "_>_", "_>=_") and _NUMBERS.fullmatch(one[2]) for one in found
    )


def _note(text: str, detail: str) -> str:
    """What of a refused expression the real server knows, and this one does not."""
    ours = {name for name in _UNDECLARED.findall(detail) if name in _KUBERNETES_ONLY}
    ours |= {one[1] for one in _NO_OVERLOAD.finditer(detail) if one[1] in _ON_LISTS and one[2].startswith("(list(")}
    ours |= {f"{name} with two variables" for name in _TWO_VARIABLES.findall(text)}
    return f" ({NOT_EVALUATED}: {', '.join(sorted(ours))})" if ours else ""


def _literals(checked: CheckedExpression) -> str:
    """What the compiler lets pass: literals that are no pattern, duration or time, and mixed lists and maps."""
    formatted = {one.id for expr in nodes(checked.expr) if expr.name == "format" for one in expr.args}
    for expr in nodes(checked.expr):
        if expr.id in formatted:
            continue
        if expr.kind in ("list", "map"):
            for part in (expr.args[::2], expr.args[1::2]) if expr.kind == "map" else (expr.args,):
                names = [checked.type_of(one).name for one in part]
                odd = next((name for name in names if name != names[0]), None)
                if odd is not None:
                    return f"expected type '{names[0]}' but found '{odd}'"
        if expr.kind != "call" or not expr.args or not isinstance(expr.args[-1].value, str):
            continue
        literal = expr.args[-1].value
        if expr.name == "matches" and pattern_problem(literal):
            return "invalid matches argument"
        if expr.name == "duration" and duration_ns(literal) is None:
            return "invalid duration argument"
        if expr.name == "timestamp" and _timestamp(literal) is None:
            return "invalid timestamp argument"
    return ""


def _type_name(schema: Json) -> str:
    """The type of ``self`` as far as it is known when a rule is compiled."""
    if schema.get("nullable"):
        return "dyn"
    match schema.get("type"):
        case "boolean":
            return "bool"
        case "integer":
            return "int"
        case "number":
            return "double"
        case "string":
            form = schema.get("format")
            return {"date-time": "timestamp", "date": "timestamp", "duration": "duration"}.get(form or "", "string")
        case "array":
            return f"list<{_type_name(schema.get('items') or {})}>"
        case "object":
            additional = schema.get("additionalProperties")
            return f"map<string,{_type_name(additional) if isinstance(additional, dict) else 'dyn'}>"
    return "dyn"


# --- values -----------------------------------------------------------------------------------------------------------


def converter(schema: Json) -> Convert | None:
    """JSON as CEL is to see it: numbers as doubles, times as times, property names escaped; None = as it is."""
    match schema.get("type"):
        case "number":
            return lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        case "string":
            return _TIMES.get(schema.get("format") or "")
        case "array":
            one = converter(schema.get("items") or {})
            return one and (lambda value: [one(item) for item in value] if isinstance(value, list) else value)
        case "object":
            additional = schema.get("additionalProperties")
            if isinstance(additional, dict):
                each = converter(additional)
                return each and (lambda value: {key: each(item) for key, item in value.items()} if value else value)
            return _object_converter(schema.get("properties") or {})
    return None


def _object_converter(properties: dict[str, Json]) -> Convert | None:
    known = {name: (escaped(name) or name, converter(child)) for name, child in properties.items()}
    if all(new == name and convert is None for name, (new, convert) in known.items()):
        return None

    def converted(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        out: Json = {}
        for name, item in value.items():
            new, convert = known.get(name, (name, None))
            out[new] = item if convert is None else convert(item)
            if is_reserved(name):
                # rules may write it either way
                out[name] = out[new]
        return out

    return converted


def _timestamp(text: str) -> Any:
    """A google.protobuf.Timestamp; None: the text is no time of RFC 3339."""
    from google.protobuf.timestamp_pb2 import Timestamp

    found = Timestamp()
    try:
        found.FromJsonString(text)
    except ValueError:
        return None
    return found


def _time(value: Any) -> Any:
    found = _timestamp(value) if isinstance(value, str) else None
    return value if found is None else found


def _date(value: Any) -> Any:
    return _time(f"{value}T00:00:00Z") if isinstance(value, str) and len(value) == len("2006-01-02") else value


def _duration(value: Any) -> Any:
    from google.protobuf.duration_pb2 import Duration

    nanoseconds = duration_ns(value) if isinstance(value, str) else None
    if nanoseconds is None:
        return value
    found = Duration()
    found.FromNanoseconds(nanoseconds)
    return found


_TIMES: dict[str, Convert] = {"date-time": _time, "date": _date, "duration": _duration}


def evaluate(program: Any, data: Json) -> tuple[Any, str]:
    """The value, or None and why there is none, in the words of the real server's evaluator."""
    from cel_expr_python import cel

    try:
        result = program.eval(data=data)
        if result.type() != cel.Type.ERROR:
            return result.value(), ""
        text = _plain(str(result.value()))
    except RuntimeError as error:
        text = _plain(str(error))
    if text.startswith("Iteration budget exceeded"):
        return None, "operation cancelled: actual cost limit exceeded"
    if text.startswith("No matching overloads found"):
        return None, "no such overload" + text.removeprefix("No matching overloads found ")
    for pattern, words in _GO_WORDS:
        text = pattern.sub(words, text)
    return None, text


_GO_WORDS = (
    (re.compile(r'^Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"^Index error: index=(-?\d+).*"), r"index out of bounds: \1"),
    (re.compile(r"^divide by zero"), "division by zero"),
)
_STATUS = re.compile(r"^[A-Z_]+: |\s\[[A-Z_]+\]$")


def _plain(text: str) -> str:
    """The library's error without the code around it."""
    return re.sub(r"(undefined field '\w+') not found in struct '\S+'", r"\1", _STATUS.sub("", text))
