"""Which switches decide that something is there: the shortest expression that is true of exactly those variants.

A variant is a number; a set of variants is a set of bits. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

Literal = tuple[str, int]
"""A Go-template expression, and the variants in which it is true."""
MOST_LITERALS = 4


class Undecided(Exception):
    """No expression of few switches tells these variants from the others."""


def literals(switches: Mapping[str, Sequence[str]], variants: Sequence[Mapping[str, str]]) -> list[Literal]:
    """What may be asked of each switch. One of "" and "on" is asked for its truth, another for each value."""
    found: list[Literal] = []
    every = (1 << len(variants)) - 1
    for path, values in switches.items():
        if set(values) == {"", "on"}:
            on = sum(1 << at for at, one in enumerate(variants) if one[path])
            found += [(f".Values.{path}", on), (f"not .Values.{path}", every & ~on)]
            continue
        for value in values:
            same = sum(1 << at for at, one in enumerate(variants) if one[path] == value)
            found += [(f'eq .Values.{path} "{value}"', same), (f'ne .Values.{path} "{value}"', every & ~same)]
    return found


def condition(present: int, within: int, asked: Sequence[Literal]) -> str:
    """The expression that is true in ``present`` and false in the rest of ``within``. ``Undecided``: there is none."""
    absent = within & ~present
    for terms in _conjunctions(present, absent, asked):
        return joined("and", terms)
    for one, two in _either(present, absent, asked):
        return joined("or", [joined("and", one), joined("and", two)])
    raise Undecided(f"{present.bit_count()} of {within.bit_count()} variants")


def joined(word: str, terms: Sequence[str]) -> str:
    """``and A (not B)``; one term stands alone."""
    if len(terms) == 1:
        return terms[0]
    return " ".join([word, *(f"({term})" if " " in term else term for term in terms)])


def _conjunctions(present: int, absent: int, asked: Sequence[Literal]) -> Iterator[list[str]]:
    """Of one literal, then of two, ...: true in all of ``present``, false in all of ``absent``."""
    holding = [(text, true) for text, true in asked if not present & ~true]
    for many in range(1, MOST_LITERALS + 1):
        for chosen in combinations(holding, many):
            left = absent
            for _, true in chosen:
                left &= true
            if not left:
                yield [text for text, _ in chosen]


def _either(present: int, absent: int, asked: Sequence[Literal]) -> Iterator[tuple[list[str], list[str]]]:
    """Two conjunctions that together are true in ``present``: the first begins with each literal that excludes most."""
    for text, true in asked:
        first, second = present & true, present & ~true
        if not first or not second:
            continue
        for one in _conjunctions(first, absent, asked):
            for two in _conjunctions(second, absent, asked):
                if text in one or len(one) == 1:
                    yield one, two
                break
            break
