"""Lists of seeds: ranges and numbers, each once."""

from __future__ import annotations

import pytest

from lab.evaluation.seeds import parse_seeds, spelled_seeds
from shared.errors import ConfigError


def test_ranges_and_numbers_keep_their_order() -> None:
    assert parse_seeds("42-44, 7,9-9") == (42, 43, 44, 7, 9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no seed"),
        ("42-", "no seed"),
        ("-3", "no seed"),
        ("four", "no seed"),
        ("51-42", "write 42-51"),
        ("42,42", "given twice"),
        ("0-2000000", "more than"),
        ("99999999999", "no seed"),
    ],
)
def test_other_text_is_refused_with_a_remedy(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_seeds(text)


@pytest.mark.parametrize("told", ["1000", "1000-1002", "1,3", "42-51,60", "7-8,5"])
def test_seeds_are_spelled_as_they_are_read(told: str) -> None:
    assert spelled_seeds(parse_seeds(told)) == told
