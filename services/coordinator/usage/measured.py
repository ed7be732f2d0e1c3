"""What every node was last measured to use, part by part, by whichever source was the freshest. Pure.

    samples of metrics.k8s.io, Prometheus, agents' sensors --take--> per node and part: amount, when, by whom
        --sample--> one sample of the node for the store that policies read, with what was not measured masked

Parts are cpu, memory, disk and network. A newer measurement of a part replaces an older one, whoever made it. A part
that is ``STALE_S`` older than the node's newest is no measurement of now: it is masked, and named. A sample counts as
of its oldest part, so a pod is rather counted twice for a moment than not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from services.coordinator.core.events import NodeSample
from shared.policy.usage.class_usage import PARTS
from shared.policy.usage.utilisation import OLD_SAMPLE_S
from shared.policy.usage.views import MOST_SHARE
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable
from shared.wire.readings import LATENCY_STALE_S

NAMES = ("cpu", "memory", "disk", "network")
MEMORY = NAMES.index("memory")
assert len(NAMES) == PARTS

STALE_S = 60.0
"""A part is masked when it is so much older than the newest part of its node."""
TOGETHER_S = 0.5
"""What ends within so long of each other ends at once, none later than it must."""
JUMP = 100
"""A latency, or memory in use, that is so many times what was told before, or so small a part of it, is believed when
the next agrees. CPU, disks and links do rise so from one moment to the next."""
BEYOND = (2.5, 2.5, 10.0, 10.0)
"""So many times what a node can allocate no part of it is used: what the system takes beside pods is within that, also
where little is left for pods (0.94 of 2 shared cores). A disk or link may do more than it says."""
OLD_S = OLD_SAMPLE_S
"""A node of which nobody has told anything for so long counts by its requests."""
GONE_S = 600.0
"""Nobody has told anything of the node for so long: it is shown as not measured."""
NEVER_S = -1e18
NO_END_S = float("inf")


class UsagePart(Struct, frozen=True):
    """``amount``: millicores, bytes, or a share of what the node can do."""

    amount: float
    at_s: float
    source: str


@dataclass(slots=True)
class MeasuredNode:
    """One node: its parts by ``NAMES``, and what sensors say beside them."""

    parts: list[UsagePart | None] = field(default_factory=lambda: [None] * PARTS)
    delay_us: int | None = None
    latencies: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    medians: Mapping[str, int] = field(default_factory=dict)
    """As last told, also those that are doubted."""
    told_s: float = NEVER_S
    """When the sensors' sample was taken; before there is any, when the node got its name, as far as that is known."""
    pressure: tuple[float, ...] = ()
    oom_kills: int = 0
    missing: tuple[str, ...] = ()
    noted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What sources beside sensors last said is wrong with what they tell, by source."""
    beyond: Mapping[int, str] = field(default_factory=dict)
    """Parts that cannot be, by their place, and why."""
    leapt: float | None = None
    """Memory in use that was told last and is doubted."""
    counts: bool = False
    """Whether its parts are new enough for its load."""

    @property
    def expires_s(self) -> float:
        """When anything that was told of it counts no more: its use, or latencies and delays; ``NO_END_S`` where
        nothing does."""
        return min(self._latencies_end_s, self.newest_s + OLD_S if self.counts else NO_END_S)

    def expire(self, now_s: float) -> None:
        """What is too old counts no more."""
        if self._latencies_end_s <= now_s:
            self.latencies, self.medians, self.delay_us = {}, {}, None
        self.counts = self.counts and self.newest_s + OLD_S > now_s

    @property
    def _latencies_end_s(self) -> float:
        return self.told_s + LATENCY_STALE_S if self.latencies or self.delay_us is not None else NO_END_S

    @property
    def newest_s(self) -> float:
        """When the newest part was measured."""
        return max((part.at_s for part in self.parts if part is not None), default=NEVER_S)

    def fresh(self) -> list[UsagePart | None]:
        """The parts that count: measured, not stale beside the newest, and no more than can be."""
        least_s = self.newest_s - STALE_S
        return [
            part if part is not None and part.at_s >= least_s and place not in self.beyond else None
            for place, part in enumerate(self.parts)
        ]

    def masked(self, now_s: float) -> list[str]:
        """What of it is not measured, for people: the part, and why."""
        told = []
        for place, (name, part, fresh) in enumerate(zip(NAMES, self.parts, self.fresh(), strict=True)):
            if part is None:
                told.append(f"{name}: nobody measures it")
            elif place in self.beyond:
                told.append(self.beyond[place])
            elif fresh is None:
                told.append(f"{name}: last measured {now_s - part.at_s:.0f} s ago ({part.source})")
        memory = self.parts[MEMORY]
        if self.leapt is not None and memory is not None:
            told.append(
                f"memory: jumped from {memory.amount:.4g} to {self.leapt:.4g} bytes; it counts when it is told again"
            )
        return [*told, *(line for lines in self.noted.values() for line in lines)]


class UsageSample(Struct, frozen=True):
    """Of one node for policies: ``shares`` [PARTS] of its limits, 0 where bit i of ``unmeasured`` is set."""

    shares: list[float]
    unmeasured: int
    at_s: float
    newest_s: float


class MeasuredNodes:
    """All nodes. ``forget`` those that left."""

    def __init__(self) -> None:
        self.nodes: dict[str, MeasuredNode] = {}
        self._since_s: dict[str, float] = {}
        """When another machine got the name, or the last one left it, the oldest first; for ``GONE_S``."""

    def take(self, samples: Iterable[NodeSample], now_s: float) -> list[str]:
        """Take in what a source told; the nodes of which it was anything new, once each. What was measured before
        the name was another machine's is not of this one, however late it is told."""
        changed: dict[str, None] = {}
        for sample in samples:
            since_s = self._since_s.get(sample.node, NEVER_S)
            if now_s - sample.age_s < since_s:
                continue
            node = self.nodes.get(sample.node)
            if node is None:
                node = self.nodes[sample.node] = MeasuredNode(told_s=since_s)
            if self._merge(node, sample, now_s - sample.age_s):
                changed[sample.node] = None
        return list(changed)

    def forget(self, present: Mapping[str, int], now_s: float) -> None:
        """Leave out nodes that are gone, and those of which nobody tells any more."""
        for name in [name for name, node in self.nodes.items() if name not in present or _silent(node, now_s)]:
            del self.nodes[name]
        while self._since_s and now_s - next(iter(self._since_s.values())) > GONE_S:
            del self._since_s[next(iter(self._since_s))]

    def begin_anew(self, name: str, now_s: float) -> bool:
        """Another machine has the name, or none: what was measured up to now is not of it. Whether anything was, or may
        have been."""
        lately = self._since_s.pop(name, None) is not None
        self._since_s[name] = now_s
        return self.nodes.pop(name, None) is not None or lately

    def left_lately(self, name: str) -> bool:
        """Whether a machine of that name went, or was followed by another, in the last ``GONE_S``."""
        return name in self._since_s

    def expire(self, now_s: float) -> list[str]:
        """Latencies, delays and use that nobody has renewed are none; the nodes whose they were. Those that end in a
        moment end with them: each look is one at all nodes."""
        end_s = now_s + TOGETHER_S
        old = [name for name, node in self.nodes.items() if node.expires_s <= end_s]
        for name in old:
            self.nodes[name].expire(end_s)
        return old

    @property
    def expires_s(self) -> float:
        """When the next of them does."""
        return min((node.expires_s for node in self.nodes.values()), default=NO_END_S)

    def sample(self, name: str, table: NodeTable, row: int) -> UsageSample | None:
        """The node's sample, as shares of what it has; None where no part of it is measured."""
        node = self.nodes.get(name)
        if node is None:
            return None
        has = (float(max(1, table.allocatable[CPU_COLUMN, row])), float(max(1, table.allocatable[MEMORY_COLUMN, row])))
        scales: Sequence[float] = (*has, 1.0, 1.0)
        node.beyond = {
            place: f"{NAMES[place]}: {part.amount:.4g} is beyond {most:g} times the node's {scale:.4g}; it cannot be"
            for place, (part, scale, most) in enumerate(zip(node.parts, scales, BEYOND, strict=True))
            if part is not None and part.amount > most * scale
        }
        fresh = node.fresh()
        known = [part for part in fresh if part is not None]
        if not known:
            return None
        shares = [
            min(MOST_SHARE, part.amount / scale) if part is not None else 0.0
            for part, scale in zip(fresh, scales, strict=True)
        ]
        unmeasured = sum(1 << place for place, part in enumerate(fresh) if part is None)
        return UsageSample(shares, unmeasured, min(part.at_s for part in known), node.newest_s)

    @staticmethod
    def _merge(node: MeasuredNode, sample: NodeSample, at_s: float) -> bool:
        new = False
        for place, amount in enumerate((sample.cpu_millis, sample.memory_bytes, sample.disk, sample.network)):
            known = node.parts[place]
            if amount is not None and amount >= 0 and (known is None or at_s > known.at_s):
                if place == MEMORY and _leaps(node, float(amount), at_s):
                    continue
                node.parts[place] = UsagePart(float(amount), at_s, sample.source)
                new = node.counts = True
        if sample.latencies is None:
            node.noted = {**node.noted, sample.source: sample.missing}
        elif at_s > node.told_s:  # sensors tell all of it, or nothing
            node.told_s = at_s
            doubted = _doubted(node.medians, sample.latencies)
            node.medians = {to: median for to, (median, _) in sample.latencies.items()}
            node.latencies = {to: told for to, told in sample.latencies.items() if to not in doubted}
            node.delay_us = sample.delay_us
            node.pressure, node.missing = sample.pressure, (*sample.missing, *doubted.values())
            node.oom_kills += sample.oom_kills or 0
            new = True
        return new


def _leaps(node: MeasuredNode, amount: float, at_s: float) -> bool:
    """Whether memory in use is to be told again before it counts."""
    known = node.parts[MEMORY]
    doubted, node.leapt = node.leapt, None
    if known is None or at_s - known.at_s > STALE_S or not _far(known.amount, amount):
        return False
    if doubted is not None and not _far(doubted, amount):
        return False
    node.leapt = amount
    return True


def _far(one: float, other: float) -> bool:
    return max(one, other) > JUMP * max(1.0, min(one, other))


def _doubted(before: Mapping[str, int], now: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Targets whose latency jumped, with a line that says so."""
    found = {}
    for target, (median, _) in now.items():
        was = before.get(target, median)
        if _far(was, median):
            found[target] = (
                f"latency: {target} jumped from {was / 1000:g} to {median / 1000:g} ms; it counts when it is told again"
            )
    return found


def _silent(node: MeasuredNode, now_s: float) -> bool:
    return now_s - max(node.newest_s, node.told_s) > GONE_S


class Telling:
    """Which agent has been told which samples, so that each goes to it once. ``stamp`` counts changes of nodes."""

    def __init__(self) -> None:
        self._stamp = 0
        self._changed: dict[str, int] = {}
        """Stamp by node, the last to change at the end."""
        self._told: dict[str, tuple[int, int, int]] = {}

    def changed(self, nodes: Iterable[str]) -> None:
        """There is something new of these."""
        for node in nodes:
            self._stamp += 1
            self._changed.pop(node, None)
            self._changed[node] = self._stamp

    def anew(self) -> None:
        """Every agent is told all."""
        self._told.clear()

    @property
    def agents(self) -> int:
        """How many agents it remembers."""
        return len(self._told)

    def forget(self, present: Mapping[str, int]) -> None:
        """Leave out nodes that are gone, and agents that were not asked while every node was measured twice: whoever
        comes back is told everything."""
        least = self._stamp - 2 * len(self._changed)
        self._told = {agent: told for agent, told in self._told.items() if told[2] >= least}
        for node in [node for node in self._changed if node not in present]:
            del self._changed[node]

    def news(self, agent: str, epoch: int, slots: Mapping[int, str]) -> Iterator[tuple[int, str]]:
        """(slot, node) of the agent's nodes of which it was not told the newest; counts as told from here on. All of
        them in a new epoch, and where it has another number of nodes; one that changed places with another is told of
        at its next measurement."""
        before, self._told[agent] = self._told.get(agent), (epoch, len(slots), self._stamp)
        if before == self._told[agent]:
            return
        if before is None or before[:2] != (epoch, len(slots)):
            yield from ((slot, node) for slot, node in slots.items() if node in self._changed)
            return
        fresh = []
        for node, stamp in reversed(self._changed.items()):
            if stamp <= before[2]:
                break
            fresh.append(node)
        if fresh:
            slot_of = {node: slot for slot, node in slots.items()}
            yield from ((slot_of[node], node) for node in fresh if node in slot_of)
