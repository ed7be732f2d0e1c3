"""Consumable capacity: how much of a device a request takes, and whether that is still there.

A request for less than a valid amount is rounded up: to ``min + n * step``, or to the next valid value. What is not
requested is the policy's default, and the whole value where there is none. Amounts are in nanos; ranges are reckoned in
whole units, as kube-scheduler does. Source: kube-scheduler 1.36 ``structured/internal/incubating``.

From 1.37 on a request may name a capacity with the driver's domain or without, whichever way the driver wrote it
(kubernetes#142202); before, only as written.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.model.devices import NANO, Capacity, Device, RequestPolicy
from shared.scheduling.state.releases import Release

Amounts = tuple[tuple[str, int], ...]
"""(capacity as the driver wrote it, nanos)."""


def consumption(driver: str, device: Device, requested: Amounts, release: Release) -> Amounts | None:
    """What the device would be asked for; None: it lacks a requested capacity, or may not be asked for that much."""
    asked = _asked(driver, device, requested, release)
    if asked is None:
        return None
    found = []
    for name, capacity in device.capacity:
        amount = _rounded(asked.get(name), capacity)
        if _violates(amount, capacity.policy):
            return None
        found.append((name, amount))
    return tuple(found)


def suffices(device: Device, wanted: Amounts, *used: Mapping[str, int]) -> bool:
    """Whether ``wanted`` is left beside what is ``used``."""
    limits = dict(device.capacity)
    return all(amount + sum(one.get(name, 0) for one in used) <= limits[name].value for name, amount in wanted)


def _asked(driver: str, device: Device, requested: Amounts, release: Release) -> dict[str, int] | None:
    if not requested:
        return {}
    names = {name for name, _ in device.capacity}
    found: dict[str, int] = {}
    for name, amount in requested:
        written = name
        if written not in names and release is not Release.V1_36:
            written = name.removeprefix(f"{driver}/") if "/" in name else f"{driver}/{name}"
        if written not in names or written in found:
            return None
        found[written] = amount
    return found


def _rounded(requested: int | None, capacity: Capacity) -> int:
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.ranged and policy.least is not None:
        if requested < policy.least:
            return policy.least
        if policy.step is None:
            return requested
        least, step = _whole(policy.least), _whole(policy.step)
        return (least + -(-(_whole(requested) - least) // step) * step) * NANO
    return next((value for value in policy.values if requested <= value), requested)


def _violates(amount: int, policy: RequestPolicy | None) -> bool:
    if policy is None or amount == policy.default:
        return False
    if policy.ranged:
        if policy.most is not None and amount > policy.most:
            return True
        return policy.step is not None and (_whole(amount) - _whole(policy.least or 0)) % _whole(policy.step) != 0
    return bool(policy.values) and amount not in policy.values


def _whole(nanos: int) -> int:
    """Rounded up, as ``Quantity.Value``."""
    return -(-nanos // NANO)
