"""Quantities become integers as Kubernetes rounds them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.resources import (
    MAX_INT64,
    Resources,
    at_least_text,
    at_most_text,
    parse_amount,
    parse_quantity,
    quantity_text,
)


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [
        pytest.param("cpu", "500m", 500, id="milli"),
        pytest.param("cpu", "0.5", 500, id="fraction"),
        pytest.param("cpu", "1500u", 2, id="micro rounds up"),
        pytest.param("cpu", "2", 2000, id="cores"),
        pytest.param("memory", "1Gi", 1 << 30, id="binary"),
        pytest.param("memory", "1.5Gi", 3 << 29, id="binary fraction"),
        pytest.param("memory", "500M", 500_000_000, id="decimal"),
        pytest.param("memory", "1e3", 1000, id="exponent"),
        pytest.param("memory", "1E", 10**18, id="exa"),
        pytest.param("memory", "1E2", 100, id="upper-case exponent"),
        pytest.param("memory", "100m", 1, id="milli bytes round up"),
        pytest.param("memory", "9Ei", MAX_INT64, id="capped"),
        pytest.param("pods", 110, 110, id="bare number"),
        pytest.param("memory", "-1", -1, id="negative"),
    ],
)
def test_amount_is_exact_and_rounded_up(name: str, text: str | int, amount: int) -> None:
    assert parse_amount(name, text) == amount


@pytest.mark.parametrize("text", ["", "m", "abc", "1.2.3", "1 Gi", "1KI", "0x10", "1e", "--1", "."])
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


@given(st.integers(0, 10**12), st.sampled_from(["", "k", "M", "Ki", "Mi", "m", "u", "n"]))
def test_whole_numbers_round_away_from_zero(number: int, suffix: str) -> None:
    tenth = {"m": 3, "u": 6, "n": 9}.get(suffix, 0)
    scale = {"k": 1000, "M": 10**6, "Ki": 1024, "Mi": 1 << 20}.get(suffix, 1)
    exact = Fraction(number * scale, 10**tenth)
    value = parse_quantity(f"{number}{suffix}")
    assert value == -(-exact.numerator // exact.denominator)


def test_only_amounts_above_zero_need_room() -> None:
    assert Resources(cpu=0, memory=5).fits_into({"memory": 5})
    assert not Resources(cpu=1).fits_into({"memory": 5})


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 10**14), st.integers(1, 10**9))
def test_what_is_too_much_never_reads_as_what_there_is(name: str, has: int, more: int) -> None:
    assert at_least_text(name, has + more) != at_most_text(name, has)
    assert parse_amount(name, at_least_text(name, has)) >= has >= parse_amount(name, at_most_text(name, has)) - 1


def test_objects_carry_quantities_as_kubernetes_writes_them() -> None:
    assert [quantity_text("cpu", amount) for amount in (750, 2000)] == ["750m", "2"]
    assert [quantity_text("memory", amount) for amount in (1536 * 2**20, 1000)] == ["1536Mi", "1000"]
