"""The table of refusals: every code that the services raise has a row, and a row says what waiting does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared import errors
from shared.errors import ConclaveError, InvalidValue, StoreFenced
from shared.runtime.http import refusals
from shared.runtime.http.refusals import CODES, RequestRefused, refusal_of


def raised() -> Iterator[tuple[str, str]]:
    """(code, where) of each ``RequestRefused``, ``WireError`` and the binder's ``Refuse`` in the product."""
    for file in [file for house in ("lab", "services", "shared", "twin") for file in Path(house).rglob("*.py")]:
        text = file.read_text()
        if not any(name in text for name in ("RequestRefused", "WireError", "Refuse")):
            continue  # to parse every file costs seconds, and this one names none of them
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("RequestRefused", "WireError"):
                given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            elif node.func.id == "Refuse":
                given = node.args[1:2]
            else:
                continue
            for code in given:
                if isinstance(code, ast.Constant):
                    yield str(code.value), f"{file}:{node.lineno}"


def test_no_code_has_two_rows() -> None:
    """The later would count, and the page would say nothing of the other."""
    rows = [
        node.args[0].value
        for node in ast.walk(ast.parse(Path(refusals.__file__).read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "RefusalCode"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert sorted(map(str, rows)) == sorted(CODES)


def test_every_code_that_is_raised_has_a_row() -> None:
    found = list(raised())
    assert len(found) > 40
    assert not [(code, where) for code, where in found if code not in CODES]


def test_every_error_of_ours_is_answered_with_a_row_of_the_table() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ConclaveError)]
    for kind in kinds:
        error = kind.__new__(kind)
        told = refusal_of(error)
        assert told.code in CODES
        # a broken invariant ends the term: it is a fault of ours, whoever asked
        fault = kind in (ConclaveError, errors.InvalidTransition, errors.InvalidState)
        assert (told.code == "internal") is fault, kind


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreFenced("term 3 is over"), 503, "no_leader"),
        (InvalidValue("batch_units: 0"), 422, "invalid_value"),
        (errors.ConfigError("no candidate"), 409, "conflict"),
        (TimeoutError(), 503, "timeout"),
        (RuntimeError("password=hunter2"), 500, "internal"),
    ],
)
def test_what_has_no_code_of_its_own_gets_one(error: Exception, status: int, code: str) -> None:
    told = refusal_of(error)
    assert (told.status, told.code) == (status, code)
    assert "hunter2" not in str(told)


def test_only_where_waiting_helps_a_refusal_says_how_long() -> None:
    assert {row.status for row in CODES.values() if row.retry_s is not None} == {429, 503}
    assert all(row.retry_s is not None for row in CODES.values() if row.status in (429, 503))
    assert RequestRefused("busy", code="overloaded", retry_after_s=3.5).retry_after_s == 3.5


def test_a_code_without_a_row_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        RequestRefused("x", code="no_such_code")
