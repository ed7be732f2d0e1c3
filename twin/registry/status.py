"""Status answers: the one error type of the API server and the builders of its bodies.

Why here: strategies, store and HTTP layer all refuse requests, and clients decide on ``code``, ``reason`` and
``details``. Sources: apimachinery ``pkg/api/errors`` (reasons, codes) and ``pkg/util/validation/field`` (causes).
It knows neither kinds nor HTTP: it builds dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

Json = dict[str, Any]


class ApiError(Exception):
    """A refused request: had no effect. ``body`` is the Status to send, ``headers`` and ``warnings`` go with it."""

    def __init__(self, body: Json, headers: Mapping[str, str] | None = None, warnings: Sequence[str] = ()) -> None:
        super().__init__(body.get("message", ""))
        self.body = body
        self.headers = dict(headers or {})
        self.warnings = tuple(warnings)

    @property
    def code(self) -> int:
        """The HTTP status."""
        return int(self.body.get("code", 500))

    @property
    def reason(self) -> str:
        """The Status reason, empty where the server gives none."""
        return str(self.body.get("reason", ""))


@dataclass(frozen=True, slots=True)
class FieldError:
    """One cause of a 422. ``reason`` is the cause's (``FieldValueInvalid`` ...), ``message`` without the field."""

    reason: str
    field: str
    message: str


def go_value(value: Any) -> str:
    """``value`` as field.Error prints it: strings quoted, scalars bare, everything else as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value).decode()


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """``Invalid value``."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {go_value(value)}: {detail}")


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    """``Invalid value`` with the reason of a wrong type."""
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {go_value(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """``Required value``."""
    return FieldError("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def duplicate(field: str, value: Any) -> FieldError:
    """``Duplicate value``."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {go_value(value)}")


def forbidden_field(field: str, detail: str) -> FieldError:
    """``Forbidden``: the field may not be set, or not be changed."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """``Unsupported value``; ``supported`` is printed in the given order."""
    listed = ", ".join(f'"{one}"' for one in supported)
    tail = f": supported values: {listed}" if listed else ""
    return FieldError("FieldValueNotSupported", field, f"Unsupported value: {go_value(value)}{tail}")


def field_not_found(field: str, value: Any) -> FieldError:
    """``Not found``: the value names something that is not there."""
    return FieldError("FieldValueNotFound", field, f"Not found: {go_value(value)}")


def internal_error(field: str, detail: str) -> FieldError:
    """``Internal error`` about a field."""
    return FieldError("InternalError", field, f"Internal error: {detail}")


def too_long(field: str, max_length: int) -> FieldError:
    """``Too long``, in bytes."""
    unit = "byte" if max_length == 1 else "bytes"
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {max_length} {unit}")


def too_many(field: str, actual: int, max_items: int) -> FieldError:
    """``Too many``, in items."""
    unit = "item" if max_items == 1 else "items"
    return FieldError("FieldValueTooMany", field, f"Too many: {actual}: must have at most {max_items} {unit}")


def status(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Json:
    """A failure Status in the key order of the real server."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    if reason:
        body["reason"] = reason
    if details:
        body["details"] = dict(details)
    body["code"] = code
    return body


def success(details: Mapping[str, Any] | None = None, code: int | None = None) -> Json:
    """A success Status (bindings, evictions, some deletes)."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = dict(details)
    if code is not None:
        body["code"] = code
    return body


def named(plural: str, group: str, name: str) -> Json:
    """``details`` of one object: name, group where there is one, and (as the server does) the plural as kind."""
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = plural
    return details


def qualified(plural: str, group: str) -> str:
    """``deployments.apps``, ``pods``: the GroupResource in messages."""
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> ApiError:
    """400 BadRequest."""
    return ApiError(status(400, "BadRequest", message))


def unauthorized() -> ApiError:
    """401: the token is not known."""
    return ApiError(status(401, "Unauthorized", "Unauthorized"))


def forbidden(plural: str, group: str, name: str, message: str, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    """403 from admission: ``pods "x" is forbidden: message``."""
    details = named(plural, group, name)
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    subject = (
        f'{qualified(plural, group)} "{name}" is forbidden: ' if name else f"{qualified(plural, group)} is forbidden: "
    )
    return ApiError(status(403, "Forbidden", subject + message, details))


def not_found(plural: str, group: str, name: str) -> ApiError:
    """404 of one object."""
    return ApiError(
        status(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', named(plural, group, name))
    )


def path_not_found() -> ApiError:
    """404 of a resource that no group serves."""
    body = status(404, "NotFound", "the server could not find the requested resource")
    body["details"] = {}
    return ApiError({**{k: v for k, v in body.items() if k not in ("code", "details")}, "details": {}, "code": 404})


def method_not_allowed() -> ApiError:
    """405 of a verb that the resource does not have."""
    message = "the server does not allow this method on the requested resource"
    return ApiError({**status(405, "MethodNotAllowed", message), "details": {}, "code": 405})


def method_not_supported(plural: str, group: str, verb: str) -> ApiError:
    """405 as the handler of custom resources words it."""
    text = f'{verb} is not supported on resources of kind "{qualified(plural, group)}"'
    return ApiError(status(405, "MethodNotAllowed", text, named(plural, group, "")))


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """409 of a create."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(status(409, "AlreadyExists", message, named(plural, group, name)))


def conflict(plural: str, group: str, name: str, message: str) -> ApiError:
    """409 of an update: ``Operation cannot be fulfilled on pods "x": message``."""
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}'
    return ApiError(status(409, "Conflict", text, named(plural, group, name)))


MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"
"""What a stale resourceVersion in a PUT or PATCH is answered."""


def unprocessable(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422 with one cause per field; the message joins them, in brackets when there are several, each once."""
    lines = list(dict.fromkeys(f"{error.field}: {error.message}" for error in errors))
    joined = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    subject = f"{kind}.{group}" if group else kind
    details = named(kind, group, name)
    details["causes"] = [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors]
    return ApiError(status(422, "Invalid", f'{subject} "{name}" is invalid: {joined}', details))


def too_many_requests(message: str, retry_after_s: int, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    """429; ``retry_after_s`` 0 leaves the header and the field out (an exhausted disruption budget does so)."""
    details: Json = {}
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else {}
    return ApiError(status(429, "TooManyRequests", message, details), headers)


def expired(message: str) -> ApiError:
    """410: the resourceVersion (or continue token) is older than the history that is kept."""
    return ApiError(status(410, "Expired", message))


def internal(message: str) -> ApiError:
    """500 InternalError."""
    details = {"causes": [{"message": message}]}
    return ApiError(status(500, "InternalError", f"Internal error occurred: {message}", details))


def plain_error(message: str) -> ApiError:
    """500 without a reason: a Go error that is no Status (a resourceVersion set on create, for one)."""
    return ApiError(status(500, "", message))
