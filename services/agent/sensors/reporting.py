"""Tells the leading coordinator what was read, as often as it wants to hear; what it answers says what to probe.

A lost message costs nothing: the next one says it all. An older coordinator, which does not know the route, is
asked again rarely.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from shared.adapters.peers.client import PeerClient
from shared.agent.echo import Address
from shared.agent.probing import Probing
from shared.agent.readings import HostReading
from shared.agent.target_times import TargetTimes
from shared.agent.telling import standing, told
from shared.election.record import LeaderRecord
from shared.errors import PeerError, PeerRejected, WireError
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Readings, ReadingsAck
from shared.wire.readings import ProbePeer

log = structlog.get_logger()

READINGS = "/v1/readings"
TIMEOUT_S = 2.0
UNANSWERED_S = 2.0
UNKNOWN_ROUTE_S = 60.0
"""After an answer that says that this coordinator takes no readings."""


@dataclass(frozen=True, slots=True)
class Self:
    """Who reports: id and incarnation as registered, and the node."""

    agent: str
    incarnation: str
    node: str


class Reporter:
    """``follow`` says who leads, ``read`` what was last read; ``run`` is an eternal task."""

    def __init__(
        self,
        client: PeerClient,
        who: Self,
        probing: Probing,
        times: TargetTimes,
        *,
        probed_at: Address | None,
        term: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._who = who
        self._probing = probing
        self._times = times
        self._probed_at = ProbePeer(*probed_at) if probed_at is not None else None
        self._term = term
        self._clock = clock
        self._leader: LeaderRecord | None = None
        self._reading: HostReading | None = None
        self._kills = 0
        """Processes killed for memory, by readings that were not told: no later reading has them."""
        self._read = asyncio.Event()
        self._message_id = 0
        self.sent = 0
        self.failed = 0
        self.every_s = 0.0
        """How often the coordinator wants to hear; 0: it has not said yet."""

    def follow(self, leader: LeaderRecord | None) -> None:
        """Who leads as of now."""
        if leader != self._leader:
            self._leader = leader
            self._read.set()

    def read(self, reading: HostReading) -> None:
        """The newest reading."""
        self._reading = reading
        self._kills += reading.oom_kills or 0
        self._read.set()

    @property
    def reading(self) -> HostReading | None:
        """The newest one, for people."""
        return self._reading

    async def run(self) -> None:
        """Report the newest reading, never one twice, no more often than is wanted."""
        while True:
            await self._read.wait()
            leader, reading = self._leader, self._reading
            self._read.clear()
            if leader is None or reading is None or not leader.url:
                continue
            began = self._clock()
            wait_s = await self._tell(leader, reading)
            await asyncio.sleep(max(0.0, wait_s - (self._clock() - began)))

    async def _tell(self, leader: LeaderRecord, reading: HostReading) -> float:
        """How long to be silent now."""
        self._message_id += 1
        kills = self._kills
        try:
            body = await self._client.call(
                leader.url, READINGS, encode(self.message(reading)), timeout_s=TIMEOUT_S, service="coordinator"
            )
            ack = decode(body, ReadingsAck)
        except PeerRejected as error:
            self.failed += 1
            log.info("readings_refused", code=error.code, url=leader.url)
            return UNKNOWN_ROUTE_S if error.code in {"route_unknown", "http_404"} else UNANSWERED_S
        except (PeerError, WireError) as error:
            self.failed += 1
            log.info("readings_lost", code=error.code, url=leader.url)
            return UNANSWERED_S
        self.sent += 1
        self._kills -= kills
        self._heard(ack)
        # a little early: the next reading must not be missed because this one was late
        return max(0.0, self.every_s * 0.9)

    def _heard(self, ack: ReadingsAck) -> None:
        self.every_s = ack.every_ms / 1000
        self._probing.use_keys(ack.keys)
        self._probing.meet((peer.address, peer.port) for peer in ack.peers)
        self._times.follow(ack.targets, self._clock())

    def message(self, reading: HostReading) -> Readings:
        """The reading as the coordinator is told it, with the kills of those before that were not told."""
        kills = None if reading.oom_kills is None and not self._kills else self._kills
        reading = replace(reading, oom_kills=kills)
        return Readings(
            VERSION,
            self._message_id,
            0,
            self._term(),
            self._who.agent,
            self._who.incarnation,
            [told(self._who.node, reading, max(0.0, self._clock() - reading.at_s))],
            standing(self._probing.coordinate),
            self._times.told(self._clock()),
            self._probed_at,
        )
