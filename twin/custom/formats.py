"""The formats of texts that an API server checks in custom resources; others mean nothing to it.

Source: apiextensions ``pkg/apiserver/validation/formats.go``, kube-openapi ``pkg/validation/strfmt``.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LABEL = r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_SMALL_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HEX = "[0-9a-fA-F]"
_OF_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_IN_WORDS = re.compile(
    r"\d+\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?"
    r"|m|mins?|minutes?|h|hours?|hrs?|d|days?|w|wk|weeks?)",
    re.ASCII,
)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def duration_ns(text: str) -> int | None:
    """Nanoseconds of a duration as Go writes it (``1h30m``, ``0``); None: it is none."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    parts = _OF_DURATION.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        return None
    return sign * sum(round(float(number) * _UNITS[unit]) for number, unit in parts)


def _shape(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _made_by(make: Callable[[str], object]) -> Callable[[str], bool]:
    def good(text: str) -> bool:
        with suppress(ValueError):
            make(text)
            return True
        return False

    return good


def _is_duration(text: str) -> bool:
    return duration_ns(text) is not None or _IN_WORDS.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    with suppress(ValueError):
        found = urlsplit(text)
        return text.startswith("/") or bool(found.scheme)
    return False


def _is_base64(text: str) -> bool:
    with suppress(binascii.Error, ValueError):
        base64.b64decode(text, validate=True)
        return True
    return False


def _is_date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _is_date(text[:10])


_is_date = _made_by(date.fromisoformat)
_UUID = f"{_HEX}{{8}}-?{_HEX}{{4}}-?"

FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "date": lambda text: len(text) == len("2006-01-02") and _is_date(text),
    "duration": _is_duration,
    "byte": _is_base64,
    "uri": _is_uri,
    "email": _shape(r"[^@\s]+@[^@\s]+"),
    "hostname": lambda text: len(text) <= 255 and _shape(rf"{_LABEL}(\.{_LABEL})*\.?")(text),
    "ipv4": _made_by(ipaddress.IPv4Address),
    "ipv6": _made_by(ipaddress.IPv6Address),
    "cidr": lambda text: "/" in text and _made_by(lambda one: ipaddress.ip_network(one, strict=False))(text),
    "mac": _shape(rf"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}(([:-]{_HEX}{{2}}){{2}})?|({_HEX}{{4}}\.){{2,3}}{_HEX}{{4}}"),
    "uuid": _shape(rf"{_UUID}{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "uuid3": _shape(rf"{_UUID}3{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "uuid4": _shape(rf"{_UUID}4{_HEX}{{3}}-?[89abAB]{_HEX}{{3}}-?{_HEX}{{12}}"),
    "uuid5": _shape(rf"{_UUID}5{_HEX}{{3}}-?[89abAB]{_HEX}{{3}}-?{_HEX}{{12}}"),
    "bsonobjectid": _shape(rf"{_HEX}{{24}}"),
    "hexcolor": _shape(rf"#?({_HEX}{{3}}|{_HEX}{{6}})"),
    "ssn": _shape(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "k8s-short-name": lambda text: len(text) <= 63 and _shape(_SMALL_LABEL)(text),
    "k8s-long-name": lambda text: len(text) <= 253 and _shape(rf"{_SMALL_LABEL}(\.{_SMALL_LABEL})*")(text),
}
