"""Keeps a process that may stand by (coordinator, binder) listed under ``members/``, with what is wrong with it.

Why: the leader's key shows the leader alone; people want to see the standbys too, which version each runs and whether
its certificates hold. It is for looking only: nothing is decided by it, so a process whose entry is taken over by
another goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from shared.election.lease import LeaseSettings
from shared.runtime.lease.membership import Membership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.health import Standing, Warnings
from shared.runtime.process.service import Service
from shared.wire.records import MemberRecord, encode_record


@asynccontextmanager
async def listed(
    service: Service, thread: LeaseThread, *, key: str, record: MemberRecord, lease_ttl_s: int, standing: Standing
) -> AsyncIterator[None]:
    """Listed from now until the end of the ``async with``."""
    async with Membership(
        thread,
        key=key,
        value=encode_record(record),
        settings=LeaseSettings.for_ttl(lease_ttl_s),
    ) as membership:

        def tell(warnings: Warnings) -> None:
            membership.set_value(encode_record(msgspec.structs.replace(record, warnings=warnings)))

        service.spawn("standing", standing.run(tell))
        yield
