"""The audit log: every change is written down before it is made, by whom and why; its result is added after it.

The record lies in etcd, so it outlives the leader that wrote it; where it cannot be written, the change is refused. The
result is a log line too, which is there also where etcd fell silent meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from services.coordinator.http.desk import Desk
from shared.errors import StoreError
from shared.runtime.http.refusals import refusal_of
from shared.runtime.http.routes import Ask, Route
from shared.runtime.observe.logging import log_always
from shared.runtime.records.admin import append_audit, note_result
from shared.runtime.records.control import clean

NOTE_TIMEOUT_S = 2.0
"""A caller waits no longer for its result to be noted."""


@asynccontextmanager
async def recorded(desk: Desk, route: Route, ask: Ask[Any, Any]) -> AsyncIterator[None]:
    """Around a change, which is not made after ``StoreFenced``: our term is over, nor after ``StoreUnknown``: the
    record may be missing."""
    target = clean(route.target(ask))
    reason = getattr(ask.body, "reason", "")
    caller = ask.caller
    record = await append_audit(
        desk.store,
        desk.keys,
        term=desk.term,
        by=caller.name or caller.role,
        role=caller.role,
        route=route.name,
        target=target,
        reason=reason,
        request_id=ask.request_id,
        now=desk.wall(),
    )
    result = "internal"
    try:
        yield
        result = "ok"
    except asyncio.CancelledError:
        result = "unknown"  # out of time, or this process ends: nobody waited to see
        raise
    except Exception as error:
        result = refusal_of(error).code
        raise
    finally:
        # at any level: who may set that must not be able to hide what comes after
        log_always(
            "admin_change", by=caller.name, role=caller.role, route=route.name, target=target,
            reason=reason, request_id=ask.request_id, result=result,
        )  # fmt: skip
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(NOTE_TIMEOUT_S):
                await note_result(desk.store, desk.keys, record, result, term=desk.term)
