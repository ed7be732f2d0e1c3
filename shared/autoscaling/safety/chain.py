"""The safeguards in their order, from a policy's answer to what may be written. Pure.

    whose number: policy, HPA's rule, an earlier decision > what must not fall > how fast it grows and shrinks, what
    there is room and money for > the operator's bounds

Those that hold raise to what there is, or to HPA's rule; those that cap never go below what there is: so neither undoes
the other. Bounds come last and win. ``without`` switches safeguards off: tests use it to see the checker fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from shared.autoscaling.safety import answer, bounds, capacity, holds, rates, readings
from shared.autoscaling.safety.scene import Draft, SafetyScene, SafetyVerdict

Safeguard = Callable[[SafetyScene, Draft], None]

SAFEGUARDS: tuple[tuple[str, Safeguard], ...] = (
    ("drift", answer.drift),
    ("fallback", answer.fallback),
    ("readings", readings.hold_or_rise),
    ("held", holds.held),
    ("foreign", holds.foreign),
    ("nobody-ready", holds.nobody_ready),
    ("budget", holds.budget),
    ("unfinished", answer.unfinished),
    ("rates", rates.rates),
    ("pending", capacity.pending),
    ("room", capacity.room),
    ("cost", bounds.cost),
    ("off", bounds.off),
    ("bounds", bounds.within),
)


def judge(scene: SafetyScene, *, without: Collection[str] = ()) -> SafetyVerdict:
    """What may be written for each service of the scene."""
    draft = answer.first(scene)
    for name, safeguard in SAFEGUARDS:
        if name not in without:
            safeguard(scene, draft)
    return SafetyVerdict(dict(draft.replicas), {name: tuple(notes) for name, notes in draft.notes.items()})
