"""Trees for tests: queues in a line each, units by amounts."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from shared.model.units.queue import Queue
from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.nodes import Amounts, Charge, WaitingUnit
from shared.scheduling.queues.reclaim import lowered
from shared.scheduling.queues.reclaim.search import Reclaim, reclaim
from shared.scheduling.queues.reclaim.victims import Stock
from shared.scheduling.queues.tree import QueueTree


class World:
    """A tree, and a clock of arrivals."""

    def __init__(self, *queues: Queue, **capacity: int) -> None:
        self.tree = QueueTree()
        self.arrivals = 0
        self.tree.set_capacity(named(capacity))
        for queue in queues:
            self.tree.put_queue(queue)

    def wait(
        self, label: str, count: int = 1, *, priority: int = 0, namespace: str = "ns", **amounts: int
    ) -> list[str]:
        keys = []
        for _ in range(count):
            self.arrivals += 1
            key = f"{label or namespace}-{self.arrivals}"
            asked = tuple(sorted(named(amounts).items()))
            self.tree.add(WaitingUnit(key, namespace, label, priority, self.arrivals, asked))
            keys.append(key)
        return keys

    def run(self, label: str, count: int = 1, *, since: float | None = 0.0, unit: str = "", **facts: Any) -> list[str]:
        """Pods that count already."""
        keys = []
        known = {name: facts.pop(name) for name in ("priority", "least", "evictable", "leaving") if name in facts}
        namespace = facts.pop("namespace", "ns")
        for _ in range(count):
            self.arrivals += 1
            key = f"run-{label or namespace}-{self.arrivals}"
            amounts = tuple(sorted(named(facts).items()))
            self.tree.charge(Charge(key, namespace, label, amounts, unit or key, since=since, **known))
            keys.append(key)
        return keys

    def next(self) -> str:
        """The unit that goes next goes; "": none may."""
        unit = self.tree.front()
        while unit is None and self.tree.more:
            unit = self.tree.front()
        if unit is None:
            return ""
        self.tree.take(unit)
        assert list(self.tree.validate()) == []
        return unit.key

    def all(self, most: int = 10_000) -> list[str]:
        """All that go, in order."""
        found = []
        while len(found) < most and (key := self.next()):
            found.append(key)
        return found

    def fill(self, most: int = 10_000) -> list[str]:
        """As ``all``, but only what the cluster has room for: the queues' names, in order."""
        found: list[str] = []
        tree = self.tree
        while len(found) < most and (unit := tree.front()) is not None:
            used = tree.structure.root.used
            if any(used.get(name, 0) + amount > tree.capacity.get(name, 0) for name, amount in unit.amounts):
                tree.remove(unit.key)  # no node takes it
                continue
            found.append(unit.label)
            tree.take(unit)
        return found

    def used(self, name: str) -> dict[str, int]:
        return {key: amount for key, amount in self.tree.structure.nodes[name].used.items() if amount}

    def problem(self, name: str) -> str:
        return self.tree.structure.nodes[name].problem


class Pool:
    """Nodes as one: room is what the cluster has beside the pods that count and neither leave nor are gone."""

    work = 0

    def __init__(self, tree: QueueTree, amounts: Amounts) -> None:
        self._tree = tree
        self._amounts = amounts
        self._gone: set[str] = set()

    def fits(self, gone: Iterable[Charge]) -> bool:
        self._gone = {pod.uid for pod in gone}
        return self._enough(self._gone)

    def spares(self, back: Iterable[Charge]) -> bool:
        left = self._gone - {pod.uid for pod in back}
        if not self._enough(left):
            return False
        self._gone = left
        return True

    def _enough(self, gone: set[str]) -> bool:
        stay = [pod for uid, pod in self._tree.charges.items() if uid not in gone and not pod.leaving]
        return all(
            amount + sum(dict(pod.amounts).get(name, 0) for pod in stay) <= self._tree.capacity[name]
            for name, amount in self._amounts
        )


def named(amounts: dict[str, int]) -> dict[str, int]:
    return {name.replace("_", "-"): amount for name, amount in amounts.items()}


def queue(name: str, parent: str = "", weight: float | str = 1, **fields: Any) -> Queue:
    return Queue(name, parent, weight=Fraction(str(weight)), **fields)


def ask(world: World, key: str, *, waited_s: float = 1e9, now: float = 1e6) -> Reclaim:
    """As the coordinator asks: nodes are one pool here."""
    tree = world.tree
    unit = tree.units[key]
    blocked = tree.blocked(unit.line, unit.amounts) if tree.structure else None
    room = Pool(tree, unit.amounts)
    return reclaim(tree, unit, now, room=room, waited_s=waited_s, blocked=blocked)


def over_limit(world: World, name: str) -> Reclaim:
    """What a limit of this queue that has fallen takes back."""
    return in_one_go(lowered.over_limit(world.tree, name, Stock(world.tree, 1e6)))
