"""How much of a device may be taken at once: the policy of a capacity.

Source: ``pkg/apis/resource/validation`` (validateRequestPolicy).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.devices.names import check_set
from twin.kinds.rules.quantity import format_nanos, nanos
from twin.registry.status import FieldError, forbidden_field, invalid, required

Json = dict[str, Any]

MOST_OPTIONS = 10
_WHOLE = 10**9


def check_capacity(capacity: Json, field: str, *, shared: bool) -> list[FieldError]:
    """``shared``: the device may be given to several claims; only then a policy makes sense."""
    policy, where = capacity.get("requestPolicy"), f"{field}.requestPolicy"
    if policy is None:
        return []
    if not shared:
        return [forbidden_field(where, "allowMultipleAllocations must be true")]
    options, limits = policy.get("validValues"), policy.get("validRange")
    if options and limits is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_field(where, text)]
    if not options and limits is None:
        return []
    default, kind = policy.get("default"), "validValues" if options else "validRange"
    if default is None:
        return [required(f"{where}.default", f"required when {kind} is defined")]
    if options:
        return _check_options(default, capacity["value"], options, f"{where}.validValues")
    return _check_range(default, capacity["value"], limits or {}, f"{where}.validRange")


def _check_options(default: str, most: str, options: list[str], field: str) -> list[FieldError]:
    found = [
        invalid(f"{field}[{index}]", one, "values must be sorted in ascending order")
        for index, one in enumerate(options)
        if index and nanos(options[index - 1]) > nanos(one)
    ]
    few = len(options) <= MOST_OPTIONS
    found += check_set(
        options,
        MOST_OPTIONS,
        lambda one, where: (
            [invalid(where, one, f"option is larger than capacity value: {most}")] if nanos(one) > nanos(most) else []
        ),
        lambda one: str(_whole(one)),
        field,
    )
    if not few or all(nanos(one) != nanos(default) for one in options):
        found.append(invalid(field, default, "default value is not valid according to the requestPolicy"))
    return found


def _check_range(default: str, most: str, limits: Json, field: str) -> list[FieldError]:
    low, high, step = limits.get("min"), limits.get("max"), limits.get("step")
    if low is None:
        return [required(f"{field}.min", "required when validRange is defined")]
    found: list[FieldError] = []
    if nanos(low) > nanos(most):
        found.append(invalid(f"{field}.min", low, f"min is larger than capacity value: {most}"))
    if nanos(default) < nanos(low):
        found.append(invalid(f"{field}.min", default, f"default is less than min: {low}"))
    if high is not None:
        if nanos(low) > nanos(high):
            found.append(invalid(f"{field}.max", low, f"min is larger than max: {high}"))
        if nanos(high) > nanos(most):
            found.append(invalid(f"{field}.max", high, f"max is larger than capacity value: {most}"))
        if nanos(default) > nanos(high):
            found.append(invalid(f"{field}.max", default, f"default is more than max: {high}"))
    if step is not None:
        found += _check_steps(default, most, (low, high, step), f"{field}.step")
    return found


def _check_steps(default: str, most: str, limits: tuple[str, str | None, str], field: str) -> list[FieldError]:
    low, high, step = limits
    if nanos(step) <= 0:
        # the real server divides by it and answers 500
        return [invalid(field, step, "must be greater than zero")]
    found: list[FieldError] = []
    if nanos(low) + nanos(step) > nanos(most):
        added = format_nanos(nanos(low) + nanos(step), low)
        found.append(invalid(field, step, f"one step {added} is larger than capacity value: {most}"))
    for value in (default, high):
        if value is not None and (_whole(value) - _whole(low)) % _whole(step):
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            found.append(invalid(field, value, text))
    return found


def _whole(amount: str) -> int:
    """In whole units, rounded up."""
    return -(-nanos(amount) // _WHOLE)
