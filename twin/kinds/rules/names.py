"""Rules for names, labels, keys and ports, with the API server's wording.

Why: the same few rules appear in every kind's validation. Each function returns the messages of what is wrong, none
if the value is good. Source: apimachinery ``pkg/util/validation`` and ``pkg/api/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from twin.registry.status import FieldError, forbidden_field, invalid, required

Json = dict[str, Any]
Rule = Callable[[str], list[str]]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
_PERCENT = re.compile(r"[0-9]+%", re.ASCII)
_PORT_NAME = re.compile(r"[-a-z0-9]+", re.ASCII)
_ENV_NAME = re.compile(r"[ -<>-~]+", re.ASCII)

SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_CONFIG_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def max_length_message(length: int) -> str:
    """``must be no more than N characters``."""
    return f"must be no more than {length} characters"


def range_message(low: int, high: int) -> str:
    """``must be between LOW and HIGH, inclusive``."""
    return f"must be between {low} and {high}, inclusive"


@lru_cache(maxsize=16384)
def _dns_label(value: str) -> tuple[str, ...]:
    found = [max_length_message(63)] if len(value) > 63 else []
    if not _LABEL.fullmatch(value):
        # a value that would do as a subdomain gets the shorter advice
        found.append("must not contain dots" if _SUBDOMAIN.fullmatch(value) else LABEL_MESSAGE)
    return tuple(found)


def dns_label(value: str) -> list[str]:
    """RFC 1123 label (container names, namespaces)."""
    return list(_dns_label(value))


def dns_label_1035(value: str) -> list[str]:
    """RFC 1035 label (services)."""
    found = [max_length_message(63)] if len(value) > 63 else []
    if not _LABEL_1035.fullmatch(value):
        found.append(LABEL_1035_MESSAGE)
    return found


def dns_subdomain(value: str) -> list[str]:
    """RFC 1123 subdomain (most object names)."""
    found = [max_length_message(253)] if len(value) > 253 else []
    if not _SUBDOMAIN.fullmatch(value):
        found.append(SUBDOMAIN_MESSAGE)
    return found


@lru_cache(maxsize=16384)
def _qualified_name(value: str) -> tuple[str, ...]:
    prefix, slash, name = value.rpartition("/")
    found: list[str] = []
    if prefix.count("/"):
        return (
            "a qualified name " + _QUALIFIED_MESSAGE[:-1] + " with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    if slash:
        if not prefix:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {message}" for message in dns_subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part " + max_length_message(63))
    if not _QUALIFIED.fullmatch(name):
        found.append("name part " + _QUALIFIED_MESSAGE)
    return tuple(found)


def qualified_name(value: str) -> list[str]:
    """Label keys, taint keys, extended resources: ``[PREFIX/]NAME``."""
    return list(_qualified_name(value))


def label_value(value: str) -> list[str]:
    """A label's value; may be empty."""
    found = [max_length_message(63)] if len(value) > 63 else []
    if not _LABEL_VALUE.fullmatch(value):
        found.append(LABEL_VALUE_MESSAGE)
    return found


def config_key(value: str) -> list[str]:
    """A key of a ConfigMap or a Secret."""
    found = [max_length_message(253)] if len(value) > 253 else []
    if not _CONFIG_KEY.fullmatch(value):
        found.append(_CONFIG_KEY_MESSAGE)
    if value == ".":
        found.append("must not be '.'")
    elif value == "..":
        found.append("must not be '..'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return found


def env_name(value: str) -> list[str]:
    """An environment variable's name: printable ASCII without ``=`` (RelaxedEnvironmentVariableValidation)."""
    if value and not _ENV_NAME.fullmatch(value):
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


def percent(value: str) -> list[str]:
    """``N%``."""
    return [] if _PERCENT.fullmatch(value) else [PERCENT_MESSAGE]


def port_number(value: int) -> list[str]:
    """1 to 65535."""
    return [] if 1 <= value <= 65535 else [range_message(1, 65535)]


def port_name(value: str) -> list[str]:
    """IANA_SVC_NAME: up to 15 characters, a letter among them."""
    found: list[str] = []
    if len(value) > 15:
        found.append(max_length_message(15))
    if not _PORT_NAME.fullmatch(value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= c <= "z" for c in value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value[:1] == "-" or value[-1:] == "-":
        found.append("must not begin or end with a hyphen")
    return found


def check(field: str, value: str, rule: Rule) -> list[FieldError]:
    """``invalid`` errors of one value."""
    return [invalid(field, value, message) for message in rule(value)]


def check_given(field: str, value: str, rule: Rule) -> list[FieldError]:
    """``required`` where there is no value, else as ``check``."""
    return check(field, value, rule) if value else [required(field)]


def check_labels(labels: Mapping[str, str] | None, field: str) -> list[FieldError]:
    """ValidateLabels: keys and values, all reported at ``field``."""
    found: list[FieldError] = []
    for key, value in sorted((labels or {}).items()):
        found += [invalid(field, key, message) for message in _qualified_name(key)]
        found += [invalid(field, value, message) for message in label_value(value)]
    return found


def check_annotations(annotations: Mapping[str, str] | None, field: str) -> list[FieldError]:
    """Keys of annotations (case does not matter)."""
    found: list[FieldError] = []
    for key in sorted(annotations or {}):
        found += [invalid(field, key, message) for message in _qualified_name(key.lower())]
    return found


def check_not_negative(field: str, value: Any) -> list[FieldError]:
    """``must be greater than or equal to 0``."""
    if value is not None and value < 0:
        return [invalid(field, value, "must be greater than or equal to 0")]
    return []


def check_label_selector(selector: Json | None, field: str) -> list[FieldError]:
    """ValidateLabelSelector of metav1."""
    if selector is None:
        return []
    found = []
    labels = selector.get("matchLabels") or {}
    for key, value in sorted(labels.items()):
        found += check(f"{field}.matchLabels", key, qualified_name)
        found += [invalid(f"{field}.matchLabels", value, message) for message in label_value(value)]
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        found += check_requirement(term, f"{field}.matchExpressions[{index}]")
    return found


def check_requirement(term: Json, field: str, *, compares: bool = False) -> list[FieldError]:
    """One expression of a selector; ``compares``: Gt and Lt are operators too (of nodes).

    That their bounds are integers is not checked: a scheduler never matches others.
    """
    found: list[FieldError] = []
    operator, values = term.get("operator", ""), term.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            found.append(required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            found.append(
                forbidden_field(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            )
    elif compares and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        found.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    found += check(f"{field}.key", term.get("key", ""), qualified_name)
    for index, value in enumerate(values):
        found += check(f"{field}.values[{index}]", value, label_value)
    return found


def selector_matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """LabelSelectorAsSelector: None selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_requirement_holds(term, labels) for term in selector.get("matchExpressions") or ())


def _requirement_holds(term: Json, labels: Mapping[str, str]) -> bool:
    key, operator = term.get("key", ""), term.get("operator")
    values: Iterable[str] = term.get("values") or ()
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    return (key in labels) == (operator == "Exists")


def selector_text(selector: Json | None) -> str:
    """A selector as kubectl and the scale subresource print it: ``a=b,c in (d,e),!f``; empty for none."""
    if selector is None:
        return ""
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, operator, values = term["key"], term["operator"], ",".join(sorted(term.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append((key, text[operator]))
    return ",".join(text for _, text in sorted(parts))
