"""What operators told the mesh, followed from etcd while leading; and the note in etcd that this process leads.

The core gets levels: pause, drained nodes and settings as they are now, after every change of any. What concerns the
process and not the core, how often metrics are read and the log level (that of standbys too), is applied here. A value
in etcd that this version cannot use is told once per change and left out; the others hold.

What operators say is written by ``shared.runtime.records.control``, for the admin API.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from contextlib import aclosing

import structlog

from services.coordinator.core.events import ControlSeen, Event
from services.coordinator.settings import RUNTIME_SETTINGS, CoordinatorSettings
from shared.errors import InvalidValue
from shared.ports import Store
from shared.runtime.observe.logging import set_level
from shared.runtime.records.admin import write_term
from shared.runtime.records.control import control_of
from shared.runtime.records.prefix_watch import follow_prefix, until_known
from shared.wire.keys import Keys
from shared.wire.records import Drained, Paused, RuntimeSettings, decode_record

log = structlog.get_logger()


class Following:
    """One term's view of what operators said. ``settings``: those in force now; ``record``: as etcd has them."""

    def __init__(self, store: Store, keys: Keys, started: CoordinatorSettings, post: Callable[[Event], None]) -> None:
        self._store = store
        self._keys = keys
        self._started = started
        self._post = post
        self._control: tuple[Paused | None, tuple[Drained, ...]] | None = None
        self._read_settings = False
        self._told = asyncio.Event()
        self.settings = started
        self.retuned = asyncio.Event()
        """Set after each change of ``settings``, for who waits by one of them."""
        self.record: RuntimeSettings | None = None

    async def run(self) -> None:
        """Eternal. ``StoreRejected``: etcd does not let us read."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_control())
            group.create_task(self._follow_settings())

    async def _follow_control(self) -> None:
        async with aclosing(follow_prefix(self._store, self._keys.control_prefix)) as views:
            async for view in views:
                paused, drained, unreadable = control_of(self._keys, view.items.values())
                if unreadable:
                    log.warning("control_keys_unknown", count=len(unreadable), key=unreadable[0])
                self._control = paused, tuple(drained[name] for name in sorted(drained))
                self._tell()

    async def _follow_settings(self) -> None:
        async with aclosing(follow_prefix(self._store, self._keys.settings_current)) as views:
            async for view in views:
                kv = view.items.get(self._keys.settings_current)
                self.record = decode_record(kv.value, RuntimeSettings) if kv is not None else None
                if kv is not None and self.record is None:
                    log.error("settings_unreadable", key=kv.key)
                self.settings = self._applied(self.record)
                self.retuned.set()
                self._read_settings = True
                self._tell()

    def _applied(self, record: RuntimeSettings | None) -> CoordinatorSettings:
        good, problems = RUNTIME_SETTINGS.usable(record.values if record is not None else {})
        for problem in problems:
            log.warning("setting_ignored", problem=problem)
        try:
            return RUNTIME_SETTINGS.applied(self._started, good)
        except (InvalidValue, ValueError) as error:  # a cross-check of the settings class
            log.warning("setting_ignored", problem=str(error))
            return self._started

    def _tell(self) -> None:
        if self._control is None or not self._read_settings:
            return
        paused, drained = self._control
        number = self.record.number if self.record is not None else 0
        self._post(ControlSeen(paused, drained, self.settings.core(), number))
        self.wake()

    def wake(self) -> None:
        """The core has been told something: who waits is woken after the turn of the shell that was just asked for."""
        told, self._told = self._told, asyncio.Event()
        told.set()

    async def told(self) -> None:
        """Until the core has been told the next time."""
        await self._told.wait()


async def follow_log_level(store: Store, keys: Keys, started: CoordinatorSettings) -> None:
    """Log at the level that is set for all coordinators, standbys too; eternal. A level that was set for this process
    alone stays until the setting changes."""
    level: str = started.log_level
    async with aclosing(follow_prefix(store, keys.settings_current)) as views:
        async for view in views:
            kv = view.items.get(keys.settings_current)
            record = decode_record(kv.value, RuntimeSettings) if kv is not None else None
            good, _ = RUNTIME_SETTINGS.usable(record.values if record is not None else {})
            wanted = str(good.get("log_level", started.log_level))
            if wanted != level:
                level = wanted
                set_level(level)
                log.info("log_level_changed", log_level=level)


async def note_term(store: Store, keys: Keys, *, term: int, id: str, url: str) -> None:  # noqa: A002
    """Write that ``id`` leads ``term``; tried until it is known to be there. ``StoreFenced``: somebody else leads."""
    now = dt.datetime.now(dt.UTC)
    await until_known(lambda: write_term(store, keys, term=term, id=id, url=url, now=now), "term_unnoted", term=term)
