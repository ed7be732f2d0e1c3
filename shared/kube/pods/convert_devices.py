"""From the JSON structs of ``resource.k8s.io`` to the model, and from what was decided back to JSON.

Pure. A bad field spoils its object only (``ObjectError`` names it). What a claim asks in a way that nobody here
understands is told in its ``problem``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from shared.errors import ObjectError
from shared.kube import device_objects as raw
from shared.kube.objects import KubeToleration, NodeSelector
from shared.kube.pods.convert import requirements_of
from shared.model import devices as model
from shared.model.constraints import SelectorTerm
from shared.model.devices import nanos_of, quantity_text

EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that a scheduler made for the extended resources of a pod."""

PROTECTION = "resource.kubernetes.io/delete-protection"
"""The finalizer that keeps a claim while it is allocated."""


def slice_from_api(item: raw.ResourceSlice) -> model.DeviceSlice:
    """Raises ``ObjectError`` for an attribute without a value, or an amount that is no quantity."""
    spec = item.spec
    return model.DeviceSlice(
        name=item.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        count=spec.pool.resource_slice_count,
        reach=_reach(spec.node_name, spec.all_nodes, spec.node_selector, "spec.nodeSelector"),
        per_device=bool(spec.per_device_node_selection),
        devices=tuple(_device(one, f"spec.devices[{index}]") for index, one in enumerate(spec.devices or ())),
        counter_sets=tuple(
            (one.name, _counters(one, f"spec.sharedCounters[{index}]"))
            for index, one in enumerate(spec.shared_counters or ())
        ),
    )


def class_from_api(item: raw.KubeDeviceClass) -> model.DeviceClass:
    """Raises ``ObjectError`` for a selector that is not CEL."""
    spec = item.spec
    return model.DeviceClass(
        name=item.metadata.name,
        selectors=_selectors(spec.selectors, "spec"),
        config=tuple({"opaque": one.opaque} for one in spec.config or ()),
        extended_resource=spec.extended_resource_name or "",
        created=item.metadata.creation_timestamp or "",
    )


def taint_rule_from_api(item: raw.DeviceTaintRule) -> model.TaintRule:
    """The rule."""
    selector = item.spec.device_selector
    return model.TaintRule(
        item.metadata.name,
        _taint(item.spec.taint),
        None if selector is None else (selector.driver or "", selector.pool or "", selector.device or ""),
    )


def claim_from_api(item: raw.ResourceClaim) -> model.DeviceClaim:
    """Raises ``ObjectError`` for an amount that is no quantity."""
    meta, asked, status = item.metadata, item.spec.devices, item.status
    problem = ""
    requests, constraints = [], []
    for index, request in enumerate(asked.requests or ()):
        where = f"spec.devices.requests[{index}]"
        try:
            requests.append(
                model.DeviceRequest(
                    request.name,
                    None if request.exactly is None else _ask(request.exactly, request.name, f"{where}.exactly"),
                    tuple(_ask(one, one.name, f"{where}.firstAvailable") for one in request.first_available or ()),
                )
            )
        except _Unknown as unknown:
            problem = problem or str(unknown)
            requests.append(model.DeviceRequest(request.name))
    for index, one in enumerate(asked.constraints or ()):
        attribute = one.match_attribute or one.distinct_attribute
        if attribute is None:
            problem = problem or f"constraint #{index}: empty constraint (unsupported constraint type?)"
            continue
        distinct = one.match_attribute is None
        constraints.append(model.AttributeConstraint(attribute, distinct, tuple(one.requests or ())))
    return model.DeviceClaim(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid,
        requests=tuple(requests),
        constraints=tuple(constraints),
        config=tuple((tuple(one.requests or ()), {"opaque": one.opaque}) for one in asked.config or ()),
        owner=next((owner.uid for owner in meta.owner_references or () if owner.controller), ""),
        deleting=meta.deletion_timestamp is not None,
        for_extended=(meta.annotations or {}).get(EXTENDED_CLAIM) == "true",
        allocation=None if status.allocation is None else _allocation(status.allocation),
        reserved_for=tuple(one.uid for one in status.reserved_for or ()),
        conditions={
            (one.driver, one.pool, one.device): {found.type: found.status for found in one.conditions or ()}
            for one in status.devices or ()
        },
        resource_version=meta.resource_version,
        problem=problem,
        protected=PROTECTION in (meta.finalizers or ()),
    )


def allocation_json(allocation: model.Allocation) -> dict[str, Any]:
    """The allocation as it is written into a claim's status; what is empty is left out."""
    results = []
    for one in allocation.results:
        found: dict[str, Any] = {
            "request": one.request, "driver": one.driver, "pool": one.pool, "device": one.device,
            "adminAccess": one.admin,
            "tolerations": [_toleration_json(toleration) for toleration in one.tolerations],
            "bindingConditions": list(one.bound_on),
            "bindingFailureConditions": list(one.failed_on),
            "shareID": one.share,
            "consumedCapacity": {name: quantity_text(amount) for name, amount in one.consumed},
        }  # fmt: skip
        results.append({key: value for key, value in found.items() if value})
    devices: dict[str, Any] = {"results": results}
    if allocation.config:
        devices["config"] = list(allocation.config)
    written: dict[str, Any] = {"devices": devices}
    if allocation.terms is not None:
        written["nodeSelector"] = {"nodeSelectorTerms": [_term_json(term) for term in allocation.terms]}
    if allocation.at is not None:
        written["allocationTimestamp"] = datetime.fromtimestamp(allocation.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return written


def request_json(request: model.DeviceRequest) -> dict[str, Any]:
    """A request for a number of devices of a class, as the scheduler writes it for extended resources."""
    ask = request.exactly
    assert ask is not None
    exactly = {"deviceClassName": ask.class_name, "allocationMode": ask.mode, "count": ask.count}
    return {"name": request.name, "exactly": exactly}


def _toleration_json(toleration: model.DeviceToleration) -> dict[str, Any]:
    found = {
        "key": toleration.key, "operator": toleration.operator, "value": toleration.value, "effect": toleration.effect,
    }  # fmt: skip
    written: dict[str, Any] = {key: value for key, value in found.items() if value}
    if toleration.seconds is not None:
        written["tolerationSeconds"] = toleration.seconds
    return written


def _term_json(term: SelectorTerm) -> dict[str, Any]:
    written = {}
    for name, requirements in (("matchExpressions", term.expressions), ("matchFields", term.fields)):
        if requirements:
            written[name] = [
                {"key": one.key, "operator": one.operator} | ({"values": list(one.values)} if one.values else {})
                for one in requirements
            ]
    return written


class _Unknown(Exception):
    """A request that is written in a way of a later release."""


def _ask(ask: raw.KubeDeviceAsk, name: str, where: str) -> model.DeviceAsk:
    capacity = ask.capacity.requests if ask.capacity is not None and ask.capacity.requests else {}
    selectors = []
    for index, selector in enumerate(ask.selectors or ()):
        if selector.cel is None:
            text = "CEL expression empty (unsupported selector type?)"
            raise _Unknown(f"request {name}, selector #{index}: {text}")
        selectors.append(selector.cel.expression)
    if ask.allocation_mode not in ("ExactCount", "All"):
        raise _Unknown(f"request {name}: unsupported count mode {ask.allocation_mode}")
    return model.DeviceAsk(
        name=name,
        class_name=ask.device_class_name,
        selectors=tuple(selectors),
        mode=ask.allocation_mode,
        count=1 if ask.count is None else ask.count,
        admin=ask.admin_access,
        tolerations=_tolerations(ask.tolerations),
        capacity=tuple(
            sorted((key, _nanos(value, f"{where}.capacity.requests[{key}]")) for key, value in capacity.items())
        ),
    )


def _selectors(selectors: list[raw.DeviceSelector] | None, where: str) -> tuple[str, ...]:
    for index, one in enumerate(selectors or ()):
        if one.cel is None:
            raise ObjectError("has no CEL expression; give cel.expression", field=f"{where}.selectors[{index}]")
    return tuple(one.cel.expression for one in selectors or () if one.cel is not None)


def _allocation(found: raw.AllocationResult) -> model.Allocation:
    at = None
    if found.allocation_timestamp is not None:
        where = "status.allocation.allocationTimestamp"
        try:
            at = datetime.fromisoformat(found.allocation_timestamp).timestamp()
        except ValueError as error:
            raise ObjectError(f"{found.allocation_timestamp[:64]!r} is no time of RFC 3339", field=where) from error
    results = []
    for index, one in enumerate(found.devices.results or ()):
        where = f"status.allocation.devices.results[{index}].consumedCapacity"
        results.append(
            model.AllocatedDevice(
                one.request, one.driver, one.pool, one.device,
                admin=one.admin_access,
                tolerations=_tolerations(one.tolerations),
                bound_on=tuple(one.binding_conditions or ()),
                failed_on=tuple(one.binding_failure_conditions or ()),
                share=one.share_id or "",
                consumed=tuple((key, _nanos(value, where)) for key, value in (one.consumed_capacity or {}).items()),
            )
        )  # fmt: skip
    terms = None if found.node_selector is None else _terms(found.node_selector)
    return model.Allocation(tuple(results), terms, at, tuple(found.devices.config or ()))


def _device(device: raw.KubeDevice, where: str) -> model.Device:
    return model.Device(
        name=device.name,
        attributes=tuple(
            sorted(
                (key, _attribute(one, f"{where}.attributes[{key}]")) for key, one in (device.attributes or {}).items()
            )
        ),
        capacity=tuple(
            sorted((key, _capacity(one, f"{where}.capacity[{key}]")) for key, one in (device.capacity or {}).items())
        ),
        taints=tuple(_taint(one) for one in device.taints or ()),
        consumes=tuple(
            (one.counter_set, _counters(one, f"{where}.consumesCounters")) for one in device.consumes_counters or ()
        ),
        shareable=bool(device.allow_multiple_allocations),
        binds_to_node=bool(device.binds_to_node),
        bound_on=None if device.binding_conditions is None else tuple(device.binding_conditions),
        failed_on=tuple(device.binding_failure_conditions or ()),
        reach=_reach(device.node_name, device.all_nodes, device.node_selector, f"{where}.nodeSelector"),
    )


_KINDS = ("int", "bool", "string", "version")


def _attribute(value: raw.AttributeValue, where: str) -> model.DeviceAttribute:
    one = (value.int_value, value.bool_value, value.string_value, value.version_value)
    many = (value.int_values, value.bool_values, value.string_values, value.version_values)
    for kind, found in zip(_KINDS, one, strict=True):
        if found is not None:
            return model.DeviceAttribute(kind, found)
    for kind, several in zip(_KINDS, many, strict=True):
        if several is not None:
            return model.DeviceAttribute(f"{kind}s", tuple(several))  # type: ignore[arg-type]
    raise ObjectError("has no value; give int, bool, string or version", field=where)


def _capacity(found: raw.CapacityValue, where: str) -> model.Capacity:
    policy = found.request_policy
    if policy is None:
        return model.Capacity(_nanos(found.value, where))
    ranged = policy.valid_range or raw.ValidRange()
    least, most, step = (
        None if one is None else _nanos(one, f"{where}.requestPolicy.validRange")
        for one in (ranged.min, ranged.max, ranged.step)
    )
    if step is not None and step <= 0:
        raise ObjectError("is not above 0; give a step of at least 1", field=f"{where}.requestPolicy.validRange.step")
    return model.Capacity(
        _nanos(found.value, where),
        model.RequestPolicy(
            default=None if policy.default is None else _nanos(policy.default, f"{where}.requestPolicy.default"),
            values=tuple(_nanos(one, f"{where}.requestPolicy.validValues") for one in policy.valid_values or ()),
            least=least, most=most, step=step, ranged=policy.valid_range is not None,
        ),
    )  # fmt: skip


def _counters(found: raw.CounterSet, where: str) -> model.Counters:
    counters = found.counters or {}
    return tuple(sorted((key, _nanos(one.value, f"{where}.counters[{key}]")) for key, one in counters.items()))


def _reach(node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None, where: str) -> model.Reach:
    terms = None if selector is None else _terms(selector)
    if terms is not None and len(terms) > 1:
        raise ObjectError(f"has {len(terms)} terms; give one", field=where)
    return model.Reach(node_name or "", bool(all_nodes), terms)


def _terms(selector: NodeSelector) -> tuple[SelectorTerm, ...]:
    return tuple(
        SelectorTerm(requirements_of(term.match_expressions), requirements_of(term.match_fields))
        for term in selector.node_selector_terms or ()
    )


def _taint(taint: raw.KubeDeviceTaint) -> model.DeviceTaint:
    return model.DeviceTaint(taint.key, taint.value or "", taint.effect)


def _tolerations(tolerations: Iterable[KubeToleration] | None) -> tuple[model.DeviceToleration, ...]:
    return tuple(
        model.DeviceToleration(t.key or "", t.operator or "", t.value or "", t.effect or "", t.toleration_seconds)
        for t in tolerations or ()
    )


def _nanos(quantity: str | float, where: str) -> int:
    try:
        return nanos_of(str(quantity))
    except ValueError as error:
        raise ObjectError(str(error), field=where) from error
