"""CEL expressions of validation rules: compiled for a place of a schema, fed with JSON, evaluated.

Google's C++ evaluator (``cel-expr-python``) does the work; nothing is imported before the first rule comes. It takes
integers for doubles and knows no escaped property names, so values are converted by their schema first. Fields of
objects are dynamic to the compiler, so a misspelt one fails at the write; times are strings (``timestamp(self.at)``
makes one). Errors are worded as the real server's evaluator (cel-go) words them.

Source: apiextensions ``pkg/apiserver/schema/cel``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Json = dict[str, Any]
Convert = Callable[[Any], Any]

MISSING = "rules need the package cel-expr-python, which is not installed: pip install 'conclave[twin]'"
_KUBERNETES_ONLY = frozenset(
    (
        "isSorted", "sum", "min", "max", "quantity", "isQuantity", "isLessThan", "isGreaterThan", "url", "isURL",
        "ip", "isIP", "cidr", "isCIDR", "find", "findAll", "semver", "isSemver", "optional",
    )
)  # fmt: skip
_KEYWORDS = frozenset(
    (
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
        "let", "loop", "package", "namespace", "return", "var", "void", "while",
    )
)  # fmt: skip
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNDECLARED = re.compile(r"undeclared reference to '(\w+)'")


class RuleError(Exception):
    """A rule that cannot be checked; the text says why as the real server words it."""


def compiled(text: str, schema: Json, result: str, noun: str) -> Any:
    """The program of an expression at a place of this schema. Raises ``RuleError``, ``ImportError``."""
    from cel_expr_python import cel

    try:
        program = _environment(_type_name(schema)).compile(text)
    except RuntimeError as error:
        detail = _plain(str(error))
        prefix = "compilation failed" if result == "bool" else f"{noun} compilation failed"
        ours = sorted({name for name in _UNDECLARED.findall(detail) if name in _KUBERNETES_ONLY})
        note = f" (not evaluated by this server: {', '.join(ours)})" if ours else ""
        raise RuleError(f"{prefix}: {detail}{note}") from None
    if program.return_type() not in (cel.Type.DYN, cel.Type.BOOL if result == "bool" else cel.Type.STRING):
        raise RuleError(f"{noun} must evaluate to a {result}")
    return program


@lru_cache(maxsize=256)
def _environment(type_name: str) -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings

    own = cel.Type(type_name)
    return cel.NewEnv(variables={"self": own, "oldSelf": own}, extensions=[ext_strings.ExtStrings()])


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
            return "string"
        case "array":
            return f"list<{_type_name(schema.get('items') or {})}>"
        case "object":
            additional = schema.get("additionalProperties")
            return f"map<string,{_type_name(additional) if isinstance(additional, dict) else 'dyn'}>"
    return "dyn"


def converter(schema: Json) -> Convert | None:
    """JSON as CEL is to see it: numbers as doubles, property names escaped; None = as it is."""
    match schema.get("type"):
        case "number":
            return lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
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
    known = {name: (escaped(name), converter(child)) for name, child in properties.items()}
    if all(new == name and convert is None for name, (new, convert) in known.items()):
        return None

    def converted(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        out: Json = {}
        for name, item in value.items():
            new, convert = known.get(name, (name, None))
            out[new] = item if convert is None else convert(item)
        return out

    return converted


def escaped(name: str) -> str:
    if name in _KEYWORDS:
        return f"__{name}__"
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found[0]], name)


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
    return _STATUS.sub("", text)
