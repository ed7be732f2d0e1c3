"""Server-sent events come in pieces of any size; what comes out is the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.operate.decisions import MAX_EVENT_BYTES, EventParser, StreamEvent

STREAM = b": hello\n\nevent: decision\ndata: {1}\n\nid: 7\ndata: a\r\ndata: b\n\nevent: empty\n\nretry: 5\ndata:x\n\n"
EVENTS = [StreamEvent("decision", "{1}"), StreamEvent("message", "a\nb"), StreamEvent("message", "x")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_the_pieces_do_not_matter(cuts: list[int]) -> None:
    parser = EventParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(edges)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


def test_an_event_without_end_is_refused_before_it_fills_the_memory() -> None:
    parser = EventParser()
    with pytest.raises(ValueError, match="longer"):
        list(parser.feed(b"data: " + b"x" * (MAX_EVENT_BYTES + 1)))
    line = b"data: " + b"x" * (MAX_EVENT_BYTES // 4) + b"\n"
    with pytest.raises(ValueError, match="longer"):
        list(EventParser().feed(line * 5))
