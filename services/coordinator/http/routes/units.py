"""Scheduling units: pod groups in every phase, and lone pods on their way to a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.inspect.group_explain import GroupExplained, explain_group
from services.coordinator.inspect.group_facts import find_group, group_facts, group_keys, lone_unit, lone_units
from services.coordinator.inspect.queue_facts import QueuePlaces
from services.coordinator.inspect.units import GroupFacts, UnitShown, UnitWhole, shown, whole
from shared.kube.label_selectors import ParsedSelector
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import PageQuery, Selector, key_token, selector_of, token_key
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, RoutePage, row

MOST_JUDGED = 5000
"""Members that one page looks at: where few units are chosen it ends early."""

Text = Annotated[str, msgspec.Meta(max_length=253)]


class UnitsQuery(PageQuery, frozen=True, kw_only=True):
    """``queue``: only units of that Queue; ``place``: only those whose members are there in the scheduling queue;
    ``phase``, ``source``: only such. All by default."""

    namespace: Annotated[str, msgspec.Meta(max_length=63)] = ""
    queue: Text = ""
    place: Literal["", "gated", "active", "backoff", "unschedulable", "in_flight"] = ""
    phase: Literal["", "waiting", "placing", "running", "broken", "ended"] = ""
    source: Literal["", "pod", "podgroup", "x-podgroup", "job"] = ""
    selector: Selector = ""


class UnitsAnswer(RoutePage, frozen=True, kw_only=True):
    """By key. A page may hold fewer than ``limit``, also none, and yet not be the last: ``continue`` tells."""

    items: list[UnitShown]


class UnitAnswer(UnitWhole, RouteAnswer, frozen=True, kw_only=True):
    """One pod group."""


async def listed(desk: Desk, ask: Ask[UnitsQuery, Any]) -> UnitsAnswer:
    """A page of units."""
    query, after = ask.query, ""
    if query.continue_:
        after = token_key(query.continue_, str)
    selector = selector_of(query.selector)
    items: list[UnitShown] = []
    judged, last = 0, after
    for key, members, unit in _units(desk, query, selector, after):
        if len(items) == query.limit or judged >= MOST_JUDGED:
            return UnitsAnswer(items=items, continue_=key_token(last))
        last, judged = key, judged + members
        if unit is not None and _asked_for(unit, query):
            items.append(unit)
    return UnitsAnswer(items=items)


def _units(
    desk: Desk, query: UnitsQuery, selector: ParsedSelector | None, after: str
) -> Iterator[tuple[str, int, UnitShown | None]]:
    """(key, members looked at, the unit or None where its labels or namespace are not asked for) by key."""
    core, now, places = desk.core, desk.clock(), QueuePlaces(desk.core)
    alone = lone_units(core) if query.source in ("", "pod") else {}
    groups = group_keys(core) if query.source != "pod" else ()
    for key in sorted(found for found in (*alone, *groups) if found > after):
        if key in alone:
            yield key, 1, lone_unit(core, key, alone[key], now, desk.wall_of, selector)
            continue
        facts = group_facts(core, key, places)
        if facts is None or query.namespace not in ("", facts.namespace) or not _selected(facts, selector):
            yield key, 1, None
        else:
            yield key, max(1, len(facts.members)), shown(facts, now, desk.wall_of)


def _selected(facts: GroupFacts, selector: ParsedSelector | None) -> bool:
    return selector is None or selector.matches(facts.group.labels if facts.group is not None else {})


def _asked_for(unit: UnitShown, query: UnitsQuery) -> bool:
    return (
        query.namespace in ("", unit.namespace)
        and query.queue in ("", unit.queue)
        and query.place in ("", unit.place)
        and query.phase in ("", unit.phase)
        and query.source in ("", unit.source)
    )


async def one(desk: Desk, ask: Ask[Any, Any]) -> UnitAnswer:
    """One pod group. Refused: 404 ``unit_unknown``."""
    core = desk.core
    facts = find_group(core, ask.path["namespace"], ask.path["name"])
    if facts is None:
        raise _unknown(ask)
    found = whole(facts, desk.clock(), desk.wall_of)
    return UnitAnswer(**{name: getattr(found, name) for name in UnitWhole.__struct_fields__})


class UnitExplainedAnswer(GroupExplained, RouteAnswer, frozen=True, kw_only=True):
    """Why a pod group is where it is."""


async def explained(desk: Desk, ask: Ask[Any, Any]) -> UnitExplainedAnswer:
    """Which member would go where, who fails, and what would help. Refused: 404 ``unit_unknown``."""
    found = explain_group(desk.core, ask.path["namespace"], ask.path["name"])
    if found is None:
        raise _unknown(ask)
    return UnitExplainedAnswer(**{name: getattr(found, name) for name in GroupExplained.__struct_fields__})


def _unknown(ask: Ask[Any, Any]) -> RequestRefused:
    title = f"{ask.path['namespace']}/{ask.path['name']}"
    return RequestRefused(f"there is no pod group {title}, and no pod names it; list the units", code="unit_unknown")


ROUTES = (
    row(
        "GET", "/v1/units", Role.VIEWER, "Pod groups, and lone pods on their way to a node", listed, cost=2,
        fresh_s=SLOW_FRESH_S,
    ),
    row(
        "GET", "/v1/units/{namespace}/{name}", Role.VIEWER, "One pod group: its members, and why it waits", one,
        errors=("unit_unknown",),
    ),
    row(
        "GET", "/v1/units/{namespace}/{name}/explain", Role.VIEWER,
        "Which member of a pod group fails where, and what would have to change", explained, cost=50,
        errors=("unit_unknown",),
    ),
)  # fmt: skip
