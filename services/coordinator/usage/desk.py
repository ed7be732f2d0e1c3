"""Takes the readings of agents on their nodes and of sensors, answers what they are to do next, and hands on what was
read. Pure.

    Readings --heard--> ReadingsAck: how often, keys, some peers to probe, targets
    every second --flush--> NodesMeasured: everything that came since, in one event

Who may speak of which node is ``speakers.py``'s; others are sent to probe an agent only at the address under which it
serves, a sensor at the one from which it called. Keys of probes last a minute: what was recorded
is of no use after that.
Where nodes stand in the delay space is kept here; a node's delay to others, and to the regions that users named, follow
from it. Not its job: what a policy makes of it (``measured.py``).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from itertools import islice
from statistics import median
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from services.coordinator.agents.views import AgentView
from services.coordinator.core.events import NodeSample, NodesMeasured
from services.coordinator.usage.speakers import ReadingsRefused, Speakers
from services.coordinator.usage.still import Still, still_line
from shared.agent.vivaldi import DIMENSIONS, Coordinate, delay_ms
from shared.hostport import server_of
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.model.cluster_events import ClusterEvent, Listed, ObjectChanged
from shared.wire.messages import VERSION, Readings, ReadingsAck
from shared.wire.readings import (
    LATENCY_STALE_S,
    MAX_PEERS,
    MAX_TARGETS,
    NodeReading,
    ProbePeer,
    ProbeTarget,
    TargetLatency,
)

SOURCE, SENSOR = "agent", "sensor"
MESSAGES_PER_S = 100.0
"""Readings that all agents together are asked to send per second: some 2 % of a leader's core."""
LEAST_S = 1.0
UNWANTED_S = 15.0
"""How often where no policy looks: people do (``conclave nodes``)."""
SURE = 0.5
"""Coordinates whose relative error is above it tell nothing yet."""
COMPARED = 32
"""Other nodes, of a region or of all, to which a node's delay is the median."""
FORGET_S = 300.0
MOST_AGE_S = 3600.0
"""An older reading tells nothing of now; an age without bounds would be none of an offer's numbers."""
SILENCE_S = 30.0
PEERS_TOLD = 4
ELSEWHERE = "delay: probe_listen is not the address that the agent serves at; give it the host of listen"
CALLS_FROM = (
    "delay: probe_listen is not the address that the sensor calls from; leave its host out, "
    "or let no address be translated on the way"
)
KEY_S = 60.0
"""How long probes are signed with one key; longer, twice or four times, where agents hear more rarely."""


class DeskRng(Protocol):
    """Where draws come from."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


class _Heard(Struct, frozen=True):
    """An agent's last message."""

    at_s: float
    coordinate: Coordinate | None
    probed_at: ProbePeer | None
    elsewhere: str = ""
    """A line where it named an address for probes that is not its own."""


_Standing = dict[str | None, dict[str, Coordinate]]
"""Coordinates by node, by region; None: of all nodes."""


class ReadingsDesk:
    """One term's. ``secret``: what keys of probes follow from, another in each term; ``region_of``: a node's label;
    ``present``: whether the cluster has a node of that name, which sensors are asked for."""

    def __init__(
        self,
        secret: bytes,
        rng: DeskRng,
        *,
        term: int,
        region_of: Callable[[str], str],
        present: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._secret = secret
        self._rng = rng
        self._term = term
        self._region_of = region_of
        self._speakers = Speakers(present)
        self._still = Still()
        self._key_s = KEY_S
        self._targets: dict[str, LatencyTarget] = {}
        self.listed = False
        """Whether all of them are known."""
        self._heard: dict[str, _Heard] = {}
        self._waiting: dict[str, tuple[float, Readings]] = {}
        self._flushed_s: float | None = None
        self._message_id = 0
        self.taken = 0
        self.refused = 0
        self.misled = 0
        """Messages that name an address for probes that is not their agent's."""

    @property
    def targets(self) -> Mapping[str, LatencyTarget]:
        """What users named, by name."""
        return self._targets

    @property
    def tried(self) -> Collection[str]:
        """Names of those that agents are told of."""
        return self._named().keys()

    def changed(self, events: Iterable[ClusterEvent]) -> None:
        """LatencyTarget objects as the watch shows them."""
        for event in events:
            if isinstance(event, ObjectChanged):
                if isinstance(event.item, LatencyTarget):
                    self._targets[event.key] = event.item
                else:
                    self._targets.pop(event.key, None)
            elif isinstance(event, Listed):
                self.listed |= event.served

    def heard(
        self,
        message: Readings,
        agents: Mapping[str, AgentView],
        now_s: float,
        *,
        wanted: bool = True,
        address: str = "",
    ) -> ReadingsAck:
        """Take in a message; raises ``ReadingsRefused``. ``wanted``: whether any policy looks at use; ``address``: from
        where it came, "" where that is not known."""
        least_s, tellers = LEAST_S if wanted or self._targets else UNWANTED_S, max(len(agents), len(self._heard))
        every_s = max(least_s, tellers / MESSAGES_PER_S)
        try:
            node = self._speakers.node_of(message, agents, now_s, every_s=every_s)
        except ReadingsRefused:
            self.refused += 1
            raise
        self.taken += 1
        probed_at = message.probed_at
        elsewhere = ""
        if probed_at is not None and message.boot is None:
            elsewhere = ELSEWHERE if _elsewhere(agents[message.agent].record.url, probed_at) else ""
        elif probed_at is not None:
            elsewhere = CALLS_FROM if address not in ("", probed_at.address) else ""
        if elsewhere:
            self.misled += 1
            probed_at = None
        self._heard[node] = _Heard(now_s, _coordinate(message), probed_at, elsewhere)
        if message.readings and message.readings[-1].age_ms <= MOST_AGE_S * 1000:
            self._waiting[node] = (now_s, self._moving(message, now_s))
        self._message_id += 1
        return ReadingsAck(
            VERSION,
            self._message_id,
            message.message_id,
            self._term,
            round(every_s * 1000),
            self._keys(now_s, every_s) if probed_at is not None else [],
            self._peers(node) if probed_at is not None else [],
            [
                ProbeTarget(target.name, target.host, target.port, round(target.every_s * 1000))
                for target in self._named().values()
                if not target.region
            ],
        )

    def _moving(self, message: Readings, now_s: float) -> Readings:
        """The message without figures that stand still."""
        last = message.readings[-1]
        figures = (last.cpu_millis, last.memory_bytes, last.disk_bytes_s, last.network_bytes_s)
        still_s = self._still.look(last.node, figures, now_s)
        if not still_s:
            return message
        line = still_line("cpu, memory, disk, network", still_s)
        return replace(message, readings=[NodeReading(last.node, last.age_ms, missing=[line, *last.missing[:15]])])

    def _keys(self, now_s: float, every_s: float) -> list[bytes]:
        """This minute's key and the next: an agent that has not heard of the change yet opens what others sign. Their
        time is doubled, rarely and never back: one that followed the number of agents gave each of them other keys."""
        while self._key_s < 2 * every_s:
            self._key_s *= 2
        number = int(now_s // self._key_s)
        return [hmac.digest(self._secret, f"{self._key_s:g} {one}".encode(), "sha256") for one in (number, number + 1)]

    def flush(self, now_s: float) -> NodesMeasured | None:
        """Everything that came since, as one event; None where nothing did. Where agents fell silent an empty one comes
        now and then: what they told grows old."""
        self._heard = {node: one for node, one in self._heard.items() if now_s - one.at_s <= FORGET_S}
        self._speakers.forget(now_s)
        self._still.keep(self._heard)
        if not self._waiting:
            if self._flushed_s is None or now_s - self._flushed_s < SILENCE_S:
                return None
            self._flushed_s = now_s
            return NodesMeasured(())
        self._flushed_s = now_s
        waiting, self._waiting = self._waiting, {}
        named, standing = self._named(), self._standing(now_s)
        return NodesMeasured(
            tuple(
                self._sample(node, now_s - at_s, message, named, standing) for node, (at_s, message) in waiting.items()
            )
        )

    def _named(self) -> dict[str, LatencyTarget]:
        """The targets that count: no more than a message has room for."""
        return dict(islice(self._targets.items(), MAX_TARGETS))

    def _standing(self, now_s: float) -> _Standing:
        """The nodes to which delays are told, once for all samples of a flush: of all nodes, and of each region that
        a target names."""
        regions = {target.region for target in self._named().values() if target.region}
        found: _Standing = {None: {}, **{region: {} for region in regions}}
        for node, one in self._heard.items():
            old = now_s - one.at_s >= LATENCY_STALE_S
            if one.coordinate is None or one.coordinate.error > SURE or old:
                continue
            for place in (None, self._region_of(node)) if regions else (None,):
                # one more than are compared: a node is not compared with itself
                if place in found and len(found[place]) <= COMPARED:
                    found[place][node] = one.coordinate
        return found

    def _sample(
        self,
        node: str,
        waited_s: float,
        message: Readings,
        named: Mapping[str, LatencyTarget],
        standing: _Standing,
    ) -> NodeSample:
        reading = message.readings[-1]
        here = self._heard[node].coordinate if node in self._heard else None
        delay = _delay(node, here, standing[None])
        return NodeSample(
            node=node,
            age_s=waited_s + reading.age_ms / 1000,
            cpu_millis=_known(reading.cpu_millis),
            memory_bytes=_known(reading.memory_bytes),
            disk=None if reading.disk < 0 else reading.disk,
            network=None if reading.network < 0 else reading.network,
            source=SOURCE if message.boot is None else SENSOR,
            delay_us=None if delay is None else round(delay[0] * 1000),
            latencies=_latencies(node, here, message.latencies, named, standing),
            pressure=tuple(reading.pressure),
            oom_kills=_known(reading.oom_kills),
            missing=_missing(
                reading, message.latencies, elsewhere=self._heard[node].elsewhere if node in self._heard else ""
            ),
        )

    def _peers(self, node: str) -> list[ProbePeer]:
        known = [one.probed_at for name, one in self._heard.items() if name != node and one.probed_at is not None]
        most = min(PEERS_TOLD, MAX_PEERS)
        return [known.pop(int(self._rng.random() * len(known))) for _ in range(min(most, len(known)))]


def _latencies(
    node: str,
    here: Coordinate | None,
    told: Iterable[TargetLatency],
    named: Mapping[str, LatencyTarget],
    standing: _Standing,
) -> dict[str, tuple[int, int]]:
    """(median, spread) by target, in microseconds; only of targets that are there."""
    found = {one.target: (one.median_us, one.spread_us) for one in told if one.samples and one.target in named}
    for target in named.values():
        if target.region and (delay := _delay(node, here, standing[target.region])) is not None:
            found[target.name] = (round(delay[0] * 1000), round(delay[1] * 1000))
    return found


def _delay(node: str, here: Coordinate | None, others: Mapping[str, Coordinate]) -> tuple[float, float] | None:
    """(median, spread) of the delay to other nodes, in ms; None where that is not known well enough."""
    if here is None or here.error > SURE:
        return None
    delays = [delay_ms(here, other) for name, other in others.items() if name != node][:COMPARED]
    if not delays:
        return None
    middle = median(delays)
    return middle, median(abs(delay - middle) for delay in delays)


def _coordinate(message: Readings) -> Coordinate | None:
    told = message.standing
    if told is None or len(told.at) != DIMENSIONS:
        return None
    found = Coordinate(tuple(told.at), told.height, told.error)
    return found if found.usable else None


def _known(amount: int) -> int | None:
    return None if amount < 0 else amount


def _elsewhere(url: str, probed_at: ProbePeer) -> bool:
    """Whether an agent that serves at the URL wants probes sent to another host. A URL's name is not resolved here."""
    try:
        return ip_address(server_of(url).host) != ip_address(probed_at.address)
    except ValueError:
        return False


def _missing(reading: NodeReading, latencies: Iterable[TargetLatency], *, elsewhere: str) -> tuple[str, ...]:
    """What could not be told, targets that do not answer included."""
    told = (*reading.missing, elsewhere) if elsewhere else reading.missing
    silent = [f"latency: {one.target} did not answer {one.failed} times in a row" for one in latencies if one.failed]
    return (*told, *silent[:16])
