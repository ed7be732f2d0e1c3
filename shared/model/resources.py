"""Quantities as integers: CPU in milli-cores, everything else in whole units (bytes, pods, devices). Never floats.

Rounding follows Kubernetes' ``resource.Quantity``: ``MilliValue`` and ``Value`` round away from zero, and values
beyond int64 are capped (apimachinery ``pkg/api/resource/quantity.go``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from functools import lru_cache

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
GPU_MILLI = "conclave.io/gpu-milli"
"""Thousandths of a GPU device: below 1000 a share of one device, above it whole devices (multiples of 1000)."""

IMPLICIT_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""A request by this prefix is one for devices of that class (KEP-5004)."""

MILLI_PER_DEVICE = 1000
MAX_INT64 = 2**63 - 1

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_UNITS = tuple(reversed(_BINARY.items()))
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def is_extended(resource: str) -> bool:
    """Whether a device class may stand for the resource: it names one, or is what Kubernetes counts as an extended
    resource; but for thousandths of GPUs, which the mesh itself hands out."""
    if resource.startswith(IMPLICIT_DEVICE_CLASS):
        return True
    return (
        resource != GPU_MILLI
        and "/" in resource
        and "kubernetes.io/" not in resource
        and not resource.startswith("requests.")
    )


@lru_cache(maxsize=16384)
def parse_quantity(text: str, *, milli: bool = False) -> int:
    """The integer value of a quantity, in thousandths when ``milli``; rounded up (away from zero), capped to int64.

    Raises ``ValueError`` for text that is no quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 500m, 2, 1.5Gi or 1e3")
    whole, fraction = match["whole"], match["fraction"] or ""
    if not whole and not fraction:
        raise ValueError(f"{text!r} is not a quantity: it has no digits")
    suffix = match["suffix"] or ""
    exponent = -len(fraction) + (3 if milli else 0)
    numerator = int(whole + fraction)
    if suffix in _BINARY:
        numerator *= _BINARY[suffix]
    else:
        exponent += _DECIMAL[suffix] + int(match["exponent"] or 0)
    scale: int = 10 ** abs(exponent)
    value = numerator * scale if exponent >= 0 else -(-numerator // scale)
    value = min(value, MAX_INT64)
    return -value if match["sign"] == "-" else value


def parse_amount(name: str, quantity: str | float) -> int:
    """The amount of resource ``name``: milli-cores for cpu, whole units otherwise. Raises ``ValueError``."""
    return parse_quantity(quantity if type(quantity) is str else str(quantity), milli=name == CPU)


class Resources(dict[str, int]):
    """Amounts by resource name; absent means 0. Treated as immutable once shared."""

    def plus(self, other: Mapping[str, int]) -> Resources:
        """The sum, resource by resource."""
        total = Resources(self)
        for name, amount in other.items():
            total[name] = total.get(name, 0) + amount
        return total

    def minus(self, other: Mapping[str, int]) -> Resources:
        """The difference, resource by resource; may be negative."""
        rest = Resources(self)
        for name, amount in other.items():
            rest[name] = rest.get(name, 0) - amount
        return rest

    def at_least(self, other: Mapping[str, int]) -> Resources:
        """The greater of the two, resource by resource."""
        greater = Resources(self)
        for name, amount in other.items():
            if amount > greater.get(name, 0):
                greater[name] = amount
        return greater

    def fits_into(self, free: Mapping[str, int]) -> bool:
        """Whether every amount above zero is at most what is ``free``."""
        return all(amount <= free.get(name, 0) for name, amount in self.items() if amount > 0)


def total(parts: Iterable[Mapping[str, int]]) -> Resources:
    """The sum of many."""
    result = Resources()
    for part in parts:
        for name, amount in part.items():
            result[name] = result.get(name, 0) + amount
    return result


def quantity_text(resource: str, amount: int) -> str:
    """As objects of the API carry a quantity: ``1500m``, ``2``, ``64Mi``; exact."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if of_bytes(resource):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)


def amount_text(resource: str, amount: int) -> str:
    """As people read an amount, everywhere: cores, exact (``0.75``, ``1353.3``), bytes to a hundredth of their unit
    (``64Mi``, ``58.42Gi``), else the number. A Kubernetes quantity too."""
    return _text(resource, amount, ROUND_HALF_UP)


def at_most_text(resource: str, amount: int) -> str:
    """The same, never more than the amount: what one may ask for."""
    return _text(resource, amount, ROUND_FLOOR)


def at_least_text(resource: str, amount: int) -> str:
    """The same, never less: what is to be freed or added."""
    return _text(resource, amount, ROUND_CEILING)


def of_bytes(resource: str) -> bool:
    """Whether its amounts are bytes."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")


def _text(resource: str, amount: int, rounding: str) -> str:
    if resource == CPU:
        return _plain(Decimal(amount) / 1000)
    if not of_bytes(resource):
        return str(amount)
    unit, size = next(((name, of) for name, of in _UNITS if abs(amount) >= of), ("", 1))
    return _plain((Decimal(amount) / size).quantize(Decimal("0.01"), rounding)) + unit


def _plain(value: Decimal) -> str:
    """Without trailing zeros, and without an exponent."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
