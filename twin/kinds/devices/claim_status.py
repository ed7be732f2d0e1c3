"""What a scheduler and drivers may write into the status of a ResourceClaim.

An allocation is written once: it may be taken away, never changed. A claim is reserved only while it is allocated, for
256 consumers at most, and for no further one once it is being deleted. What a driver tells is about devices of the
allocation, and goes with it. Source: ``pkg/apis/resource/validation`` (validateResourceClaimStatusUpdate).
"""

from __future__ import annotations

import ipaddress
from typing import Any

from twin.kinds.devices.access import device_key
from twin.kinds.devices.names import check_driver, check_each, check_label, check_pool, check_set, check_share
from twin.kinds.devices.requests import (
    MOST_CONFIG,
    check_config,
    check_raw,
    check_request_name,
    check_request_names,
    request_names,
)
from twin.kinds.devices.slices import check_binding_conditions
from twin.kinds.pod.scheduling_rules import check_node_selector
from twin.kinds.rules.conditions import check_conditions
from twin.registry.status import (
    FieldError,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

Json = dict[str, Any]

MOST_CONSUMERS = 256
"""``ResourceClaimReservedForMaxSize``."""
MOST_RESULTS = 32
_MOST_CONDITIONS, _MOST_ADDRESSES, _MOST_INTERFACE, _MOST_HARDWARE = 8, 16, 256, 128
_SOURCES = ("FromClaim", "FromClass")
_RESERVED, _DEVICES = "status.reservedFor", "status.devices"
_NO_LIMIT = 1 << 62


def keep_device_status(obj: Json, old: Json) -> None:
    """What drivers told of devices goes with their allocation."""
    status = obj.get("status") or {}
    gone = _allocated(old.get("status") or {}) - _allocated(status)
    kept = [one for one in status.get("devices") or () if device_key(one) not in gone]
    if kept:
        status["devices"] = kept
    else:
        status.pop("devices", None)


def _allocated(status: Json) -> set[tuple[str, str, str, str]]:
    allocation = status.get("allocation") or {}
    return {device_key(one) for one in (allocation.get("devices") or {}).get("results") or ()}


def validate_claim_status(obj: Json, old: Json) -> list[FieldError]:
    """Everything that is wrong with a new status."""
    status, before = obj.get("status") or {}, old.get("status") or {}
    reserved: list[Json] = status.get("reservedFor") or []
    allocation, known = status.get("allocation"), before.get("allocation")
    found = check_set(reserved, MOST_CONSUMERS, _check_consumer, lambda one: one.get("uid", ""), _RESERVED)
    allocated = _allocated(status)
    found += check_set(
        status.get("devices") or (),
        _NO_LIMIT,
        lambda one, where: _check_device_status(one, allocated, where),
        device_key,
        _DEVICES,
        shown=_shown,
    )
    if reserved and not allocation:
        found.append(forbidden_field(_RESERVED, "may not be specified when `allocated` is not set"))
    elif obj["metadata"].get("deletionTimestamp"):
        consumers = before.get("reservedFor") or []
        if any(one not in consumers for one in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            found.append(forbidden_field(_RESERVED, text))
    if not allocation:
        return found
    if known:
        return (
            [*found, invalid("status.allocation", allocation, "field is immutable")] if allocation != known else found
        )
    return found + _check_allocation(allocation, request_names(obj["spec"]["devices"]), "status.allocation")


def _check_consumer(consumer: Json, field: str) -> list[FieldError]:
    return [required(f"{field}.{key}") for key in ("resource", "name", "uid") if not consumer.get(key)]


def _check_allocation(allocation: Json, names: frozenset[str], field: str) -> list[FieldError]:
    devices = allocation.get("devices") or {}
    found = check_each(
        devices.get("results") or (),
        MOST_RESULTS,
        lambda one, where: _check_result(one, names, where),
        f"{field}.devices.results",
    )
    found += check_each(
        devices.get("config") or (),
        2 * MOST_CONFIG,  # the class's and the claim's
        lambda one, where: (
            _check_source(one["source"], f"{where}.source")
            + check_request_names(one, names, where)
            + check_config(one, where)
        ),
        f"{field}.devices.config",
    )
    selector = allocation.get("nodeSelector")
    return found + (check_node_selector(selector, f"{field}.nodeSelector") if selector is not None else [])


def _check_result(result: Json, names: frozenset[str], field: str) -> list[FieldError]:
    found = check_request_name(result["request"], names, f"{field}.request")
    found += _check_device_name(result, field) + check_binding_conditions(result, field)
    share = result.get("shareID")
    return found + (check_share(share, f"{field}.shareID") if share is not None else [])


def _check_device_name(one: Json, field: str) -> list[FieldError]:
    return (
        check_driver(one["driver"], f"{field}.driver")
        + check_pool(one["pool"], f"{field}.pool")
        + check_label(one["device"], f"{field}.device")
    )


def _check_source(source: str, field: str) -> list[FieldError]:
    if not source:
        return [required(field)]
    return [] if source in _SOURCES else [not_supported(field, source, _SOURCES)]


def _check_device_status(one: Json, allocated: set[tuple[str, str, str, str]], field: str) -> list[FieldError]:
    found = _check_device_name(one, field)
    if one.get("shareID") is not None:
        found += check_share(one["shareID"], f"{field}.shareID")
    if device_key(one) not in allocated:
        found.append(invalid(field, _shown(device_key(one)), "must be an allocated device in the claim"))
    conditions = one.get("conditions") or ()
    if len(conditions) > _MOST_CONDITIONS:
        found.append(too_many(f"{field}.conditions", len(conditions), _MOST_CONDITIONS))
    found += check_conditions(conditions, f"{field}.conditions")
    if one.get("data") is not None:
        found += check_raw(one["data"], f"{field}.data")
    return found + _check_network(one.get("networkData") or {}, f"{field}.networkData")


def _shown(key: tuple[str, str, str, str]) -> Json:
    return dict(zip(("Driver", "Pool", "Device", "ShareID"), key, strict=True))


def _check_network(data: Json, field: str) -> list[FieldError]:
    found = [
        too_long(f"{field}.{key}", most)
        for key, most in (("interfaceName", _MOST_INTERFACE), ("hardwareAddress", _MOST_HARDWARE))
        if len(data.get(key, "").encode()) > most
    ]
    return found + check_set(
        data.get("ips") or (), _MOST_ADDRESSES, _check_address, lambda address: address, f"{field}.ips"
    )


def _check_address(address: str, field: str) -> list[FieldError]:
    try:
        if "/" not in address:
            raise ValueError(address)
        found = ipaddress.ip_interface(address)
    except ValueError:
        text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid(field, address, text)]
    canonical = f"{found.ip}/{found.network.prefixlen}"
    return [] if address == canonical else [invalid(field, address, f'must be in canonical form ("{canonical}")')]
