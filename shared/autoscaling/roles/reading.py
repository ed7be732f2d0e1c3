"""The organisation of a file: read, checked field by field, and refused where it contradicts itself (``checking``)."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from pathlib import Path

import msgspec
import yaml

from shared.autoscaling.networks.features import STEPS
from shared.autoscaling.roles.checking import faults
from shared.autoscaling.roles.organisation import BINDINGS, NOBODY, NONE, SIGNALS, Organisation, RoleCondition
from shared.errors import ConfigError

SHIPPED = Path(__file__).with_name("karma.yaml")


def parse_organisation(text: str, source: str = "roles") -> Organisation:
    """The organisation of a YAML text. Raises ``ConfigError`` naming the field and the remedy."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{source}{where}: no YAML ({getattr(error, 'problem', '')}); fix the file") from None
    return organisation_from(document, source)


def organisation_from(document: object, source: str = "roles") -> Organisation:
    """The organisation of a document, of a file or a weights' card. ``ConfigError`` as ``parse_organisation``."""
    try:
        found = msgspec.convert(document, Organisation)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}; see docs/autoscaling-twin.md") from None
    for field in ("bonus", "penalty"):
        value = getattr(found, field)
        if not isfinite(value) or not 0 <= value <= 10:
            raise ConfigError(f"{source}: {field}: {value} is out of range; give 0 to 10")
    _check_steps(found.otherwise, f"{source}: otherwise")
    names: set[str] = set()
    for number, role in enumerate(found.roles):
        field = f"{source}: roles[{number}]"
        if role.name in names or not role.name:
            raise ConfigError(f"{field}.name: {role.name!r} is empty or there twice; give each role its own")
        names.add(role.name)
        _check_steps(role.allow, f"{field}.allow")
        if not role.when.all and not role.when.any:
            raise ConfigError(f"{field}.when: no condition, so no later role would ever apply; use `otherwise`")
        for part in ("all", "any"):
            for at, condition in enumerate(getattr(role.when, part)):
                _check_condition(condition, f"{field}.when.{part}[{at}]")
        for name, weight in role.mission.items():
            _check_signal(name, f"{field}.mission.{name}")
            if not isfinite(weight) or abs(weight) > 10:
                raise ConfigError(f"{field}.mission.{name}: {weight} is out of range; give -10 to 10")
    for number, mission in enumerate(found.missions):
        field = f"{source}: missions[{number}]"
        if not mission.name or mission.name in {one.name for one in found.missions[:number]}:
            raise ConfigError(f"{field}.name: {mission.name!r} is empty or there twice; give each mission its own")
        if not mission.goal:
            raise ConfigError(f"{field}.goal: no condition; say what is to be reached")
        for at, condition in enumerate(mission.goal):
            _check_condition(condition, f"{field}.goal[{at}]")
        if not isfinite(mission.reward) or not 0 < mission.reward <= 10:
            raise ConfigError(f"{field}.reward: {mission.reward} is out of range; give more than 0, at most 10")
    for fault in faults(found):
        raise ConfigError(f"{source}: {fault}")
    return found


@lru_cache(maxsize=1)
def karma_roles() -> Organisation:
    """The four roles of the paper, as they are shipped."""
    return parse_organisation(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name)


def organisation_of(binding: str, *, missions: bool | None = None, roles: Organisation | None = None) -> Organisation:
    """The shipped roles, or those of a user, bound ``hard`` or ``soft``; ``none``: they leave every step, at no price.

    ``missions``: whether theirs are rewarded; None: where the roles bind. Neither: nobody's roles.
    """
    if binding not in BINDINGS:
        raise ConfigError(f"binding: {binding!r} is not known; choose {', '.join(BINDINGS)}")
    rewarded = binding != NONE if missions is None else missions
    own = roles or karma_roles()
    if binding == NONE:
        each = tuple(msgspec.structs.replace(role, binding=None) for role in own.roles)
        free = msgspec.structs.replace(own, roles=each, binding="soft", bonus=0.0, penalty=0.0)
        return free if rewarded else NOBODY
    found = msgspec.structs.replace(own, binding=binding)
    if rewarded:
        return found
    return msgspec.structs.replace(
        found, roles=tuple(msgspec.structs.replace(role, mission={}, missions=()) for role in found.roles), missions=()
    )


def _check_steps(steps: tuple[int, ...], field: str) -> None:
    if not steps:
        raise ConfigError(f"{field}: it allows nothing; give at least one of {', '.join(map(str, STEPS))}")
    for step in steps:
        if step not in STEPS:
            raise ConfigError(f"{field}: {step} is no step; give some of {', '.join(map(str, STEPS))}")


def _check_condition(condition: RoleCondition, field: str) -> None:
    _check_signal(condition.signal, f"{field}.signal")
    low, high = condition.above, condition.below
    if low is None and high is None:
        raise ConfigError(f"{field}: neither above nor below; give one of them")
    if any(bound is not None and not isfinite(bound) for bound in (low, high)):
        raise ConfigError(f"{field}: a bound is not finite; give a number")
    if low is not None and high is not None and low >= high:
        raise ConfigError(f"{field}: above {low} and below {high} exclude each other; exchange them")


def _check_signal(name: str, field: str) -> None:
    if name not in SIGNALS:
        raise ConfigError(f"{field}: {name!r} is no signal; choose one of {', '.join(SIGNALS)}")
