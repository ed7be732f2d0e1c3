"""The spec of a claim, which a template has too: its requests, constraints and configuration.

Source: ``pkg/apis/resource/validation`` (validateResourceClaimSpec), ``pkg/registry/resource/utils.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from shared.scheduling.devices.cel.expressions import DeviceSelectorError, TooCostlyError
from shared.scheduling.devices.cel.selectors import MOST_CHARACTERS, Selectors
from twin.kinds.devices.names import (
    check_driver,
    check_each,
    check_full_attribute_name,
    check_label,
    check_set,
)
from twin.kinds.devices.taints import check_toleration, default_tolerations
from twin.kinds.rules.names import check_given, dns_subdomain
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported, required, too_long
from twin.registry.strategy import StoreReader

Json = dict[str, Any]

MOST_REQUESTS = MOST_CONSTRAINTS = MOST_CONFIG = MOST_SELECTORS = 32
MOST_ALTERNATIVES = 8
MOST_PARAMETERS = 10 * 1024
"""Bytes of what a driver is told (``OpaqueParametersMaxLength``), and of what it tells."""

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_ADMIN_TEXT = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_MODES = ("All", "ExactCount")
_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
_ONE_CONSTRAINT = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'  # so worded
)
_selectors = Selectors()


def default_requests(spec: Json) -> None:
    """One device, and tolerations that compare."""
    for request in spec["devices"].get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one is None:
                continue
            if one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                one.setdefault("count", 1)
            default_tolerations(one.get("tolerations"))


def check_claim_spec(spec: Json, field: str) -> list[FieldError]:
    """Everything that is wrong with the spec of a new claim."""
    devices, here = spec["devices"], f"{field}.devices"
    names = request_names(devices)
    found = check_set(
        devices.get("requests") or (), MOST_REQUESTS, _check_request, lambda one: one["name"], f"{here}.requests"
    )
    found += check_each(
        devices.get("constraints") or (),
        MOST_CONSTRAINTS,
        lambda one, where: _check_constraint(one, names, where),
        f"{here}.constraints",
    )
    return found + check_each(
        devices.get("config") or (),
        MOST_CONFIG,
        lambda one, where: check_request_names(one, names, where) + check_config(one, where),
        f"{here}.config",
    )


def request_names(devices: Json) -> frozenset[str]:
    """Every name by which a request or one of its alternatives may be called: ``r``, ``r/a``."""

    def each() -> Iterator[str]:
        for request in devices.get("requests") or ():
            yield request["name"]
            for one in request.get("firstAvailable") or ():
                yield f"{request['name']}/{one['name']}"

    return frozenset(each())


def check_admin_access(requests: list[Json], namespace: str, reader: StoreReader) -> list[FieldError]:
    """Who asks for admin access must be in a namespace that says so."""
    for index, request in enumerate(requests):
        if (request.get("exactly") or {}).get("adminAccess"):
            return check_admin_namespace(f"spec.devices.requests[{index}].adminAccess", namespace, reader)
    return []


def check_admin_namespace(field: str, namespace: str, reader: StoreReader) -> list[FieldError]:
    """The label of the namespace."""
    found = reader.get("namespaces", "", namespace) or {"metadata": {}}
    allowed = (found["metadata"].get("labels") or {}).get(ADMIN_LABEL) == "true"
    return [] if allowed else [forbidden_field(field, _ADMIN_TEXT)]


def _check_request(request: Json, field: str) -> list[FieldError]:
    found = check_label(request["name"], f"{field}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
    if exactly is not None and alternatives:
        return [*found, invalid(field, None, f"{_ONE_KIND}, but multiple fields are set")]
    if exactly is not None:
        return found + _check_devices(exactly, f"{field}.exactly")
    if not alternatives:
        return [*found, required(field, _ONE_KIND)]
    return found + check_set(
        alternatives,
        MOST_ALTERNATIVES,
        lambda one, where: check_label(one["name"], f"{where}.name") + _check_devices(one, where),
        lambda one: one["name"],
        f"{field}.firstAvailable",
    )


def _check_devices(wanted: Json, field: str) -> list[FieldError]:
    """What a request and an alternative have in common."""
    found = check_given(f"{field}.deviceClassName", wanted["deviceClassName"], dns_subdomain)
    found += check_selectors(wanted.get("selectors"), f"{field}.selectors")
    mode, count = wanted.get("allocationMode", ""), wanted.get("count", 0)
    if mode not in _MODES:
        found.append(not_supported(f"{field}.allocationMode", mode, _MODES))
    elif mode == "All" and count != 0:
        found.append(invalid(f"{field}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        found.append(invalid(f"{field}.count", count, "must be greater than zero"))
    for index, one in enumerate(wanted.get("tolerations") or ()):
        found += check_toleration(one, f"{field}.tolerations[{index}]")
    return found


def check_selectors(selectors: list[Json] | None, field: str) -> list[FieldError]:
    """CEL that compiles, and says yes or no at a bearable cost. What it lacks is worded by C++, not by Go."""
    return check_each(selectors or (), MOST_SELECTORS, _check_selector, field)


def _check_selector(selector: Json, field: str) -> list[FieldError]:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{field}.cel")]
    expression, where = cel["expression"], f"{field}.cel.expression"
    if len(expression.encode()) > MOST_CHARACTERS:
        return [too_long(where, MOST_CHARACTERS)]
    try:
        _selectors.compile(expression)
    except TooCostlyError:
        return [forbidden_field(where, "too complex, exceeds cost limit")]
    except DeviceSelectorError as error:
        return [invalid(where, expression, str(error).removeprefix("CEL compile error: "))]
    return []


def _check_constraint(constraint: Json, names: frozenset[str], field: str) -> list[FieldError]:
    found = check_request_names(constraint, names, field)
    for key in ("matchAttribute", "distinctAttribute"):
        if constraint.get(key) is not None:
            return found + check_full_attribute_name(constraint[key], f"{field}.{key}")
    return [*found, required(field, _ONE_CONSTRAINT)]


def check_request_names(holder: Json, names: frozenset[str], field: str) -> list[FieldError]:
    """The requests that a constraint or a configuration is about."""
    return check_set(
        holder.get("requests") or (),
        MOST_REQUESTS,
        lambda name, where: check_request_name(name, names, where),
        lambda name: name,
        f"{field}.requests",
    )


def check_request_name(name: str, names: frozenset[str], field: str) -> list[FieldError]:
    """The name of a request, or of one of its alternatives."""
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid(field, name, _NO_SUCH_REQUEST)]
    found = [error for part in parts for error in check_label(part, field)]
    return found if name in names else [*found, invalid(field, name, _NO_SUCH_REQUEST)]


def check_config(config: Json, field: str, *, stored: bool = False) -> list[FieldError]:
    """What a driver is told. ``stored``: parameters of before were not bounded."""
    opaque, where = config.get("opaque"), f"{field}.opaque"
    if opaque is None:
        return [required(where)]
    found = check_driver(opaque["driver"], f"{where}.driver")
    return found + check_raw(opaque.get("parameters"), f"{where}.parameters", stored=stored)


def check_raw(value: Any, field: str, *, stored: bool = False) -> list[FieldError]:
    """A JSON object of at most 10 KiB."""
    if value is None:
        return [required(field)]
    if not stored and len(msgspec.json.encode(value)) > MOST_PARAMETERS:
        return [too_long(field, MOST_PARAMETERS)]
    return [] if isinstance(value, dict) else [invalid(field, "<value omitted>", "must be a valid JSON object")]
