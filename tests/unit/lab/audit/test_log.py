"""A malformed audit file names the line and the remedy."""

from __future__ import annotations

import pytest

from lab.audit.log import read_entries
from shared.errors import ConfigError
from tests.unit.lab.audit.audit_history import History


def lines() -> list[bytes]:
    return History().node().pod().bind().lines


def error_of(content: list[bytes]) -> str:
    with pytest.raises(ConfigError) as caught:
        list(read_entries(content, "a.jsonl"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_file_is_read_in_order():
    assert [entry.verb for entry in read_entries(lines(), "a.jsonl")] == ["create", "create", "bind"]


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (lambda good: [good[0], b"nonsense\n", good[2]], 2, "one JSON object"),
        (lambda good: [*good[:2], good[2][:40]], 3, "cut"),
        (lambda good: [good[0], good[0]], 2, "in the order"),
        (lambda good: [good[0].replace(b'"create"', b'"levitate"')], 1, "verb"),
        (lambda good: [good[0].replace(b'"rv"', b'"revision"')], 1, "rv"),
        (lambda good: [good[1].replace(b"uid-p1", b"").replace(b'"-1001"', b'""')], 1, "uid"),
        (lambda good: [good[0].replace(b'"name": "n1", "user"', b'"name": "n2", "user"')], 1, "name"),
        (lambda good: [b"\xff\xfe\n"], 1, "one JSON object"),
        (lambda good: [], 1, "empty"),
    ],
)
def test_a_malformed_line_is_named(change, line, words):
    message = error_of(change(lines()))
    assert f"a.jsonl, line {line}" in message
    assert words in message
