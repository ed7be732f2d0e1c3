"""Autoscaled services, as their autoscaler recorded them in etcd: what they have, who decided it, and what it costs."""

from __future__ import annotations

from typing import Any

from services.coordinator.http.desk import Desk
from services.coordinator.inspect.autoscaled import ScaledShown, ScaledWhole, shown, whole
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import PageQuery, page
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, RoutePage, row
from shared.runtime.records.autoscaling import read_newest, read_ring, read_scaled


class AutoscalersAnswer(RoutePage, frozen=True, kw_only=True):
    """By namespace and name, as of each one's last recorded decision."""

    items: list[ScaledShown]


class AutoscalerAnswer(ScaledWhole, RouteAnswer, frozen=True, kw_only=True):
    """One object: its services, its cost, its recorded decisions."""


async def listed(desk: Desk, ask: Ask[PageQuery, Any]) -> AutoscalersAnswer:
    """A page of objects."""
    scaled = await read_scaled(desk.store, desk.keys)
    chosen, more = page(scaled, ask.query, str)
    newest = await read_newest(desk.store, desk.keys, {key: scaled[key] for key in chosen})
    return AutoscalersAnswer(items=[shown(key, scaled[key], newest.get(key)) for key in chosen], continue_=more)


async def one(desk: Desk, ask: Ask[Any, Any]) -> AutoscalerAnswer:
    """One object. Refused: 404 ``autoscaler_unknown``."""
    key = f"{ask.path['namespace']}/{ask.path['name']}"
    record = (await read_scaled(desk.store, desk.keys)).get(key)
    if record is None:
        text = f"no autoscaler has recorded a decision about a ResilientAutoscaler {key}; list the autoscalers"
        raise RequestRefused(text, code="autoscaler_unknown")
    found = whole(key, record, await read_ring(desk.store, desk.keys, key))
    return AutoscalerAnswer(**{name: getattr(found, name) for name in ScaledWhole.__struct_fields__})


ROUTES = (
    row("GET", "/v1/autoscalers", Role.VIEWER, "Autoscaled services as of their last recorded decision", listed,
        cost=10, fresh_s=SLOW_FRESH_S),
    row("GET", "/v1/autoscalers/{namespace}/{name}", Role.VIEWER, "One autoscaler's object with its recorded past", one,
        cost=10, errors=("autoscaler_unknown",), fresh_s=SLOW_FRESH_S),
)  # fmt: skip
