"""When a job that does not exist would start, and whom it would displace, in words and numbers for people. Pure.

The queues are played forward on a copy (``shared/scheduling/queues/simulate.py``), with all nodes as one pool; beside
it ``fits`` says how many of the members the nodes would really take as they are now.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from shared.model.resources import PODS, parse_amount

Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """So many members, each of which requests this; ``min_count`` of them run at once, or none."""

    queue: str
    namespace: str
    members: int
    min_count: int
    requests: Amounts
    priority: int = 0

    @property
    def each(self) -> Amounts:
        """What one member asks for, its place among pods included."""
        return tuple(sorted((*self.requests, (PODS, 1))))

    @property
    def asks(self) -> Amounts:
        """What must be free at once for it to start."""
        return tuple((name, amount * self.min_count) for name, amount in self.each)


class Displaced(Struct, frozen=True, kw_only=True):
    """A pod that would be evicted; ``queue``: whose quota it counts against."""

    pod: str
    node: str
    queue: str
    priority: int


class Simulated(Struct, frozen=True, kw_only=True):
    """``starts_in_s``: 0: at once; None: nobody knows, ``reason`` says why. ``ahead``: units that go before it;
    ``fits``: members that the nodes would take as they are; ``lets``: those that the queue's limits have room for now;
    ``blocked``: the limit that holds it back now;
    ``displaced``: who would be evicted for it. As things stand: what is free may be taken a moment later."""

    queue: str
    starts_in_s: float | None
    summary: str
    members: int
    min_count: int
    fits: int
    lets: int
    ahead: int
    reason: str
    blocked: str
    displaced: list[Displaced]


def requests_of(text: str) -> Amounts:
    """``cpu=2,memory=4Gi`` as amounts, sorted. Raises ``ValueError`` that names what is wrong and how it is written."""
    found: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, quantity = pair.partition("=")
        if not (name and equals and quantity):
            raise ValueError(f"requests: {pair!r} is not NAME=AMOUNT; write cpu=2 or memory=4Gi")
        try:
            amount = parse_amount(name, quantity)
        except ValueError as error:
            raise ValueError(f"requests: {name}: {error}") from None
        if amount < 0:
            raise ValueError(f"requests: {pair!r} is below zero; ask for nothing, or for more")
        found[name] = amount
    return tuple(sorted((name, amount) for name, amount in found.items() if amount))


def summary_of(
    job: SimulatedJob,
    starts_in_s: float | None,
    *,
    fits: int,
    lets: int,
    ahead: int,
    displaced: int,
    reason: str,
    never: bool = False,
) -> str:
    """One sentence. ``never``: waiting alone does not help."""
    others = f", after {ahead} unit{'s' if ahead != 1 else ''} ahead of it" if ahead else ""
    if never:
        return f"it would never start as things are: {reason}"
    if starts_in_s is None:
        return f"nobody can say when it would start: {reason}"
    if displaced:
        word = "pod has" if displaced == 1 else "pods have"
        return f"it would start in {starts_in_s:g} s{others}, once {displaced} {word} been evicted for it"
    if starts_in_s > 0:
        return f"it would start in {starts_in_s:g} s{others}"
    if fits < job.min_count:
        return f"its queue lets it go{others}, but {fits} of {job.min_count} members fit on the nodes as they are"
    if lets < job.members:
        of = f"{lets} of its {job.members} members; the limits of its queue have no room for more now"
        return f"it would start at once{others}, with {of}"
    return f"it would start at once{others}"
