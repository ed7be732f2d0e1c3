"""``matchAttribute`` and ``distinctAttribute``: what the devices of one claim have in common, or each for itself.

A constraint is told of every device that is chosen (``add``, which may refuse it) and of every one that is given back
(``remove``). A value compares with values of its own type alone; a list is the set of its items: match keeps an
intersection, distinct keeps devices disjoint.

1.36 remembers of ``distinctAttribute`` one value per request, the last (mended by kubernetes#140600): three devices of
one request may be a, b, a, and after backtracking even a, a.

Source: kube-scheduler 1.36 ``structured/internal/incubating``; experimental for lists.
"""

from __future__ import annotations

from typing import Protocol

from shared.model.devices import AttributeConstraint, Device
from shared.scheduling.state.releases import Release

Values = frozenset[tuple[str, int | bool | str]]


class AllocationConstraint(Protocol):
    """``request`` and ``alternative`` ("" for none) are of the request that the device is for."""

    @property
    def attribute(self) -> str:
        """Whose values it wants to be given."""
        ...

    def add(self, request: str, alternative: str, values: Values | None) -> bool:
        """Count a device with these values (None: it lacks the attribute); False: it may not be chosen, and is not
        counted."""
        ...

    def remove(self, request: str, alternative: str) -> None:
        """Take back the last one that was added."""
        ...


def constraint_of(spec: AttributeConstraint, release: Release) -> AllocationConstraint:
    """The constraint, with no device counted."""
    if not spec.distinct:
        return _Match(spec)
    return _DistinctLast(spec) if release is Release.V1_36 else _Distinct(spec)


def values_of(name: str, driver: str, device: Device) -> Values | None:
    """The values of an attribute; None: the device lacks it. A name without a domain is in the driver's."""
    for key, attribute in device.attributes:
        if key == name or ("/" not in key and name == f"{driver}/{key}"):
            kind = attribute.kind.removesuffix("s")
            items = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
            return frozenset((kind, one) for one in items)
    return None


def concerns(spec: AttributeConstraint, request: str, alternative: str) -> bool:
    """Whether devices of a request, or of this alternative of it, are among those that the constraint compares."""
    if not spec.requests or request in spec.requests:
        return True
    return bool(alternative) and f"{request}/{alternative}" in spec.requests


class _Of:
    def __init__(self, spec: AttributeConstraint) -> None:
        self.attribute, self._spec = spec.attribute, spec

    def _concerns(self, request: str, alternative: str) -> bool:
        return concerns(self._spec, request, alternative)


class _Match(_Of):
    """``_common``: what all have in common, after each device in turn."""

    def __init__(self, spec: AttributeConstraint) -> None:
        super().__init__(spec)
        self._common: list[Values] = []

    def add(self, request: str, alternative: str, values: Values | None) -> bool:
        if not self._concerns(request, alternative):
            return True
        if values is None:
            return False
        common = values if not self._common else values & self._common[-1]
        if not common:
            return False
        self._common.append(common)
        return True

    def remove(self, request: str, alternative: str) -> None:
        if self._concerns(request, alternative):
            self._common.pop()


class _Distinct(_Of):
    def __init__(self, spec: AttributeConstraint) -> None:
        super().__init__(spec)
        self._taken: list[Values] = []
        self._all: set[tuple[str, int | bool | str]] = set()

    def add(self, request: str, alternative: str, values: Values | None) -> bool:
        if not self._concerns(request, alternative):
            return True
        if values is None or not self._all.isdisjoint(values):
            return False
        self._taken.append(values)
        self._all |= values
        return True

    def remove(self, request: str, alternative: str) -> None:
        if self._concerns(request, alternative):
            self._all -= self._taken.pop()


class _DistinctLast(_Of):
    """As 1.36 does it: a device may be compared with fewer values than there are devices."""

    def __init__(self, spec: AttributeConstraint) -> None:
        super().__init__(spec)
        self._last: dict[str, Values] = {}
        self._count = 0

    def add(self, request: str, alternative: str, values: Values | None) -> bool:
        if not self._concerns(request, alternative):
            return True
        if values is None or (self._count and any(values & taken for taken in self._last.values())):
            return False
        self._last[request] = values
        self._count += 1
        return True

    def remove(self, request: str, alternative: str) -> None:
        if self._concerns(request, alternative):
            self._last.pop(request, None)
            self._count -= 1
