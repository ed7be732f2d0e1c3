"""Shares, exactly: dominant resource fairness, the share of what was borrowed, and weighted fair shares.

Why no floats: two queues whose shares are equal must compare as equal, or one of them wins for ever. A share is a
fraction; where many are compared, all are integers over one denominator (``ShareScale``).

Sources: Ghodsi et al., Dominant Resource Fairness, NSDI 2011 (section 4.1, weights 4.3); Kueue KEP-1714 (dominant
resource share of what is borrowed); KAI scheduler's time-less fair share (deserved first, then rounds by weight).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm

Amounts = Mapping[str, int]

NOTHING = Fraction(0)


def dominant_share(used: Amounts, totals: Amounts, weight: Fraction = Fraction(1)) -> Fraction:
    """The largest used / total over all resources, divided by the weight; resources that nobody has do not count."""
    parts = (Fraction(amount, totals[name]) for name, amount in used.items() if totals.get(name, 0) > 0)
    return max(parts, default=NOTHING) / weight


def with_half(used: int, asked: int) -> int:
    """Twice what a queue counts as using in the order: what it uses, and half of what its next unit asks for, at most
    as much again as it uses.

    Units are indivisible. Who goes by what is used before a unit overshoots by a whole one, which is more of a small
    part than of a large one. Half of the unit is without such a bias (Webster's method of apportionment). Who uses
    nothing comes first, whatever it asks for.
    """
    return 2 * used + min(asked, 2 * used)


def borrowed(used: Amounts, guaranteed: Amounts) -> dict[str, int]:
    """What is used above the guarantee; of a resource without a guarantee all of it."""
    over = ((name, amount - guaranteed.get(name, 0)) for name, amount in used.items())
    return {name: amount for name, amount in over if amount > 0}


def borrowed_share(used: Amounts, guaranteed: Amounts, lendable: Amounts, weight: Fraction = Fraction(1)) -> Fraction:
    """Kueue's dominant resource share: of what was borrowed, over what can be lent in the parent's tree."""
    return dominant_share(borrowed(used, guaranteed), lendable, weight)


@dataclass(slots=True)
class ShareScale:
    """Shares of all children of one queue as integers over one denominator, so that comparing costs no division.

    ``totals``: what shares are taken of, above zero each. A share of ``amount`` of ``name`` at ``weight`` is
    ``amount * factors(weight)[name]``, over a denominator that is the same for all.
    """

    totals: dict[str, int] = field(default_factory=dict)
    weights: int = 1
    _common: int = 1

    @classmethod
    def of(cls, totals: Amounts, weights: Iterable[Fraction]) -> ShareScale:
        """The scale for these totals and for children of these weights."""
        kept = {name: amount for name, amount in totals.items() if amount > 0}
        return cls(kept, lcm(*(weight.numerator for weight in weights)), lcm(*kept.values()))

    def factors(self, weight: Fraction) -> dict[str, int]:
        """By resource: what one of it is worth for a child of this weight."""
        by_weight = self.weights // weight.numerator * weight.denominator
        return {name: self._common // amount * by_weight for name, amount in self.totals.items()}

    @property
    def denominator(self) -> int:
        """What all shares are over."""
        return self.weights * self._common


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """One queue's part in sharing out one resource: what it is guaranteed, and what it could use at most."""

    guaranteed: int
    weight: Fraction
    request: int
    maximum: int | None = None


def fair_shares(total: int, claims: Mapping[str, ShareClaim]) -> dict[str, Fraction]:
    """What each may have of ``total``: its guarantee first (no more than it asks for), then the rest in rounds of
    remaining x weight / sum of weights, each capped by what it asks for, until nothing or nobody is left.

    Where the guarantees together exceed the total, they are cut in proportion. Exact; the rounds are at most as many as
    there are queues.
    """
    wanted = {
        name: Fraction(claim.request if claim.maximum is None else min(claim.request, claim.maximum))
        for name, claim in claims.items()
    }
    shares = {name: min(wanted[name], Fraction(claim.guaranteed)) for name, claim in claims.items()}
    promised = sum(shares.values(), NOTHING)
    if promised > total:
        return {name: share * total / promised for name, share in shares.items()}
    remaining = total - promised
    hungry = {name for name in claims if shares[name] < wanted[name]}
    while hungry and remaining > 0:
        weights = sum((claims[name].weight for name in hungry), NOTHING)
        part = {name: remaining * claims[name].weight / weights for name in hungry}
        full = {name for name in hungry if wanted[name] - shares[name] <= part[name]}
        # Those first who have enough by that: what they leave is shared out again. Where nobody has, it is over.
        for name in full or hungry:
            given = min(part[name], wanted[name] - shares[name])
            shares[name] += given
            remaining -= given
        hungry = hungry - full if full else set()
    return shares
