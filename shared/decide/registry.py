"""Policies by name; a policy's module is imported when it is asked for: some bring heavy libraries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from shared.errors import ConfigError


@dataclass(frozen=True)
class PolicyEntry:
    """A policy is made by ``where``, as ``module:maker``."""

    where: str
    needs: frozenset[str] = frozenset()
    """What it cannot decide without; each word is its domain's."""
    traits: frozenset[str] = frozenset()
    """What else tells it apart; each word is its domain's."""

    def maker(self) -> Any:
        """The class or function, imported."""
        module, _, kind = self.where.partition(":")
        return getattr(import_module(module), kind)


class PolicyRegistry(Mapping[str, PolicyEntry]):
    """The policies of a domain. ``of``: what they decide about, in words."""

    def __init__(self, of: str, entries: Mapping[str, PolicyEntry]) -> None:
        self._of = of
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> PolicyEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, name: str) -> PolicyEntry:
        """The policy's. Raises ``ConfigError`` naming the policies there are."""
        found = self._entries.get(name)
        if found is None:
            known = ", ".join(sorted(self._entries))
            raise ConfigError(f"policy: {name!r} is not known for {self._of}; choose one of {known}")
        return found
