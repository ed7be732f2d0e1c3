"""What every node lends, and what of it is to be written now. Pure.

    nodes, pods, metrics --look--> NodeLoan --due--> LoanWrite --settled / foreign--> ledger

A value of another's is never written over: who writes says what stands in ``managedFields`` (``loan_writes.py``), and
the node is left alone. What is lent is raised only after a whole window: a new leader goes on with what it finds. It is
lowered without one, at once by more than ``change_percent``. While lending is off, what was lent is taken away, and
nothing else is done. It is taken away too where metrics have been gone for too long: 0 would say that all of it is
needed, and whoever runs on it has to leave. Once they are back, who still runs on what was taken away is told at once
what there is, and before a whole window nobody else comes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from services.coordinator.lending.node_loan import Amounts, NodeLoan, UseOf, judge
from services.coordinator.lending.window import LoadWindow
from services.coordinator.usage.measured import MeasuredNode
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.qos import CPU_NAMES, LENT_DOMAIN, is_lent, lent_cpu, lent_memory
from shared.scheduling.lending.rule import LendingRule

LOOK_S = 15.0
"""How often a node is looked at of which nothing is new."""
REST_S = 5.0
"""So long after a write the watch may take to show it."""
ASK_AGAIN_S = 3600.0
"""How often it is asked whether a node is another's still; it is not once its value is gone."""
KUBELET = "kubelet"
"""Its field manager. It lends nothing: what it has reset is written again, and only while we take away it is left."""


class LoanWrite(Struct, frozen=True):
    """``amounts`` None: take away what we lent. ``certain``: that the value that is there is ours."""

    node: str
    amounts: Amounts | None
    certain: bool


@dataclass(slots=True)
class _Standing:
    """Of one node, what was written and by whom. ``ours``: what is there was written by us in this term; ``others``:
    what is there under other names; ``nobodys``: the same, when nobody was found to lend it."""

    loan: NodeLoan
    looked: tuple[float, int, float, str] = (-math.inf, -1, -math.inf, "")
    has: Amounts = (0, 0)
    ours: bool = False
    written_s: float = 0.0
    rest_s: float = -math.inf
    foreign: str = ""
    ask_s: float = math.inf
    others: tuple[tuple[str, int], ...] = ()
    nobodys: tuple[tuple[str, int], ...] = ()


class LoanShown(Struct, frozen=True, kw_only=True):
    """What a node lends to offline pods. ``why``: what that follows from, in a line; ``by``: another manager that
    writes it; ``doubts``: metrics that are not believed."""

    cpu_millis: int
    memory_bytes: int
    why: str
    by: str = ""
    doubts: list[str] = []


class LoanLedger:
    """One term's."""

    def __init__(self, rule: LendingRule, *, on: bool, domain: str = LENT_DOMAIN) -> None:
        self.rule = rule
        self.on = on
        self.names = lent_cpu(domain), lent_memory(domain)
        self._nodes: dict[str, _Standing] = {}
        self.writes = 0
        self.figures: Mapping[str, int] = {}
        """Sums over all nodes."""

    # --- looking --------------------------------------------------------------------------------------------------

    def stale(self, node: Node, measured: MeasuredNode | None, now_s: float, *, generation: int = 0) -> bool:
        """Whether the node is to be judged anew: anything of it changed, or it is time. ``generation``: of its
        accounting."""
        standing = self._standing(node, now_s)
        newest_s = measured.newest_s if measured is not None else -math.inf
        looked_s, *was = standing.looked
        if was == [generation, newest_s, node.resource_version] and now_s - looked_s < LOOK_S:
            return False
        standing.looked = now_s, generation, newest_s, node.resource_version
        return True

    def look(self, node: Node, pods: Sequence[Pod], measured: MeasuredNode | None, use_of: UseOf, now_s: float) -> None:
        """Judge the node anew."""
        judge(self._standing(node, now_s).loan, node, pods, measured, use_of, self.rule, now_s)

    def tune(self, rule: LendingRule, *, on: bool) -> None:
        """Go by other settings from now on."""
        if rule.window_s != self.rule.window_s:
            for standing in self._nodes.values():
                standing.loan.window = LoadWindow(rule.window_s)
        if on and not self.on:
            self._nodes.clear()  # what was measured before is not known to be without a gap
        self.rule, self.on = rule, on

    def forget(self, present: Mapping[str, int]) -> None:
        """Leave out nodes that are gone."""
        for name in [name for name in self._nodes if name not in present]:
            del self._nodes[name]

    def _standing(self, node: Node, now_s: float) -> _Standing:
        standing = self._nodes.get(node.name)
        if standing is None or standing.loan.uid != node.uid:
            loan = NodeLoan(node.uid, LoadWindow(self.rule.window_s))
            standing = self._nodes[node.name] = _Standing(loan, written_s=now_s)
        return standing

    # --- writing --------------------------------------------------------------------------------------------------

    def due(self, node: Node, now_s: float) -> LoanWrite | None:
        """What is to be written of the node now, if anything."""
        there, others = self.there(node), self._others(node)
        if not self.on and not (there or others):
            if node.name in self._nodes:
                self._nodes[node.name].has = 0, 0
            return None
        standing = self._standing(node, now_s)
        standing.has, standing.others = self._amounts(there), others
        away = not self.on or (standing.loan.degraded and bool(there))
        if standing.foreign and (not (there or others) or now_s >= standing.ask_s):
            standing.foreign = ""
        if standing.foreign == KUBELET and not away:
            standing.foreign = ""
        if standing.foreign or now_s < standing.rest_s:
            return None
        asked = others == standing.nobodys and now_s < standing.ask_s
        certain = (not others or asked) and (standing.ours or not there)
        if away:
            return LoanWrite(node.name, None, certain)
        amounts = self._wanted(standing, there, now_s)
        if amounts is None and there and others and not asked:
            amounts = standing.has  # whoever lends there lends the same room: one of the two stops
        return LoanWrite(node.name, amounts, certain) if amounts is not None else None

    def _others(self, node: Node) -> tuple[tuple[str, int], ...]:
        """What it lends under names that are not ours (now)."""
        return tuple(
            one for one in node.allocatable.items() if "/" in one[0] and one[0] not in self.names and is_lent(one[0])
        )

    def there(self, node: Node) -> dict[str, int]:
        """What the node says it lends."""
        return {name: node.allocatable[name] for name in self.names if name in node.allocatable}

    def _amounts(self, there: Mapping[str, int]) -> Amounts:
        return there.get(self.names[0], 0), there.get(self.names[1], 0)

    def _wanted(self, standing: _Standing, there: Mapping[str, int], now_s: float) -> Amounts | None:
        """What is to be written; None: nothing."""
        want, rule = standing.loan.want, self.rule
        if want is None:
            return None
        has, held = self._amounts(there), standing.loan.held
        if not standing.loan.window.full:
            most = (there.get(name, amount) for name, amount in zip(self.names, held, strict=True))
            cpu, memory = (min(of, of_it) for of, of_it in zip(want, most, strict=True))
            want = cpu, memory
        if any(amount and name not in there for name, amount in zip(self.names, held, strict=True)):
            return want  # nobody leaves for what the node does not name
        if want == has:
            return None
        rest = now_s - standing.written_s < rule.rewrite_s
        if rest and not any(_differs(of, before, rule) for of, before in zip(want, has, strict=True)):
            return None
        return want

    def started(self, name: str, now_s: float) -> None:
        """A write of the node is under way."""
        self.rest(name, now_s + REST_S)

    def rest(self, name: str, until_s: float) -> None:
        """Leave the node as it is until then."""
        standing = self._nodes.get(name)
        if standing is not None:
            standing.rest_s = until_s

    def settled(self, name: str, now_s: float, *, ours: bool) -> None:
        """What was to be written was; ``ours`` False: taken away, and what is there now is another's."""
        standing = self._nodes.get(name)
        self.writes += 1
        if standing is not None:
            standing.ours, standing.written_s, standing.rest_s = ours, now_s, now_s + REST_S
            standing.nobodys, standing.ask_s = standing.others, now_s + ASK_AGAIN_S

    def owned_by(self, name: str, manager: str, now_s: float) -> None:
        """The value of the node is another manager's."""
        standing = self._nodes.get(name)
        if standing is not None:
            standing.foreign, standing.ours, standing.nobodys = manager, False, ()
            standing.ask_s = now_s + ASK_AGAIN_S if self.on else math.inf

    def other_on(self, name: str) -> str:
        """Who else lends on the node; "" for nobody that we know of."""
        standing = self._nodes.get(name)
        return standing.foreign if standing is not None else ""

    # --- for people -------------------------------------------------------------------------------------------------

    def shown(self, node: Node) -> LoanShown | None:
        """What the node lends, and why; None where lending is off and nothing is there."""
        there = self.there(node)
        standing = self._nodes.get(node.name)
        if not self.on and not there:
            return None
        foreign = standing is not None and bool(standing.foreign)
        cpu, memory = _lent_as(self._others(node)) if foreign and not there else self._amounts(there)
        loan = standing.loan if standing is not None else None
        return LoanShown(
            cpu_millis=cpu,
            memory_bytes=memory,
            why=self._why(standing, there),
            by=standing.foreign if standing is not None else "",
            doubts=list(loan.doubts) if loan is not None else [],
        )

    def _why(self, standing: _Standing | None, there: Mapping[str, int]) -> str:
        if standing is not None and standing.foreign:
            return f"{standing.foreign} writes it; we leave it alone"
        if not self.on:
            return "lending is off; what is there is another's, or is about to be taken away"
        if standing is None or standing.loan.want is None:
            return standing.loan.why if standing is not None and standing.loan.why else "not looked at yet"
        window = standing.loan.window
        more = any(of > has for of, has in zip(standing.loan.want, self._amounts(there), strict=True))
        if more and not window.full:
            return f"{standing.loan.why}; it is raised after {self.rule.window_s:g} s of metrics without a gap"
        return standing.loan.why

    def tally(self) -> None:
        """Count up ``figures``, over all nodes."""
        found: Counter[str] = Counter()
        for standing in self._nodes.values():
            found["foreign"] += bool(standing.foreign)
            found["doubted"] += self.on and bool(standing.loan.doubts)
            found["degraded"] += self.on and standing.loan.degraded
            if not standing.foreign:
                found["cpu_millis"] += standing.has[0]
                found["memory_bytes"] += standing.has[1]
                found["lending"] += any(standing.has)
        self.figures = dict(found)


def _lent_as(others: Iterable[tuple[str, int]]) -> Amounts:
    """What others lend, whatever their domains; of two that lend the same, the greater."""
    cpu = memory = 0
    for name, amount in others:
        if name.rpartition("/")[2] in CPU_NAMES:
            cpu = max(cpu, amount)
        else:
            memory = max(memory, amount)
    return cpu, memory


def _differs(amount: int, before: int, rule: LendingRule) -> bool:
    """As Koordinator: by more than so much of what is there, and where there is nothing at all, by anything."""
    return abs(amount - before) > before * rule.change_percent / 100
