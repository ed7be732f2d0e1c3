"""Texts of the API as numbers: quantities, times, durations. What cannot be read is refused by its field's name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime

from shared.errors import ObjectError
from shared.model.resources import parse_quantity

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs|ns)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DECIMAL = re.compile(r"([0-9]*)(?:\.([0-9]*))?([num]?)")
_EXPONENT = {"": 0, "m": -3, "u": -6, "n": -9}


def milli(quantity: str | float, field: str) -> int:
    """A quantity in thousandths, rounded up. Raises ``ObjectError``."""
    try:
        return parse_quantity(quantity if isinstance(quantity, str) else repr(quantity), milli=True)
    except ValueError as error:
        raise ObjectError(str(error), field=field) from error


def milli_units(amount: float) -> int:
    """A measured amount in thousandths, rounded up but for the last bits of the float (0.07 is 70), within an int64."""
    return min(math.ceil(round(amount * 1000, 6)), 2**63 - 1)


def milli_of(quantities: Mapping[str, str | float] | None, field: str) -> dict[str, int]:
    """Quantities by resource in thousandths; a negative one is refused. Raises ``ObjectError``."""
    found: dict[str, int] = {}
    for name, quantity in (quantities or {}).items():
        amount = found[name] = milli(quantity, f"{field}[{name}]")
        if amount < 0:
            raise ObjectError(f"{quantity!r} is negative; give an amount of 0 or more", field=f"{field}[{name}]")
    return found


def fraction(quantity: str | float, field: str) -> float:
    """A small quantity as a float, as ``Quantity.AsApproximateFloat64`` gives it: ``50m`` is 50 times 0.001.

    Raises ``ObjectError`` for anything but a number of 0 or more.
    """
    text = quantity if isinstance(quantity, str) else repr(quantity)
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise ObjectError(f"{quantity!r} is no share of 0 or more; give one such as 50m or 0.1", field=field)
    digits = (match[1] or "") + (match[2] or "")
    exponent = _EXPONENT[match[3]] - len(match[2] or "")
    return float(int(digits)) * float(f"1e{exponent}")


def seconds(time: str | None, field: str) -> float | None:
    """An RFC 3339 time in seconds since 1970; None without one. Raises ``ObjectError``."""
    if not time:
        return None
    try:
        found = datetime.fromisoformat(time)
        if found.tzinfo is None:
            raise ValueError("it has no time zone")
        return found.timestamp()
    except (ValueError, OverflowError) as error:
        raise ObjectError(
            f"{time[:40]!r} is no time ({error}); give one such as 2026-03-01T12:00:00Z", field=field
        ) from error


def needed_seconds(time: str, field: str) -> float:
    """As ``seconds``, where there must be one."""
    found = seconds(time, field)
    if found is None:
        raise ObjectError("is empty; give a time such as 2026-03-01T12:00:00Z", field=field)
    return found


def duration_s(text: str, field: str) -> float:
    """A duration as Go writes it, in seconds: ``5m0s``, ``30s``, ``1h30m``, ``0``. Raises ``ObjectError``."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ObjectError(f"{text[:40]!r} is no duration of 0 or more; give one such as 5m0s", field=field)
    return math.fsum(float(number) * _UNIT_S[unit] for number, unit in parts)
