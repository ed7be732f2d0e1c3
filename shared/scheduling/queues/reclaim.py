"""Whom to evict so that a queue gets back what was borrowed from it, and what goes when a limit falls below the use.

    S1    the queue stays within its guarantee with the unit: whoever uses more than its own guarantee gives back,
          in proportion to what it borrowed
    S2-a  (FairShare) the share of the victim's queue without the victim is no smaller than ours with the unit
    S2-b  (FairShare) it was larger before, for one victim per queue
Shares are compared between the two children of the queue that both sides have in common (Kueue KEP-1714).

Within a queue the lowest priority goes first, then members that a gang can spare, then the newest; a gang whose minimum
would be broken goes whole, and a second one only after it. Pods that have not run for the queue's minimum run time, opt
out or are leaving already are no victims: the next is taken. Victims that turn out to be needless are put back.

Why it ends: a queue that was above its guarantee before a victim cannot be within it with that victim again (S1); one
whose share was no smaller than ours afterwards is larger than ours with it (S2-a). So nobody takes back what was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from shared.model.queue import ReclaimUpTo, Strategy
from shared.scheduling.queues.nodes import Blocked, Charge, Contender, Line, Node, Waiting, lines_of
from shared.scheduling.queues.share import borrowed_share, dominant_share
from shared.scheduling.queues.tree import QueueTree

Enough = Callable[[frozenset[str]], bool]
"""Whether there is room for the unit once these pods (uids) are gone, by what nodes have free."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Pods to evict, in order; or, without any, why none are."""

    victims: tuple[Charge, ...] = ()
    reason: str = ""

    @property
    def uids(self) -> list[str]:
        """Of the victims."""
        return [pod.uid for pod in self.victims]


@dataclass(frozen=True, slots=True)
class Item:
    """What goes at once: one pod, or (``breaks``) what is left of a gang."""

    pods: tuple[Charge, ...]
    line: Line
    breaks: bool = False

    @property
    def unit(self) -> str:
        """Whose pods these are."""
        return self.pods[0].unit

    @property
    def amounts(self) -> dict[str, int]:
        """Of all its pods."""
        found: dict[str, int] = {}
        for pod in self.pods:
            for name, amount in pod.amounts:
                found[name] = found.get(name, 0) + amount
        return found


@dataclass(slots=True)
class _Trial:
    """The tree's sums as they would be without the victims, and with the unit."""

    tree: QueueTree
    gone: dict[Contender, dict[str, int]] = field(default_factory=dict)
    victims: list[Item] = field(default_factory=list)

    @classmethod
    def of(cls, tree: QueueTree, coming: Iterable[Charge]) -> _Trial:
        """With what is decided: as if those that are leaving had left, and those they leave for had come."""
        trial = cls(tree)
        for pod in tree.charges.values():
            if pod.leaving:
                trial._shift(pod.line, dict(pod.amounts), 1)
        for pod in coming:
            if pod.uid not in tree.charges:
                trial._shift(tree.lines.get(tree.line_name(pod.label, pod.namespace)), dict(pod.amounts), -1)
        return trial

    def used(self, of: Contender) -> dict[str, int]:
        less = self.gone.get(of, {})
        return {name: amount - less.get(name, 0) for name, amount in of.used.items()}

    def add(self, item: Item, sign: int = 1) -> None:
        self._shift(item.line, item.amounts, sign)
        if sign > 0:
            self.victims.append(item)
        else:
            self.victims.remove(item)

    def _shift(self, of: Contender | None, amounts: Mapping[str, int], sign: int) -> None:
        while of is not None:
            less = self.gone.setdefault(of, {})
            for name, amount in amounts.items():
                less[name] = less.get(name, 0) + sign * amount
            of = of.parent

    def uids(self) -> frozenset[str]:
        return frozenset(pod.uid for item in self.victims for pod in item.pods)

    def over(self, of: Contender, names: Mapping[str, int]) -> bool:
        """Whether it uses more than it is guaranteed of one of these."""
        used = self.used(of)
        return any(used.get(name, 0) > of.guaranteed.get(name, 0) for name in names)

    def share(
        self, of: Contender, plus: Mapping[str, int] | None = None, minus: Mapping[str, int] | None = None
    ) -> Fraction:
        """Its share among its siblings, with and without these amounts."""
        node = of.parent
        assert node is not None
        used = self.used(of)
        for name, amount in (plus or {}).items():
            used[name] = used.get(name, 0) + amount
        for name, amount in (minus or {}).items():
            used[name] = used.get(name, 0) - amount
        totals = node.totals
        if node.queue.strategy is Strategy.DRF:
            return dominant_share(used, totals, of.weight)
        return borrowed_share(used, of.guaranteed, totals, of.weight)


def items_of(line: Line, now: float, *, protect: bool = True) -> list[Item]:
    """What of a line may be evicted, in order. ``protect`` False: however short it has run."""
    queue = line.parent.queue if line.parent is not None else None
    least_s = queue.min_run_s if queue is not None and protect else 0.0
    units: dict[str, list[Charge]] = {}
    for pod in line.charges.values():
        if not pod.leaving:
            units.setdefault(pod.unit, []).append(pod)
    found: list[tuple[tuple[int, int, float, str], Item]] = []
    for pods in units.values():
        pods.sort(key=lambda pod: (-(pod.since if pod.since is not None else now), pod.uid))
        movable = [p for p in pods if p.evictable and p.since is not None and now - p.since >= least_s]
        least = max(pod.least for pod in pods)
        spare = max(0, len(pods) - least) if least > 1 else 0
        surplus = movable[:spare]
        found.extend((_order(pod, whole=False), Item((pod,), line)) for pod in surplus)
        rest = [pod for pod in pods if pod not in surplus]
        if rest and all(pod in movable for pod in rest):
            found.append((_order(rest[0], whole=least > 1), Item(tuple(rest), line, least > 1)))
    return [item for _, item in sorted(found, key=lambda entry: entry[0])]


def _order(pod: Charge, *, whole: bool) -> tuple[int, int, float, str]:
    return pod.priority, int(whole), -(pod.since or 0.0), pod.uid


def reclaim(
    tree: QueueTree,
    unit: Waiting,
    now: float, *,
    enough: Enough,
    waited_s: float,
    blocked: Blocked | None = None,
    among: Callable[[Charge], bool] | None = None,
    coming: Iterable[Charge] = (),
) -> Reclaim:  # fmt: skip
    """Whom to evict for the unit. ``enough``: whether the nodes have room without these pods; ``waited_s``: for how
    long nothing else has kept it; ``blocked``: the limit that holds it back, None where only the nodes do; ``among``:
    pods that help (of those that go together one is enough); None: all do; ``coming``: pods for which room was made
    already, and that have not taken it yet."""
    tree.structure  # noqa: B018 (brings the tree up to date)
    home = unit.line.parent
    assert home is not None
    queue = home.queue
    if blocked is not None and (blocked.problem or blocked.never):
        return Reclaim(reason=blocked.text())
    within = blocked is not None and blocked.node is home and not _by_others(home, blocked)
    if within:
        if not queue.preempts_within:
            return Reclaim(reason=blocked.text() if blocked is not None else "")
    elif not queue.reclaim:
        return Reclaim(reason=f"queue {home.name}: spec.reclaim is off")
    if waited_s < queue.reclaim_after_s and not within:
        return Reclaim(reason=f"queue {home.name}: reclaims after {queue.reclaim_after_s:g} s")

    def done(trial: _Trial) -> bool:
        if blocked is not None and not _admits(trial, unit):
            return False
        return enough(trial.uids())

    trial = _Trial.of(tree, coming)
    if done(trial):
        return Reclaim(reason="there is room for it without")
    asked = dict(unit.amounts)
    found = _own(trial, unit, home, now, done) if within else _others(trial, unit, asked, now, done, blocked, among)
    if not found:
        return Reclaim(reason=f"queue {home.name}: what others borrowed and may be evicted is not enough")
    return _without_needless(trial, done)


def _without_needless(trial: _Trial, done: Callable[[_Trial], bool]) -> Reclaim:
    """Put back whoever is not needed, the last first; what a broken gang could spare goes with it."""
    chosen = list(trial.victims)
    for item in reversed(chosen):
        if not item.breaks and any(other.breaks and other.unit == item.unit for other in trial.victims):
            continue
        trial.add(item, -1)
        if not done(trial):
            trial.add(item)
    return Reclaim(tuple(pod for item in chosen if item in trial.victims for pod in item.pods))


def _by_others(home: Node, blocked: Blocked) -> bool:
    """Whether queues below, not the queue's own pods, fill its limit."""
    return bool(home.children) and home.own.used.get(blocked.resource, 0) < home.used.get(blocked.resource, 0)


def _own(trial: _Trial, unit: Waiting, home: Node, now: float, done: Callable[[_Trial], bool]) -> bool:
    """Pods of lower priority in the same queue make room."""
    for item in items_of(home.own, now, protect=False):
        if max(pod.priority for pod in item.pods) >= unit.priority:
            continue
        trial.add(item)
        if done(trial):
            return True
    return False


def _others(
    trial: _Trial,
    unit: Waiting,
    asked: Mapping[str, int],
    now: float,
    done: Callable[[_Trial], bool],
    blocked: Blocked | None,
    among: Callable[[Charge], bool] | None,
) -> bool:
    chain = _chain(unit.line)
    top = blocked.node if blocked is not None else chain[-1]
    stacks = {line: items_of(line, now) for line in lines_of(top) if line is not unit.line}
    if among is not None:
        stacks = {line: [item for item in stack if any(map(among, item.pods))] for line, stack in stacks.items()}
    short = {blocked.resource: 1} if blocked is not None else dict(asked)
    initial = {line: _excess(trial, line, short) for line in stacks}
    fair = unit.line.parent is not None and unit.line.parent.queue.reclaim_up_to is ReclaimUpTo.FAIR_SHARE
    tests: list[_Test] = [_s1, _s2a, _s2b] if fair else [_s1]
    for test in tests:
        lines = {line for line, items in stacks.items() if items}
        while lines:
            allowed = [line for line in lines if test(trial, line, stacks[line][0], chain, asked, short)]
            if not allowed:
                break
            proportional = test is _s1
            line = max(
                allowed, key=lambda line: _offence(trial, line, short, initial, chain, proportional=proportional)
            )
            item = stacks[line].pop(0)
            trial.add(item)
            if done(trial):
                return True
            if not stacks[line] or test is _s2b:
                lines.discard(line)
    return False


_Test = Callable[[_Trial, Line, Item, list[Node], Mapping[str, int], Mapping[str, int]], bool]


def _chain(line: Line) -> list[Node]:
    found, node = [], line.parent
    while node is not None:
        found.append(node)
        node = node.parent
    return found


def _sides(line: Line, chain: list[Node]) -> tuple[list[Contender], list[Contender]]:
    """Below the queue that both have in common: (the victim's side, ours), from the line up."""
    theirs: list[Contender] = [line]
    node = line.parent
    while node is not None and node not in chain:
        theirs.append(node)
        node = node.parent
    assert node is not None
    ours: list[Contender] = list(chain[: chain.index(node)])
    return theirs, ours


def _s1(
    trial: _Trial, line: Line, item: Item, chain: list[Node], asked: Mapping[str, int], short: Mapping[str, int]
) -> bool:
    theirs, ours = _sides(line, chain)
    if not ours or not short.keys() & item.amounts.keys():
        return False
    wanted = [name for name in short if name in item.amounts and any(name in side.guaranteed for side in ours)]
    over = [n for n in wanted if all(trial.used(side).get(n, 0) > side.guaranteed.get(n, 0) for side in theirs)]
    for side in ours:
        used = trial.used(side)
        over = [n for n in over if used.get(n, 0) + asked.get(n, 0) <= side.guaranteed.get(n, 0)]
    return bool(over)


def _s2a(
    trial: _Trial, line: Line, item: Item, chain: list[Node], asked: Mapping[str, int], short: Mapping[str, int]
) -> bool:
    if not short.keys() & item.amounts.keys():
        return False
    theirs, ours = _sides(line, chain)
    mine = trial.share(ours[-1] if ours else chain[0].own, plus=asked)
    return trial.share(theirs[-1], minus=item.amounts) >= mine


def _s2b(
    trial: _Trial, line: Line, item: Item, chain: list[Node], asked: Mapping[str, int], short: Mapping[str, int]
) -> bool:
    if not short.keys() & item.amounts.keys():
        return False
    theirs, ours = _sides(line, chain)
    return trial.share(theirs[-1]) > trial.share(ours[-1] if ours else chain[0].own, plus=asked)


def _offence(
    trial: _Trial, line: Line, short: Mapping[str, int], initial: Mapping[Line, Fraction], chain: list[Node], *,
    proportional: bool,
) -> tuple[Fraction, Fraction, str]:  # fmt: skip
    """Larger gives first: in proportion to what was borrowed, then the worst offender."""
    theirs, _ = _sides(line, chain)
    share = trial.share(theirs[-1])
    left = _excess(trial, line, short) / initial[line] if proportional and initial[line] else Fraction(0)
    return left, share, line.name


def _excess(trial: _Trial, line: Line, short: Mapping[str, int]) -> Fraction:
    """What its queue uses beyond its guarantee of the resources that are short, over what there is."""
    node = line.parent
    assert node is not None
    used, capacity = trial.used(line), trial.tree.capacity
    parts = [
        Fraction(max(0, used.get(name, 0) - node.guaranteed.get(name, 0)), capacity[name])
        for name in short
        if capacity.get(name, 0) > 0
    ]
    return max(parts, default=Fraction(0))


def _admits(trial: _Trial, unit: Waiting) -> bool:
    """Whether the limits let the unit go once the victims are gone."""
    tree = trial.tree
    pods = [pod for item in trial.victims for pod in item.pods]
    tree.release(*(pod.uid for pod in pods))
    try:
        return tree.blocked(unit.line, unit.amounts) is None
    finally:
        tree.charge(*pods)


def over_limit(tree: QueueTree, name: str, now: float) -> Reclaim:
    """Whom to evict where a queue uses more than its limits since they were lowered: of the queue and those below it in
    proportion to what each has beyond its guarantee."""
    node = tree.structure.nodes[name]
    if not node.queue.reclaim:
        return Reclaim(reason=f"queue {name}: spec.reclaim is off")
    if all(node.used.get(resource, 0) <= limit.amount for resource, limit in node.limits.items()):
        return Reclaim(reason=f"queue {name} is within its limits")
    trial = _Trial(tree)
    leaving: dict[str, int] = {}
    for line in lines_of(node):
        for pod in line.charges.values():
            for resource, amount in pod.amounts if pod.leaving else ():
                leaving[resource] = leaving.get(resource, 0) + amount

    def too_much() -> dict[str, int]:
        used = trial.used(node)
        over = {r: used.get(r, 0) - leaving.get(r, 0) - limit.amount for r, limit in node.limits.items()}
        return {resource: amount for resource, amount in over.items() if amount > 0}

    stacks = {line: items for line in lines_of(node) if (items := items_of(line, now))}
    over = too_much()
    initial = {line: _excess(trial, line, over) for line in stacks}
    while over and stacks:
        if not (allowed := [line for line, items in stacks.items() if over.keys() & items[0].amounts.keys()]):
            break
        line = max(
            allowed,
            key=lambda line: (
                _excess(trial, line, over) / initial[line] if initial[line] else Fraction(-1),
                _excess(trial, line, over), line.name,
            ),
        )  # fmt: skip
        trial.add(stacks[line].pop(0))
        if not stacks[line]:
            del stacks[line]
        over = too_much()
    left = over.keys()
    return _without_needless(trial, lambda _: not too_much().keys() - left)
