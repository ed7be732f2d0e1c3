"""Settings that may change while running: read with their ranges, changed through etcd for every coordinator.

A change is all or nothing, compares the number that the caller has read, and is kept in a history. What a setting means
and its range come from ``CoordinatorSettings``, as ``--help`` does.

The log level here is this leader's until it ends; the setting ``log_level`` is the lasting one for all coordinators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.settings import RUNTIME_SETTINGS
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import NumberedPageQuery, page
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, Reason, RouteAnswer, RoutePage, Schema, row
from shared.runtime.observe.logging import current_level, set_level
from shared.runtime.records.settings import change_settings, read_settings, read_settings_history
from shared.wire.records import RuntimeSettings

Value = int | float | str
MOST_VALUES = 64


class SettingItem(RouteAnswer, frozen=True, kw_only=True):
    """One setting. ``source``: its default, how this process was started, or changed while running. ``minimum`` is out
    of the range itself where ``above`` is true; ``choices`` is empty for numbers."""

    name: str
    value: Value
    default: Value
    source: Literal["default", "start", "runtime"]
    type: Literal["integer", "number", "string"]
    minimum: int | float | None
    maximum: int | float | None
    above: bool
    choices: list[str]
    help: str


class SettingsAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``number`` grows with each change; 0: nothing was ever changed while running. ``obeyed``: the leader goes by it;
    false after a change that it has not heard of in 2 s, and will."""

    number: int
    obeyed: bool
    items: list[SettingItem]


class SettingsHistoryAnswer(RoutePage, frozen=True, kw_only=True):
    """Newest first; the last 200 are kept. ``values``: all that differed from the start after the change."""

    items: list[RuntimeSettings]


class Change(Schema, frozen=True, kw_only=True):
    """``values``: by name; null goes back to what each process was started with. ``number``: the one that was read
    before (compare-and-swap); left out, the change is made whatever it is."""

    values: Annotated[dict[str, Value | None], msgspec.Meta(min_length=1, max_length=MOST_VALUES)]
    number: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    reason: Reason = ""


async def show(desk: Desk, _: Ask[Any, Any]) -> SettingsAnswer:
    """All of them, as they are in force."""
    record, core = await read_settings(desk.store, desk.keys), desk.admin.core
    number = record.number if record is not None else 0
    return _answer(desk, record, obeyed=core is not None and core.control.number >= number)


async def history(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> SettingsHistoryAnswer:
    """The last changes."""
    records = {-record.number: record for record in await read_settings_history(desk.store, desk.keys)}
    keys, more = page(records, ask.query, int)
    return SettingsHistoryAnswer(items=[records[key] for key in keys], continue_=more)


async def change(desk: Desk, ask: Ask[Any, Change]) -> SettingsAnswer:
    """Change some. Refused: 422 ``invalid_value`` naming field and range, 409 ``conflict`` for another number."""
    given, stored = ask.body.values, await read_settings(desk.store, desk.keys)
    # a null for a name that does not exist would pass unseen: ``change_settings`` validates what is left
    known = RUNTIME_SETTINGS.settings.keys() | (stored.values.keys() if stored is not None else ())
    RUNTIME_SETTINGS.validate({name: 0 for name, value in given.items() if value is None and name not in known})

    def validate(merged: Mapping[str, Value]) -> None:
        # what a newer version has stored is left alone, or after a downgrade nothing could be changed any more
        RUNTIME_SETTINGS.validate({name: value for name, value in merged.items() if name in given})

    record = await change_settings(
        desk.store, desk.keys, given, by=ask.caller.title, reason=ask.body.reason,
        expected_number=ask.body.number, now=desk.wall(), validate=validate,
    )  # fmt: skip
    obeyed = await desk.obeyed(lambda core: core.control.number >= record.number)
    return _answer(desk, record, obeyed=obeyed)


def _answer(desk: Desk, record: RuntimeSettings | None, *, obeyed: bool) -> SettingsAnswer:
    shown = RUNTIME_SETTINGS.shown(desk.settings, record.values if record is not None else {})
    items = [
        msgspec.convert({**asdict(item.setting), "value": item.value, "source": item.source}, SettingItem)
        for item in shown
    ]
    return SettingsAnswer(number=record.number if record is not None else 0, obeyed=obeyed, items=items)


class LevelAnswer(RouteAnswer, frozen=True, kw_only=True):
    """The lowest level that is logged."""

    level: str


class LevelBody(Schema, frozen=True, kw_only=True):
    """The level to log at from now on."""

    level: Literal["debug", "info", "warning", "error"]
    reason: Reason = ""


async def level(_: Desk, __: Ask[Any, Any]) -> LevelAnswer:
    """The level now."""
    return LevelAnswer(level=current_level())


async def change_level(_: Desk, ask: Ask[Any, LevelBody]) -> LevelAnswer:
    """Change it at once."""
    set_level(ask.body.level)
    return LevelAnswer(level=current_level())


ROUTES = (
    row("GET", "/v1/settings", Role.VIEWER, "Settings that may change while running", show, fresh_s=SLOW_FRESH_S),
    row(
        "PATCH", "/v1/settings", Role.ADMIN, "Change settings of every coordinator at once", change,
        errors=("conflict", "invalid_value"), audit_target=lambda body: ",".join(sorted(body.values)),
    ),
    row("GET", "/v1/settings/history", Role.VIEWER, "The last changes of settings", history, fresh_s=SLOW_FRESH_S),
)  # fmt: skip


LOG_LEVEL = (
    row("GET", "/v1/log-level", Role.VIEWER, "The level that the leader logs at", level),
    row(
        "PUT", "/v1/log-level", Role.ADMIN, "Change it until this leader ends", change_level,
        audit_target=lambda body: body.level,
    ),
)  # fmt: skip
