"""The query of lists and watches: parsing, the combinations that are refused, continue tokens, selectors.

Sources: apimachinery ``pkg/apis/meta/internalversion/validation`` and ``pkg/fields/selector.go``, apiserver
``storage/continue.go``. Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shared.kube.label_selectors import ParsedSelector, SelectorError, parse_label_selector
from twin.registry.status import (
    ApiError,
    FieldError,
    bad_request,
    forbidden_field,
    not_supported,
    plain_error,
    unprocessable,
)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_UINT64 = 2**64 - 1


def query_bool(value: str | None) -> bool:
    """Go's conversion of a query value: absent, ``0`` and ``false`` are false, everything else is true."""
    return value is not None and value.lower() not in ("0", "false")


def query_list(query: Mapping[str, str], name: str) -> list[str]:
    """All values of an option that may be given several times."""
    several = getattr(query, "getall", None)
    if several is not None:
        return list(several(name, ()))
    return [query[name]] if name in query else []


def query_int(value: str | None) -> int | None:
    """An int64 of the query; 400 when it does not parse."""
    if value is None or value == "":
        return None
    if not _INTEGER.fullmatch(value):
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
    return int(value)


def parse_revision(value: str) -> int:
    """A resourceVersion as a number; ``ValueError`` with Go's text when it is none."""
    if not value.isascii() or not value.isdigit():
        raise ValueError(f'strconv.ParseUint: parsing "{value}": invalid syntax')
    number = int(value)
    if number > _MAX_UINT64:
        raise ValueError(f'strconv.ParseUint: parsing "{value}": value out of range')
    return number


@dataclass(frozen=True, slots=True)
class ListOptions:
    """A checked query. ``revision`` None = not given."""

    label_selector: str
    field_selector: str
    watch: bool
    bookmarks: bool
    revision: int | None
    match: str
    timeout_s: int | None
    limit: int
    continue_token: str
    send_initial_events: bool | None


class ContinueToken(msgspec.Struct, rename={"version": "v", "revision": "rv"}):
    """Where the next page begins, and in which snapshot."""

    version: str = "meta.k8s.io/v1"
    revision: int = 0
    start: str = ""


def encode_continue(revision: int, start: str) -> str:
    """An opaque token: base64 without padding, as the real ones."""
    return (
        base64.urlsafe_b64encode(msgspec.json.encode(ContinueToken(revision=revision, start=start)))
        .decode()
        .rstrip("=")
    )


def decode_continue(text: str) -> ContinueToken:
    """Refused: 400."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    try:
        token = msgspec.json.decode(raw, type=ContinueToken)
    except msgspec.DecodeError:
        first = raw[:1].decode("latin-1")
        shown = first if first.isprintable() and first.isascii() else f"\\u{ord(first or chr(0)):04x}"
        text = f"invalid character '{shown}' looking for beginning of value"
        raise bad_request(f"invalid continue token: continue key is not valid: {text}") from None
    if token.version != "meta.k8s.io/v1" or token.revision == 0 or not token.start:
        raise bad_request(
            "invalid continue token: continue key is not valid: server does not recognize this encoded version"
        )
    return token


def parse_list_options(query: Mapping[str, str]) -> ListOptions:
    """Refused: 400 (numbers), 422 (combinations), and for a watch's resourceVersion the real server's 500."""
    limit = query_int(query.get("limit")) or 0
    timeout_s = query_int(query.get("timeoutSeconds"))
    watch = query_bool(query.get("watch"))
    match = query.get("resourceVersionMatch", "")
    token = query.get("continue", "")
    version = query.get("resourceVersion", "")
    initial = query_bool(query["sendInitialEvents"]) if "sendInitialEvents" in query else None
    errors = _watch_errors(match, token, initial) if watch else _list_errors(match, token, version, initial)
    if errors:
        raise unprocessable("ListOptions", "meta.k8s.io", "", errors)
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        watch=watch,
        bookmarks=query_bool(query.get("allowWatchBookmarks")),
        revision=_revision(version, watch=watch, token=token),
        match=match,
        timeout_s=timeout_s,
        limit=max(limit, 0),
        continue_token=token,
        send_initial_events=initial,
    )


def _revision(version: str, *, watch: bool, token: str) -> int | None:
    if not version:
        return None
    if token and version != "0":
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        return parse_revision(version)
    except ValueError as error:
        text = f'resourceVersion: Invalid value: "{version}": {error}'
        raise _revision_error(text, watch=watch) from None


def _revision_error(text: str, *, watch: bool) -> ApiError:
    # A watch hands the storage's error out as it is: 500 without a reason.
    return plain_error(text) if watch else bad_request(f"invalid resource version: {text}")


def _list_errors(match: str, token: str, version: str, initial: bool | None) -> list[FieldError]:
    errors: list[FieldError] = []
    field = "resourceVersionMatch"
    if match:
        if not version:
            errors.append(
                forbidden_field(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
            )
        if token:
            errors.append(forbidden_field(field, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            errors.append(not_supported(field, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(forbidden_field(field, text))
    if initial is not None:
        errors.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(match: str, token: str, initial: bool | None) -> list[FieldError]:
    errors: list[FieldError] = []
    field = "resourceVersionMatch"
    if match:
        if initial is None:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            errors.append(forbidden_field(field, text))
        if token:
            errors.append(forbidden_field(field, "resourceVersionMatch is forbidden when continue is provided"))
    if initial is not None:
        if match != "NotOlderThan":
            text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            errors.append(forbidden_field(field, text))
        if match and match != "NotOlderThan":
            errors.append(not_supported(field, match, ("NotOlderThan",)))
    return errors


# --- selectors --------------------------------------------------------------------------------------------------------


def parse_labels(text: str) -> ParsedSelector | None:
    """A ``labelSelector``; None when it selects everything. Refused: 400 with the parser's message."""
    try:
        return parse_label_selector(text)
    except SelectorError as error:
        raise bad_request(str(error)) from None


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """(field, value, equal) terms; an absent field counts as an empty string."""

    terms: tuple[tuple[str, str, bool], ...]

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these field values is selected."""
        return all((fields.get(name, "") == value) is equal for name, value, equal in self.terms)


def _split_fields(text: str) -> list[str]:
    terms: list[str] = []
    start, index = 0, 0
    while index < len(text):
        if text[index] == "\\":
            index += 1
        elif text[index] == ",":
            terms.append(text[start:index])
            start = index + 1
        index += 1
    terms.append(text[start:])
    return terms


def _unescape(text: str, whole: str) -> str:
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 1
            if index == len(text) or text[index] not in "\\,=":
                raise bad_request(
                    f"invalid field selector: invalid escape sequence: {text[index - 1 : index + 1]} in {whole}"
                )
            char = text[index]
        elif char in ",=":
            raise bad_request(f"invalid field selector: unescaped '{char}' in value: {whole}")
        out.append(char)
        index += 1
    return "".join(out)


def parse_fields(text: str, supported: frozenset[str], error_text: str = "") -> FieldSelector | None:
    """A ``fieldSelector`` over the ``supported`` fields; None when it selects everything. Refused: 400."""
    terms: list[tuple[str, str, bool]] = []
    for term in _split_fields(text):
        if not term:
            continue
        found = re.search(r"!=|==|=", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name = term[: found.start()]
        if name not in supported:
            raise bad_request((error_text or "field label not supported: {field}").format(field=name))
        terms.append((name, _unescape(term[found.end() :], text), found.group() != "!="))
    return FieldSelector(tuple(terms)) if terms else None
