"""What is wrong with an organisation beyond single fields: roles that contradict, missions that nobody can reach, and
signals that nobody measures. Pure; only what is certain is told.

Conditions are boxes: for each signal an open interval within the values that it can have. A role applies in the boxes
that ``all`` and each of ``any`` make. A role whose every box lies in a box of one before it never has its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf

from shared.autoscaling.roles.organisation import Organisation, RoleCondition, ScalingRole

RANGES: Mapping[str, tuple[float, float]] = {
    "not_ready": (0.0, 1.0), "failing": (0.0, 1.0), "graph_pending": (0.0, 1.0), "graph_stuck": (0.0, 1.0),
    "trend": (-1.0, inf),
}  # fmt: skip
"""Values that a signal can have; all others are 0 or more."""
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
        elif not any(_meet(goal, box) for at in having for box in boxes[at]):
            roles = ", ".join(organisation.roles[at].name for at in having)
            found.append(
                f"{field}.goal: nobody can reach {mission.name}: {told} never holds while {roles} applies; "
                "correct the goal, or give it to another role"
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
    return low < high and low < most and high > least


def _within(one: Box, other: Box) -> bool:
    """Whether wherever ``one`` is, ``other`` is."""
    for signal, (low, high) in other.items():
        if signal not in one:
            return False
        own_low, own_high = one[signal]
        if own_low < low or own_high > high:
            return False
    return True


def _meet(one: Box, other: Box) -> bool:
    """Whether the two have a point in common."""
    for signal in one.keys() & other.keys():
        span = max(one[signal][0], other[signal][0]), min(one[signal][1], other[signal][1])
        if not _possible(signal, span):
            return False
    return True


def _text(role: ScalingRole) -> str:
    return ", ".join(one.text for one in (*role.when.all, *role.when.any))
