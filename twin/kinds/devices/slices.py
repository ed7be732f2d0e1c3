"""ResourceSlice: the devices that a driver offers.

Source: ``pkg/apis/resource/validation`` (validateResourceSliceSpec), ``pkg/registry/resource/resourceslice``. What 1.36
has behind a gate that is off (attributes that are lists, node allocatable resources) is dropped, as it is there.
"""

from __future__ import annotations

import re
from typing import Any

from twin.kinds.devices.capacity import check_capacity
from twin.kinds.devices.names import (
    MOST_KEY,
    MOST_LABEL,
    check_attribute_name,
    check_counter_set,
    check_driver,
    check_each,
    check_label,
    check_map,
    check_pool,
    check_set,
)
from twin.kinds.devices.taints import check_taint
from twin.kinds.pod.scheduling_rules import check_node_selector
from twin.kinds.rules.names import check, dns_subdomain, qualified_name
from twin.kinds.rules.printing import UNSET, printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, duplicate, invalid, required, too_long
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

MOST_DEVICES, MOST_SPECIAL_DEVICES = 128, 64
"""In one slice; of devices with taints or counters."""
MOST_COUNTER_SETS, MOST_COUNTERS, MOST_CONSUMED_SETS = 8, 32, 2
MOST_ENTRIES, MOST_VALUES = 32, 48
"""Attributes and capacities of a device; values of its attributes."""
MOST_TAINTS, MOST_CONDITIONS, MOST_TEXT = 16, 4, 64

_LISTS = ("bools", "ints", "strings", "versions")
_PLACES = ("nodeName", "nodeSelector", "allNodes")
_ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_ONE_PLACE_EACH = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_NO_PLACE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "
    "ResourceSlice spec"
)
_NUMBER, _PART = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PART}(\.{_PART})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", re.ASCII
)


class ResourceSliceStrategy(TypedStrategy):
    """resource.k8s.io/v1 ResourceSlice: driver, pool and node never change."""

    info = KindInfo("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", "resourceslice", False)
    go_type = "resource/v1.ResourceSlice"
    resets_status = False
    supported_fields = frozenset(("spec.nodeName", "spec.driver"))
    table = printed("Name", f"Node=spec.nodeName|{UNSET}", "Driver=spec.driver", "Pool=spec.pool.name", "Age")

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"spec.nodeName": obj["spec"].get("nodeName") or "", "spec.driver": obj["spec"]["driver"]}

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        _prepare(obj, ctx)

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        _prepare(obj, ctx)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_spec(obj["spec"], None)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_spec(obj["spec"], old["spec"])

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        driver = obj["spec"]["driver"]
        if driver == driver.lower():
            return []
        return [f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters']


def _prepare(obj: Json, ctx: RequestContext) -> None:
    """Fields behind gates go; a taint gets the time at which it came."""
    for device in obj["spec"].get("devices") or ():
        device.pop("nodeAllocatableResourceMappings", None)
        for attribute in (device.get("attributes") or {}).values():
            for key in _LISTS:
                attribute.pop(key, None)
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", ctx.now)


def _check_spec(spec: Json, old: Json | None) -> list[FieldError]:
    found = check_driver(spec["driver"], "spec.driver")
    pool = spec["pool"]
    found += check_pool(pool["name"], "spec.pool.name")
    if pool["resourceSliceCount"] <= 0:
        found.append(invalid("spec.pool.resourceSliceCount", pool["resourceSliceCount"], "must be greater than zero"))
    if pool["generation"] < 0:
        found.append(invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero"))
    if old is not None:
        kept = (
            ("spec.pool.name", pool["name"], old["pool"]["name"]),
            ("spec.driver", spec["driver"], old["driver"]),
            ("spec.nodeName", spec.get("nodeName"), old.get("nodeName")),
        )
        found += [invalid(where, new, "field is immutable") for where, new, before in kept if new != before]
    found += _check_places(spec)
    if spec.get("sharedCounters") and spec.get("devices"):
        found.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    devices = spec.get("devices") or ()
    special = any(one.get("taints") or one.get("consumesCounters") for one in devices)
    before = {one["name"]: one for one in (old or {}).get("devices") or ()}
    found += check_set(
        devices,
        MOST_SPECIAL_DEVICES if special else MOST_DEVICES,
        lambda one, where: _check_device(one, before.get(one["name"]), where, spec.get("perDeviceNodeSelection")),
        lambda one: one["name"],
        "spec.devices",
    )
    return found + check_set(
        spec.get("sharedCounters") or (),
        MOST_COUNTER_SETS,
        lambda one, where: _check_counters(one, "name", where),
        lambda one: one["name"],
        "spec.sharedCounters",
    )


def _check_places(spec: Json) -> list[FieldError]:
    """On which nodes the devices are: said once."""
    found: list[FieldError] = []
    given: list[str] = []
    name, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if name:
        given.append("`nodeName`")
        found += check("spec.nodeName", name, dns_subdomain)
    elif name is not None:
        found.append(invalid("spec.nodeName", name, "must be either unset or set to a non-empty string"))
    if selector is not None:
        given.append("`nodeSelector`")
        found += check_node_selector(selector, "spec.nodeSelector")
        terms = selector.get("nodeSelectorTerms")
        if len(terms or ()) != 1:
            where = "spec.nodeSelector.nodeSelectorTerms"
            found.append(invalid(where, terms or [], "must have exactly one node selector term"))
    for key in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(key):
            given.append(f"`{key}`")
        elif spec.get(key) is not None:
            found.append(invalid(f"spec.{key}", spec[key], "must be either unset or set to true"))
    if not given:
        found.append(required("spec", _ONE_PLACE))
    elif len(given) > 1:
        found.append(invalid("spec", f"{{{', '.join(given)}}}", f"{_ONE_PLACE}, but multiple fields are set"))
    return found


def _check_device(device: Json, old: Json | None, field: str, by_device: bool | None) -> list[FieldError]:
    found = check_label(device["name"], f"{field}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > MOST_ENTRIES:
        text = f"the total number of attributes and capacities must not exceed {MOST_ENTRIES}"
        found.append(invalid(field, len(attributes) + len(capacity), text))
    if len(attributes) > MOST_VALUES:
        text = f"the total number of attribute values must not exceed {MOST_VALUES}"
        found.append(invalid(field, len(attributes), text))
    found += check_map(attributes, None, MOST_KEY, check_attribute_name, _check_attribute, f"{field}.attributes")
    shared = bool(device.get("allowMultipleAllocations"))
    found += check_map(
        capacity,
        None,
        MOST_KEY,
        check_attribute_name,
        lambda one, where: check_capacity(one, where, shared=shared),
        f"{field}.capacity",
    )
    if old is None or old.get("taints") != device.get("taints"):
        found += check_each(device.get("taints") or (), MOST_TAINTS, check_taint, f"{field}.taints")
    found += check_set(
        device.get("consumesCounters") or (),
        MOST_CONSUMED_SETS,
        lambda one, where: _check_counters(one, "counterSet", where),
        lambda one: one["counterSet"],
        f"{field}.consumesCounters",
    )
    found += _check_device_places(device, field) if by_device else _check_no_place(device, field)
    return found + check_binding_conditions(device, field)


def _check_device_places(device: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    given: list[str] = []
    name, selector, everywhere = (device.get(key) for key in _PLACES)
    if name:
        given.append("`nodeName`")
        found += check(f"{field}.nodeName", name, dns_subdomain)
    elif name is not None:
        found.append(invalid(f"{field}.nodeName", name, "must not be empty"))
    if selector is not None:
        given.append("`nodeSelector`")
        found += check_node_selector(selector, f"{field}.nodeSelector")
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        found.append(invalid(f"{field}.allNodes", everywhere, "must be either unset or set to true"))
    if not given:
        found.append(required(field, _ONE_PLACE_EACH))
    elif len(given) > 1:
        found.append(invalid(field, f"{{{', '.join(given)}}}", _ONE_PLACE_EACH))
    return found


def _check_no_place(device: Json, field: str) -> list[FieldError]:
    return [invalid(field, None, _NO_PLACE)] if any(device.get(key) is not None for key in _PLACES) else []


def _check_counters(holder: Json, name: str, field: str) -> list[FieldError]:
    """A set of counters, or what of one a device takes."""
    found = check_counter_set(holder[name], f"{field}.{name}")
    counters = holder.get("counters") or {}
    if not counters:
        return [*found, required(f"{field}.counters")]
    return found + check_map(
        counters, MOST_COUNTERS, MOST_LABEL, check_label, lambda _one, _where: [], f"{field}.counters"
    )


def _check_attribute(attribute: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > MOST_TEXT:
        found.append(too_long(f"{field}.string", MOST_TEXT))
    if version is not None:
        if not _VERSION.fullmatch(version):
            text = "must be a string compatible with semver.org spec 2.0.0"
            found.append(invalid(f"{field}.version", version, text))
        if len(version.encode()) > MOST_TEXT:
            found.append(too_long(f"{field}.version", MOST_TEXT))
    if len(attribute) != 1:
        found.append(invalid(field, attribute or "", "exactly one value must be specified"))
    return found


def check_binding_conditions(device: Json, field: str) -> list[FieldError]:
    """validateDeviceBindingParameters: both kinds or neither, each condition once."""
    good, bad = device.get("bindingConditions") or [], device.get("bindingFailureConditions") or []
    at_good, at_bad = f"{field}.bindingConditions", f"{field}.bindingFailureConditions"
    found = check_each(good, MOST_CONDITIONS, _check_condition, at_good)
    found += check_each(bad, MOST_CONDITIONS, _check_condition, at_bad)
    found += [duplicate(f"{at_good}[{i}]", one) for i, one in enumerate(good) if one in good[:i]]
    for index, one in enumerate(bad):
        if one in bad[:index]:
            found.append(duplicate(f"{at_bad}[{index}]", one))
        if one in good:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(invalid(f"{at_bad}[{index}]", one, text))
    if bad and not good:
        text = "bindingConditions are required to use bindingFailureConditions"
        found.append(invalid(at_good, None, text))
    if good and not bad:
        text = "bindingFailureConditions are required to use bindingConditions"
        found.append(invalid(at_bad, None, text))
    return found


def _check_condition(name: str, field: str) -> list[FieldError]:
    return check(field, name, qualified_name)
