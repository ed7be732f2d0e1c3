"""Validation rules of custom resources (CEL): compiled once per definition, checked per write.

Google's C++ evaluator (``cel-expr-python``) does the work; nothing is imported before the first rule comes. It takes
integers for doubles and knows no escaped property names, so values are converted by their schema first. A rule that
cannot be checked is refused with its definition: what does not compile, Kubernetes' own functions (quantities, URLs,
``isSorted`` ...), an optional ``oldSelf``, or a cost without bound. Fields of objects are dynamic to the compiler, so a
misspelt one fails at the write; times are strings (``timestamp(self.at)`` makes one).

Source: apiextensions ``pkg/apiserver/schema/cel`` and ``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from services.twin.registry.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)

Json = dict[str, Any]
Convert = Callable[[Any], Any]

MISSING = "rules need the package cel-expr-python, which is not installed: pip install 'conclave[twin]'"
COST_LIMIT = 10_000_000
"""Of one rule's estimate, in steps; the evaluator itself ends after 10,000 turns of loops per evaluation."""
_REQUEST_BYTES = 3 * 1024 * 1024
_REASONS = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")
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
_TEXT = re.compile(
    r"//[^\n]*|[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?''')|[rR][bB]?(?:\"[^\"]*\"|'[^']*')"
    r"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'",
    re.DOTALL,
)
_LOOP = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(|[()]")
_HEAVY = re.compile(
    r"\b(?:contains|matches|split|replace|join|format|lowerAscii|upperAscii|trim|substring|indexOf|lastIndexOf"
    r"|reverse|quote)\s*\("
)
_GROWING = re.compile(r"\b(?:replace|join|format)\s*\(")
_UNDECLARED = re.compile(r"undeclared reference to '(\w+)'")


class RuleError(Exception):
    """A rule that cannot be checked; the text says why as the real server words it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``x-kubernetes-validations`` entry, compiled."""

    spec: Json
    program: Any
    message_program: Any
    transition: bool
    """It mentions ``oldSelf``: checked where there is an old value only."""

    def failed(self) -> str:
        """What to say when it does not hold and no expression says it."""
        return str(self.spec.get("message") or "").strip() or f"failed rule: {self.named()}"

    def named(self) -> str:
        """The rule in messages about its evaluation."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()


@dataclass(frozen=True, slots=True)
class Checks:
    """The rules of one place of a schema and of what is below it."""

    rules: tuple[Rule, ...] = ()
    convert: Convert | None = None
    properties: dict[str, Checks] = field(default_factory=dict)
    items: Checks | None = None
    item_keys: tuple[str, ...] = ()
    """By which an item is told to be the same as an old one; none = no old items."""
    values: Checks | None = None


# --- definitions ------------------------------------------------------------------------------------------------------


def definition_errors(schema: Json, where: str, places: int = 1) -> list[FieldError]:
    """What is wrong with the rules of a (well-formed) schema at ``where``; ``places``: how often it may occur."""
    found: list[FieldError] = []
    for index, spec in enumerate(schema.get("x-kubernetes-validations") or ()):
        found += _rule_errors(spec, schema, f"{where}.x-kubernetes-validations[{index}]", places)
    for name, child in sorted((schema.get("properties") or {}).items()):
        found += definition_errors(child, f"{where}.properties[{name}]", places)
    most = _most(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += definition_errors(schema[key], f"{where}.{key}", places * most)
    return found


def _rule_errors(spec: Json, schema: Json, where: str, places: int) -> list[FieldError]:
    text, message, reason = spec["rule"].strip(), (spec.get("message") or "").strip(), spec.get("reason")
    if not text:
        return [required(f"{where}.rule", "rule is not specified")]
    found: list[FieldError] = []
    if "\n" in message:
        found.append(invalid(f"{where}.message", spec["message"], "message must not contain line breaks"))
    if "\n" in text and not message:
        found.append(required(f"{where}.message", "message must be specified if rule contains line breaks"))
    if reason is not None and reason not in _REASONS:
        found.append(not_supported(f"{where}.reason", reason, _REASONS))
    if spec.get("optionalOldSelf"):
        text = "a rule with an optional oldSelf is not evaluated by this server"
        return [*found, forbidden_field(f"{where}.optionalOldSelf", text)]
    shown = {key[0].upper() + key[1:]: spec.get(key) or empty for key, empty in _SHOWN}
    for key, result, noun in (("rule", "bool", "cel expression"), ("messageExpression", "string", "messageExpression")):
        if not spec.get(key):
            continue
        try:
            _compile(spec[key], schema, result, noun)
        except ImportError:
            return [*found, forbidden_field(f"{where}.{key}", MISSING)]
        except RuleError as error:
            found.append(invalid(f"{where}.{key}", shown, str(error)))
            continue
        over = _estimate(spec[key], schema) * places / COST_LIMIT
        if over > 1:
            factor = "more than 100x" if over > 100 else f"{over:f}x" if over < 1.5 else f"{over:.1f}x"
            text = (
                f"estimated {'rule' if key == 'rule' else key} cost exceeds budget by factor of {factor} (try "
                "simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
                "strings are declared)"
            )
            found.append(forbidden_field(f"{where}.{key}", text))
    return found


_SHOWN = (
    ("rule", ""),
    ("message", ""),
    ("messageExpression", ""),
    ("reason", None),
    ("fieldPath", ""),
    ("optionalOldSelf", None),
)


def _compile(text: str, schema: Json, result: str, noun: str) -> Any:
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


def _most(schema: Json) -> int:
    """The most items or values that this place may have."""
    if schema.get("type") == "array":
        return int(schema.get("maxItems", _REQUEST_BYTES // 2))
    if isinstance(schema.get("additionalProperties"), dict):
        return int(schema.get("maxProperties", _REQUEST_BYTES // 2))
    return 1


def _reached(schema: Json, words: set[str]) -> Iterator[Json]:
    """The schemas of the values that an expression can come to: it has to name a property to get there."""
    yield schema
    named = [child for name, child in (schema.get("properties") or {}).items() if _escaped(name) in words]
    for child in (*named, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from _reached(child, words)


def _estimate(text: str, schema: Json) -> float:
    """Steps of the worst value the schema allows: loops within loops, times the texts they work on.

    Coarser than the real server's estimate, of the same size where it matters: nested loops over lists without
    ``maxItems``, text functions on strings without ``maxLength``.
    """
    code = _TEXT.sub("''", text)
    depth, open_loops = 0, [False]
    for found in _LOOP.findall(code):
        if found == ")":
            open_loops[1:] = open_loops[1:-1]
        else:
            open_loops.append(found != "(")
            depth = max(depth, sum(open_loops))
    reached = list(_reached(schema, set(re.findall(r"\w+", text))))
    steps = float(max(code.count(",") + 1, *(_most(one) for one in reached))) ** depth
    if _HEAVY.search(code) or ("+" in code and "map(" in code):
        strings = [one for one in reached if one.get("type") not in ("boolean", "integer", "number", "array", "object")]
        longest = max((one.get("maxLength", _REQUEST_BYTES) for one in strings if "enum" not in one), default=256)
        growth = len(text) ** len(_GROWING.findall(code)) * (2 ** code.count("+") if "map(" in code else 1)
        steps *= max(1.0, 0.1 * longest * growth)
    return steps


# --- compiled ---------------------------------------------------------------------------------------------------------


def compile_rules(schema: Json) -> Checks | None:
    """The rules of a (well-formed) schema that was found good; None when it has none. Raises ``RuleError``."""
    rules = tuple(
        Rule(
            spec,
            _compile(spec["rule"], schema, "bool", "cel expression"),
            _compile(spec["messageExpression"], schema, "string", "messageExpression")
            if spec.get("messageExpression")
            else None,
            "oldSelf" in spec["rule"],
        )
        for spec in schema.get("x-kubernetes-validations") or ()
    )
    properties = {name: compile_rules(child) for name, child in (schema.get("properties") or {}).items()}
    some = {name: checks for name, checks in properties.items() if checks is not None}
    items, values = schema.get("items"), schema.get("additionalProperties")
    item_checks = compile_rules(items) if isinstance(items, dict) else None
    value_checks = compile_rules(values) if isinstance(values, dict) else None
    if not (rules or some or item_checks or value_checks):
        return None
    is_map = schema.get("x-kubernetes-list-type") == "map"
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()
    return Checks(rules, _converter(schema) if rules else None, some, item_checks, keys, value_checks)


def _converter(schema: Json) -> Convert | None:
    """JSON as CEL is to see it: numbers as doubles, property names escaped; None = as it is."""
    match schema.get("type"):
        case "number":
            return lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        case "array":
            one = _converter(schema.get("items") or {})
            return one and (lambda value: [one(item) for item in value] if isinstance(value, list) else value)
        case "object":
            additional = schema.get("additionalProperties")
            if isinstance(additional, dict):
                each = _converter(additional)
                return each and (lambda value: {key: each(item) for key, item in value.items()} if value else value)
            return _object_converter(schema.get("properties") or {})
    return None


def _object_converter(properties: dict[str, Json]) -> Convert | None:
    known = {name: (_escaped(name), _converter(child)) for name, child in properties.items()}
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


def _escaped(name: str) -> str:
    if name in _KEYWORDS:
        return f"__{name}__"
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found[0]], name)


# --- writes -----------------------------------------------------------------------------------------------------------


class _OutOfBudget(Exception):
    """The evaluator gave up: nothing more is checked."""


def rule_errors(checks: Checks, obj: Json, old: Json | None) -> list[FieldError]:
    """Causes of the rules that do not hold."""
    errors: list[FieldError] = []
    with suppress(_OutOfBudget):
        _check(checks, obj, old, "", errors)
    return errors


def _check(checks: Checks, value: Any, old: Any, where: str, errors: list[FieldError]) -> None:
    if value is None:
        return
    if checks.rules:
        data = {"self": value} if checks.convert is None else {"self": checks.convert(value)}
        if old is not None:
            data["oldSelf"] = old if checks.convert is None else checks.convert(old)
        for rule in checks.rules:
            if not (rule.transition and old is None):
                _check_rule(rule, data, where, errors)
    if isinstance(value, dict):
        old = old if isinstance(old, dict) else {}
        for name, below in checks.properties.items():
            if name in value:
                _check(below, value[name], old.get(name), f"{where}.{name}" if where else name, errors)
        if checks.values is not None:
            for name, item in value.items():
                if name not in checks.properties:
                    _check(checks.values, item, old.get(name), f"{where}[{name}]", errors)
    elif isinstance(value, list) and checks.items is not None:
        before = {_identity(one, checks.item_keys): one for one in old or () if checks.item_keys}
        for index, item in enumerate(value):
            _check(checks.items, item, before.get(_identity(item, checks.item_keys)), f"{where}[{index}]", errors)


def _identity(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) else ()


def _check_rule(rule: Rule, data: Json, where: str, errors: list[FieldError]) -> None:
    result, problem = _evaluate(rule.program, data)
    if result is True:
        return
    place = where + rule.spec.get("fieldPath", "") if where else rule.spec.get("fieldPath", "").lstrip(".")
    place = place or "<nil>"
    if problem.startswith("operation cancelled"):
        text = f"'{problem}': no further validation rules will be run due to call cost exceeds limit for rule: "
        errors.append(FieldError("FieldValueInvalid", where or "<nil>", f"Invalid value: {text}{rule.named()}"))
        raise _OutOfBudget
    if problem:
        text = (
            f"'{problem}': call arguments did not match a supported operator, function or macro signature for rule: "
            if problem.startswith("no such overload")
            else f"{problem} evaluating rule: "
        )
        errors.append(FieldError("FieldValueInvalid", where or "<nil>", f"Invalid value: {text}{rule.named()}"))
        return
    said = _evaluate(rule.message_program, data)[0] if rule.message_program is not None else None
    detail = said.strip() if isinstance(said, str) and said.strip() and "\n" not in said.strip() else rule.failed()
    match rule.spec.get("reason"):
        case "FieldValueForbidden":
            errors.append(forbidden_field(place, detail))
        case "FieldValueRequired":
            errors.append(required(place, detail))
        case "FieldValueDuplicate":
            errors.append(duplicate(place, data["self"]))
        case _:
            errors.append(FieldError("FieldValueInvalid", place, f"Invalid value: {detail}"))


def _evaluate(program: Any, data: Json) -> tuple[Any, str]:
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
