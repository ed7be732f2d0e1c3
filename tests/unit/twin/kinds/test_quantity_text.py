"""Quantities are printed as Kubernetes prints them, and compared exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.kinds.rules.quantity import QuantityError, canonical, format_nanos, nanos, parse, rounded_up_to_milli


@pytest.mark.parametrize(
    ("given_text", "printed"),
    [
        ("1000m", "1"), ("1024Mi", "1Gi"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("1e9", "1e9"), ("1000000", "1M"),
        ("1000Ki", "1000Ki"), ("100m", "100m"), ("12e6", "12e6"), ("1E", "1E"), (".5", "500m"), ("0.1Ki", "102400m"),
        ("1024", "1024"), ("1000", "1k"), ("-0.5", "-500m"), ("00", "0"), ("0Gi", "0"), ("3.5M", "3500k"),
        ("0.0000000001", "1n"), ("1Mi", "1Mi"), ("1048576Ki", "1Gi"),
    ],
)  # fmt: skip
def test_text_is_canonical(given_text: str, printed: str) -> None:
    assert canonical(given_text) == printed


@pytest.mark.parametrize("text", ["1x", "", "abc", "1i", "--1", "1e", ".", " 1", "1 ", "1Kii", "0x1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


def test_amounts_below_a_thousandth_are_rounded_up() -> None:
    assert rounded_up_to_milli("0.0001") == "1m"
    assert rounded_up_to_milli("1500u") == "2m"
    assert rounded_up_to_milli("250m") == "250m"


@given(st.integers(min_value=1, max_value=10**15), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_text_keeps_the_amount_and_is_stable(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    printed = canonical(text)
    assert nanos(printed) == nanos(text) or nanos(text) > 2**63 * 10**9
    assert canonical(printed) == printed


@given(st.integers(min_value=-(10**27), max_value=10**27))
def test_computed_amounts_are_printed_exactly(amount: int) -> None:
    assert nanos(format_nanos(amount)) == amount
