"""Work in parts: a generator that yields after each, so that whoever runs it may do something else between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def in_one_go(work: Generator[object, None, T]) -> T:
    """All parts of the work, one after the other."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found
