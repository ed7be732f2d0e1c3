"""A process that campaigns and writes as leader; started by tests to be killed, paused and resumed.

Each line it prints is ``word term``: ``elected``, ``lost``, ``sees`` (somebody's key, its own too), ``wrote`` (a write
compared the term and succeeded), ``fenced`` (it was refused) or ``idle`` (a turn in which it had no right to write).
With ``--reckless`` it writes whatever its own clock says, as a paused process would that had checked just before the
pause: only the comparison of terms is left to stop it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import uuid

import structlog

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from shared.errors import StoreUnknown
from shared.ports import CreateRevisionIs, Put
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.thread import LEADER_HUNG_AFTER_S, LeaseThread


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("key")
    parser.add_argument("identity")
    parser.add_argument("--reckless", action="store_true")
    parser.add_argument("--ttl", type=int, default=LeaseSettings().lease_ttl_s)
    options = parser.parse_args()
    settings = EtcdSettings(endpoints=(options.endpoint,))
    # Standard output is for the lines above.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    store = EtcdStore(settings)
    record = LeaderRecord(identity=options.identity, incarnation=uuid.uuid4().hex)
    async with (
        LeaseThread(lambda: EtcdStore(settings), hung_after_s=LEADER_HUNG_AFTER_S) as thread,
        Leadership(
            thread,
            key=options.key,
            record=record,
            settings=LeaseSettings.for_ttl(options.ttl),
            on_elected=lambda term: print("elected", term, flush=True),
            on_lost=lambda term, reason: print("lost", term, reason, flush=True),
            on_leader=lambda leader: print("sees", leader.term, flush=True) if leader is not None else None,
        ) as leadership,
    ):
        last_term = 0
        while not stop.is_set():
            term = leadership.term or (last_term if options.reckless else 0)
            if term:
                last_term = term
                work = [Put(f"{options.key}-work", options.identity.encode())]
                try:
                    result = await store.txn([CreateRevisionIs(options.key, term)], work)
                    print("wrote" if result.succeeded else "fenced", term, flush=True)
                except StoreUnknown:
                    print("unknown", term, flush=True)
            else:
                print("idle", last_term, flush=True)
            try:
                async with asyncio.timeout(0.05):
                    await stop.wait()
            except TimeoutError:
                continue
    await store.close()


asyncio.run(main())
