"""Faults that the server injects on purpose: delays, 429, 403, 409, 500, and replies that never come.

A plan is a list of rules, tried in order; the first whose method, path and probability fit decides. A rule with a
``count`` is used up. Pure: randomness comes in, so a seeded run repeats. It does not touch sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

from twin.registry.status import ApiError, internal, status, too_many_requests

Json = dict[str, Any]

KINDS = ("delay", "throttle", "forbid", "conflict", "error", "drop")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request: wait, then refuse with ``status``, or apply it and cut the connection."""

    delay_s: float = 0.0
    status: int = 0
    retry_after_s: int = 1
    drop: bool = False

    def error(self) -> ApiError:
        """The refusal of ``status`` 429, 403, 409 or 500: the request had no effect."""
        if self.status == 403:
            return ApiError(status(403, "Forbidden", "injected: not allowed", {}))
        if self.status == 409:
            return ApiError(status(409, "Conflict", "injected: the object has been modified; read it again", {}))
        if self.status == 429:
            return too_many_requests("too many requests, please try again later", self.retry_after_s)
        return internal("injected fault")


@dataclass(slots=True)
class FaultRule:
    """One rule. ``path`` is a regular expression searched in the URL path, ``method`` empty = any."""

    kind: str
    path: str = ""
    method: str = ""
    probability: float = 1.0
    count: int | None = None
    """How many times it applies; None = for ever."""
    delay_s: float = 0.0
    retry_after_s: int = 1
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: {self.kind!r} is none of {', '.join(KINDS)}")
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability: {self.probability} is not between 0 and 1")
        if self.delay_s < 0 or self.retry_after_s < 0 or (self.count is not None and self.count < 0):
            raise ValueError("delay_s, retry_after_s and count must not be negative")
        try:
            self.pattern = re.compile(self.path)
        except re.error as error:
            raise ValueError(f"path: {self.path!r} is no regular expression: {error}") from None

    def to_json(self) -> Json:
        """The rule as it is sent and read."""
        return {
            "kind": self.kind,
            "path": self.path,
            "method": self.method,
            "probability": self.probability,
            "count": self.count,
            "delay_s": self.delay_s,
            "retry_after_s": self.retry_after_s,
        }


_FIELDS: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "path": (str,),
    "method": (str,),
    "probability": (int, float),
    "count": (int, type(None)),
    "delay_s": (int, float),
    "retry_after_s": (int,),
}


class FaultPlan:
    """The rules in force."""

    def __init__(self, rules: list[FaultRule] | None = None, *, seed: int | None = None) -> None:
        """``seed``: decide with a generator of one's own instead of the server's."""
        self.rules: list[FaultRule] = rules if rules is not None else []
        self._rng = Random(seed) if seed is not None else None

    @staticmethod
    def parse(body: Any) -> FaultPlan:
        """``{"rules": [{...}], "seed": n}``; ``ValueError`` names the rule and the field."""
        if not isinstance(body, dict) or not isinstance(body.get("rules"), list):
            raise ValueError('expected an object with a list "rules"')
        unknown = set(body) - {"rules", "seed"}
        if unknown:
            raise ValueError(f"unknown field {min(unknown)!r}")
        seed = body.get("seed")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise ValueError("seed: expected an integer")
        return FaultPlan([_rule(entry, index) for index, entry in enumerate(body["rules"])], seed=seed)

    def replace(self, other: FaultPlan) -> None:
        """Take over another plan's rules and seed."""
        self.rules = other.rules
        self._rng = other._rng

    def decide(self, method: str, path: str, rng: Random) -> Fault | None:
        """The fault of one request, if any; uses up a counted rule. The plan's own path is never hit."""
        if path.startswith("/twin/"):
            return None
        for rule in self.rules:
            if (rule.method and rule.method != method) or rule.count == 0 or not rule.pattern.search(path):
                continue
            if rule.probability < 1.0 and (self._rng or rng).random() >= rule.probability:
                continue
            if rule.count is not None:
                rule.count -= 1
            return _fault(rule)
        return None


def _fault(rule: FaultRule) -> Fault:
    code = {"throttle": 429, "forbid": 403, "conflict": 409, "error": 500}.get(rule.kind, 0)
    return Fault(rule.delay_s, code, rule.retry_after_s, drop=rule.kind == "drop")


def _rule(entry: Any, index: int) -> FaultRule:
    where = f"rules[{index}]"
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected an object")
    for name, value in entry.items():
        types = _FIELDS.get(name)
        if types is None:
            raise ValueError(f"{where}: unknown field {name!r}")
        if not isinstance(value, types) or isinstance(value, bool):
            raise ValueError(f"{where}.{name}: wrong type {type(value).__name__}")
    if "kind" not in entry:
        raise ValueError(f"{where}.kind: required, one of {', '.join(KINDS)}")
    try:
        return FaultRule(**entry)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None
