"""The version that processes tell each other is the package's, and majors decide who works with whom."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from shared.version import CONCLAVE_VERSION, compatible


def test_the_version_is_that_of_the_package():
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert pyproject["project"]["version"] == CONCLAVE_VERSION


@pytest.mark.parametrize(
    ("one", "other", "works"),
    [("0.1.0", "0.9.3", True), ("0.1.0", "1.0.0", False), ("1.0.0", "10.0.0", False), ("", "3.0.0", True)],
)
def test_majors_must_agree_and_silence_is_taken_as_it_is(one: str, other: str, works: bool):
    assert compatible(one, other) is compatible(other, one) is works
