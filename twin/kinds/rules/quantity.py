"""Kubernetes quantities: parsing, the exact canonical text, comparison.

Why: the API server prints quantities in canonical form (``1000m`` becomes ``1``, ``1.5Gi`` becomes ``1536Mi``) and
decides on their values. Amounts are Python integers in units of 1e-9, the finest that Kubernetes keeps; never floats.
Source: apimachinery ``pkg/api/resource/quantity.go`` and ``suffix.go``. It does not know which resources exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_ERROR = "unable to parse quantity's suffix"
NUMERIC_ERROR = "unable to parse numeric part of quantity"

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()} | {0: ""}
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)
_NANO = 10**9
_MAX = (2**63 - 1) * _NANO

DECIMAL_SI, BINARY_SI, DECIMAL_EXPONENT = "DecimalSI", "BinarySI", "DecimalExponent"


class QuantityError(ValueError):
    """The text is no quantity; the message is the API server's."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """``nanos``: the amount in units of 1e-9; ``text``: what the API server prints."""

    nanos: int
    style: str
    text: str

    @property
    def is_integer(self) -> bool:
        """Whole units: no milli part or finer."""
        return self.nanos % _NANO == 0


@lru_cache(maxsize=65536)
def parse(text: str) -> Quantity:
    """Read one quantity. Raises QuantityError."""
    if text == "0":
        return Quantity(0, DECIMAL_SI, "0")
    match = _NUMBER.fullmatch(text) if text else None
    if match is None:
        raise QuantityError(FORMAT_ERROR)
    sign, whole, dot, fraction, suffix = match.groups()
    digits = whole.lstrip("0") or "0"
    fraction = fraction or ""
    style, exponent = _interpret(suffix)
    if not whole and not fraction:
        if not dot:
            # a bare sign or suffix: Go's scanner calls the empty number zero at the end of the text, else a bad number
            if not suffix:
                return Quantity(0, DECIMAL_SI, "0")
            raise QuantityError(NUMERIC_ERROR)
        raise QuantityError(NUMERIC_ERROR)
    mantissa = int(digits + fraction)
    if style == BINARY_SI:
        nanos = _scaled(mantissa << exponent, _NANO, 10 ** len(fraction))
        nanos = min(nanos, _MAX)
        if 0 < nanos < _NANO:
            style = DECIMAL_SI
    else:
        power = exponent - len(fraction) + 9
        nanos = mantissa * 10**power if power >= 0 else _scaled(mantissa, 1, 10**-power)
    if sign == "-":
        nanos = -nanos
    if _reuses_text(digits, fraction, style, exponent, mantissa):
        return Quantity(nanos, style, text)
    return Quantity(nanos, style, _format(nanos, style))


def _interpret(suffix: str) -> tuple[str, int]:
    if suffix in _DECIMAL:
        return DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return BINARY_SI, _BINARY[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None or abs(int(match[1])) > 60:
        raise QuantityError(SUFFIX_ERROR)
    return DECIMAL_EXPONENT, int(match[1])


def _scaled(value: int, times: int, over: int) -> int:
    """Rounded up, as Kubernetes does: who asks for something gets something."""
    return -(-value * times // over)


def _reuses_text(digits: str, fraction: str, style: str, exponent: int, mantissa: int) -> bool:
    """The fast path of ParseQuantity keeps the given text when it is already canonical (Quantity.s)."""
    if style == BINARY_SI:
        precision = 15 - len(digits) - int(exponent * 0.3) - 1
        return not fraction and precision >= 0 and mantissa & 7 != 0
    shifted = digits + fraction
    scale = exponent - len(fraction)
    in_range = 18 - len(shifted) >= 0 and scale >= -9
    return in_range and scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"


def _format(nanos: int, style: str) -> str:
    if nanos == 0:
        return "0"
    if style == BINARY_SI and (abs(nanos) < 1024 * _NANO or nanos % _NANO):
        style = DECIMAL_SI
    if style == BINARY_SI:
        number, exponent = nanos // _NANO, 0
        while number % 1024 == 0 and exponent < 60:
            number //= 1024
            exponent += 10
        return f"{number}{_BINARY_SUFFIX[exponent]}"
    number, exponent = nanos, -9
    while number % 1000 == 0 and (exponent < 18 or style == DECIMAL_EXPONENT):
        number //= 1000
        exponent += 3
    if style == DECIMAL_EXPONENT:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIX[exponent]}"


@lru_cache(maxsize=65536)
def canonical(text: str) -> str:
    """The canonical text. Raises QuantityError."""
    return parse(text).text


@lru_cache(maxsize=65536)
def nanos(text: str) -> int:
    """The amount in units of 1e-9, of a text known to be valid."""
    return parse(text).nanos


@lru_cache(maxsize=16384)
def rounded_up_to_milli(text: str) -> str:
    """The text with anything below a thousandth rounded up (``0.0001`` becomes ``1m``), as v1 defaulting does."""
    quantity = parse(text)
    if quantity.nanos % 1_000_000 == 0:
        return quantity.text
    return _format(-(-quantity.nanos // 1_000_000) * 1_000_000, quantity.style)


def format_nanos(amount: int, like: str = "0") -> str:
    """The canonical text of a computed amount, in the style of ``like`` (Quantity.Add keeps the first one's style)."""
    return _format(amount, parse(like).style)
