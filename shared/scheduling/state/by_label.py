"""Things that select pods, found by a label that their selector asks for.

A pod is held against those alone that ask for one of its own labels, however many others there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from shared.model.terms.labels import LabelSelector

Label = tuple[str, str]
T = TypeVar("T")


def asked_label(selector: LabelSelector | None) -> Label | None:
    """One label that every pod which the selector selects has; None: no one label."""
    for requirement in selector.requirements if selector is not None else ():
        if requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None


class ByLabel(Generic[T]):
    """Values by key, each with the label that its selector asks for."""

    def __init__(self) -> None:
        self._there: dict[Label | None, dict[Hashable, T]] = {}

    def put(self, label: Label | None, key: Hashable, value: T) -> None:
        """One more, or another in its place."""
        self._there.setdefault(label, {})[key] = value

    def drop(self, label: Label | None, key: Hashable) -> None:
        """One fewer; an unknown one is fine."""
        there = self._there.get(label)
        if there is not None and there.pop(key, None) is not None and not there:
            del self._there[label]

    def among(self, labels: Mapping[str, str]) -> Iterator[T]:
        """All that may select a pod with these labels: whether they do, their selectors say."""
        if None in self._there:
            yield from self._there[None].values()
        for label in labels.items():
            if label in self._there:
                yield from self._there[label].values()

    def asking(self, label: Label) -> Iterator[T]:
        """Those that ask for this one."""
        yield from self._there.get(label, {}).values()
