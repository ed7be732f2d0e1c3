"""What is wrong with an organisation beyond single fields: roles that contradict, missions that nobody can reach, and
signals that nobody measures. Pure; only what is certain is told.

Conditions are boxes: for each signal an open interval within the values that it can have. A role applies in the boxes
that ``all`` and each of ``any`` make. A role whose every box lies in a box of one before it never has its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import floor, inf, isfinite

from shared.autoscaling.roles.organisation import Organisation, RoleCondition, ScalingRole

RANGES: Mapping[str, tuple[float, float]] = {
    "not_ready": (-inf, 1.0), "failing": (0.0, 1.0), "trend": (-1.0, inf),
}  # fmt: skip
"""Values that a signal can have; all others are 0 or more. More may be Ready than are asked for, while it shrinks."""
WHOLE = frozenset({"stuck", "pending"})
"""Signals that are counts of pods."""
READINGS: Mapping[str, frozenset[str]] = {
    "need_of_ready": frozenset({"arrivals", "served"}), "trend": frozenset({"arrivals"}),
    "inflation": frozenset({"arrivals", "served"}), "waiting_s": frozenset({"queue"}),
    "failing": frozenset({"failed"}), "utilisation": frozenset({"cpu"}), "latency": frozenset({"latency"}),
}  # fmt: skip
"""What must be measured of a service for a signal to mean anything; the others are told by its pods."""
Box = Mapping[str, tuple[float, float]]


def faults(organisation: Organisation) -> list[str]:
    """One line for each, with field and remedy; nothing: all roles have their turn and all missions can be reached."""
    found: list[str] = []
    boxes = [boxes_of(role) for role in organisation.roles]
    for number, role in enumerate(organisation.roles):
        field = f"roles[{number}]"
        if not boxes[number]:
            found.append(f"{field}.when: {role.name} can never apply: {_text(role)} exclude each other; correct one")
            continue
        for before in range(number):
            if boxes[before] and all(any(_within(one, other) for other in boxes[before]) for one in boxes[number]):
                first = organisation.roles[before]
                steps = ", ".join(map(str, first.allow))
                found.append(
                    f"{field}: {role.name} contradicts roles[{before}], {first.name}: whenever it applies so does "
                    f"that, which comes first and allows {steps}; change its condition, or put it before"
                )
                break
        known = {mission.name for mission in organisation.missions}
        found += [
            f"{field}.missions: {name!r} is no mission; choose one of {', '.join(sorted(known)) or 'none: add it'}"
            for name in role.missions
            if name not in known
        ]
    for number, mission in enumerate(organisation.missions):
        having = [at for at, role in enumerate(organisation.roles) if mission.name in role.missions]
        field, goal = f"missions[{number}]", _joined(mission.goal)
        told = " and ".join(one.text for one in mission.goal)
        if not having:
            found.append(f"{field}: nobody has {mission.name}; name it under missions of a role")
        elif goal is None:
            found.append(f"{field}.goal: nobody can reach {mission.name}: {told} can never hold; correct it")
        elif not any(_reached(goal, box, boxes[:at]) for at in having for box in boxes[at]):
            roles = ", ".join(organisation.roles[at].name for at in having)
            found.append(
                f"{field}.goal: nobody can reach {mission.name}: {told} never holds while {roles} applies "
                "and has its turn; correct the goal, or give it to another role"
            )
    return found


def unmeasured(organisation: Organisation, measured: Mapping[str, Collection[str]]) -> list[str]:
    """One line for each signal of a condition, mission or goal for which a service lacks a source. ``measured``: names
    of readings by service."""
    found: list[str] = []
    for field, signal in _named(organisation):
        for service, readings in measured.items():
            missing = sorted(READINGS.get(signal, frozenset()) - set(readings))
            if missing:
                found.append(
                    f"{field}: {signal} needs a source of {' and '.join(missing)}, and service {service} has none; "
                    f"add it to the metrics of {service}, or leave {signal} out"
                )
    return found


def readings_of(organisation: Organisation) -> frozenset[str]:
    """Every reading that some signal of it needs."""
    return frozenset().union(*(READINGS.get(signal, frozenset()) for _, signal in _named(organisation)))


def boxes_of(role: ScalingRole) -> list[Box]:
    """Where a role applies; empty: nowhere."""
    parts = [(*role.when.all, one) for one in role.when.any] or [role.when.all]
    return [box for part in parts if (box := _joined(part)) is not None]


def _named(organisation: Organisation) -> Iterable[tuple[str, str]]:
    """(field, signal) of whatever names one."""
    for number, role in enumerate(organisation.roles):
        for part in ("all", "any"):
            for at, one in enumerate(getattr(role.when, part)):
                yield f"roles[{number}].when.{part}[{at}].signal", one.signal
        for name in role.mission:
            yield f"roles[{number}].mission.{name}", name
    for number, mission in enumerate(organisation.missions):
        for at, one in enumerate(mission.goal):
            yield f"missions[{number}].goal[{at}].signal", one.signal


def _joined(conditions: Iterable[RoleCondition]) -> Box | None:
    """The box in which all hold; None: they exclude each other, or a signal never has such a value."""
    box: dict[str, tuple[float, float]] = {}
    for one in conditions:
        low, high = box.get(one.signal, (-inf, inf))
        box[one.signal] = (
            low if one.above is None else max(low, one.above), high if one.below is None else min(high, one.below)
        )  # fmt: skip
    return box if all(_possible(signal, span) for signal, span in box.items()) else None


def _possible(signal: str, span: tuple[float, float]) -> bool:
    """Whether a value of the signal lies strictly between the two."""
    least, most = RANGES.get(signal, (0.0, inf))
    low, high = span
    if signal in WHOLE and isfinite(low) and isfinite(high) and floor(low) + 1 >= high:
        return False
    return low < high and low < most and high > least


def _within(one: Box, other: Box) -> bool:
    """Whether wherever ``one`` is, ``other`` is."""
    for signal, (low, high) in other.items():
        least, most = RANGES.get(signal, (0.0, inf))
        own_low, own_high = one.get(signal, (-inf, inf))
        # the range's ends are values, those of an interval are not
        if (own_low < low and low >= least) or (own_high > high and high <= most):
            return False
    return True


def _reached(goal: Box, box: Box, before: Iterable[Iterable[Box]]) -> bool:
    """Whether the goal can hold in a role's box where no role before it has its turn."""
    both = {**goal, **box}
    for signal in goal.keys() & box.keys():
        both[signal] = max(goal[signal][0], box[signal][0]), min(goal[signal][1], box[signal][1])
    if not all(_possible(signal, span) for signal, span in both.items()):
        return False
    return not any(_within(both, other) for boxes in before for other in boxes)


def _text(role: ScalingRole) -> str:
    return ", ".join(one.text for one in (*role.when.all, *role.when.any))
