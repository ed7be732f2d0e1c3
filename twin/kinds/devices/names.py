"""Names and lists of ``resource.k8s.io``: what drivers, pools and attributes may be called, and how much may be listed.

A list that is too long is refused as a whole, as the real server does: nothing in it is looked at.
Source: ``pkg/apis/resource/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twin.kinds.rules.names import check, check_given, dns_label, dns_subdomain
from twin.registry.status import FieldError, duplicate, invalid, required, too_long, too_many

Json = dict[str, Any]
CheckItem = Callable[[Any, str], list[FieldError]]

MOST_DRIVER, MOST_POOL, MOST_IDENTIFIER = 63, 253, 32
MOST_KEY = MOST_DRIVER + 1 + MOST_IDENTIFIER
MOST_LABEL = 63
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_NOT_NORMAL = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
    "characters"
)


def check_driver(name: str, field: str) -> list[FieldError]:
    """A DNS subdomain of at most 63 characters, in any case."""
    if not name:
        return [required(field)]
    found = [too_long(field, MOST_DRIVER)] if len(name) > MOST_DRIVER else []
    return found + [invalid(field, name, text) for text in dns_subdomain(name.lower())]


def check_pool(name: str, field: str) -> list[FieldError]:
    """DNS subdomains, separated by slashes."""
    if not name:
        return [required(field)]
    found = [too_long(field, MOST_POOL)] if len(name) > MOST_POOL else []
    for part in name.split("/"):
        found += check(field, part, dns_subdomain)
    return found


def check_label(name: str, field: str) -> list[FieldError]:
    """Names of devices, requests and counters."""
    return check(field, name, dns_label)


def check_share(uid: str, field: str) -> list[FieldError]:
    """The id of a share of a device."""
    if _UID.fullmatch(uid):
        return []
    if _UID.fullmatch(uid.lower()):
        return [invalid(field, uid, _NOT_NORMAL)]
    why = "invalid UUID format" if len(uid) == 36 else f"invalid UUID length: {len(uid)}"
    return [invalid(field, uid, f"error validating uid: {why}")]


def check_attribute_name(name: str, field: str) -> list[FieldError]:
    """A C identifier, with a domain before it or not. More than one slash is not looked at, as in 1.36."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        return _check_identifier(name, field)
    if "/" in identifier:
        return []
    found = check_driver(domain, field) if domain else [invalid(field, "", "the domain must not be empty")]
    if not identifier:
        return [*found, invalid(field, "", "the name must not be empty")]
    return found + _check_identifier(identifier, field)


def check_full_attribute_name(name: str, field: str) -> list[FieldError]:
    """The same with a domain."""
    found = check_attribute_name(name, field)
    if "/" not in name:
        found.append(invalid(field, name, "a fully qualified name must be a domain and a name separated by a slash"))
    return found


def _check_identifier(name: str, field: str) -> list[FieldError]:
    found = [too_long(field, MOST_IDENTIFIER)] if len(name) > MOST_IDENTIFIER else []
    if not _IDENTIFIER.fullmatch(name):
        found.append(invalid(field, name, _IDENTIFIER_TEXT))
    return found


def check_each(items: Sequence[Any], most: int, check_one: CheckItem, field: str) -> list[FieldError]:
    """validateSlice: at most so many, and each by itself."""
    if len(items) > most:
        return [too_many(field, len(items), most)]
    return [error for index, one in enumerate(items) for error in check_one(one, f"{field}[{index}]")]


def check_set(
    items: Sequence[Any],
    most: int,
    check_one: CheckItem,
    key: Callable[[Any], Any],
    field: str,
    *,
    shown: Callable[[Any], Any] = lambda key: key,
) -> list[FieldError]:
    """validateSet: and no key twice, which a refusal tells as ``shown``."""
    found = check_each(items, most, check_one, field)
    seen: set[Any] = set()
    for index, one in enumerate(items if len(items) <= most else ()):
        if key(one) in seen:
            found.append(duplicate(f"{field}[{index}]", shown(key(one))))
        seen.add(key(one))
    return found


def check_map(
    values: Mapping[str, Any], most: int | None, longest: int, check_key: CheckItem, check_one: CheckItem, field: str
) -> list[FieldError]:
    """validateMap, in the order of the keys; ``longest``: from when a key is shown shortened."""
    if most is not None and len(values) > most:
        return [too_many(field, len(values), most)]
    found: list[FieldError] = []
    for key, one in sorted(values.items()):
        found += check_key(key, field) + check_one(one, f"{field}[{_shortened(key, longest)}]")
    return found


def _shortened(key: str, longest: int) -> str:
    if len(key) <= longest:
        return key
    kept = longest - len("...")
    return f"{key[: (kept + 1) // 2]}...{key[len(key) - kept // 2 :]}"


def check_counter_set(name: str, field: str) -> list[FieldError]:
    """The name of a set of counters, which must be given."""
    return check_given(field, name, dns_label)
