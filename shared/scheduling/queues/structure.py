"""The tree out of the Queue objects: who stands below whom, which limits hold, and what is wrong with each.

A queue that cannot be used as it is written keeps its place (its pods go on to count) and has a ``problem``: its units,
and those below it, wait and are told. A name that is used and has no Queue object (deleted while in use, or never
there) gets a place too, for the same reason. Everything else goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.model.resources import at_least_text, at_most_text
from shared.model.units.queue import MAX_DEPTH, Queue, QueueStrategy
from shared.scheduling.queues.nodes import Limit, QueueLine, QueueNode
from shared.scheduling.queues.share import ShareScale


@dataclass(slots=True)
class Structure:
    """``nodes``: by name, the root under ""; ``bindings``: the queue of each namespace; ``warnings``: what people
    should correct of a queue that is used all the same, by name: (reason, message)."""

    root: QueueNode
    nodes: dict[str, QueueNode]
    bindings: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    strategy: QueueStrategy = QueueStrategy.DRF

    def warn(self, name: str, reason: str, message: str) -> None:
        self.warnings.setdefault(name, []).append((reason, message))


def bindings_of(queues: Iterable[Queue]) -> tuple[dict[str, str], dict[str, list[tuple[str, str]]]]:
    """The queue of each namespace, and what is wrong: of two that name one namespace, the first by name has it."""
    bindings: dict[str, str] = {}
    doubles: dict[str, list[tuple[str, str]]] = {}
    for queue in sorted(queues, key=lambda queue: queue.name):
        for namespace in queue.namespaces:
            owner = bindings.setdefault(namespace, queue.name)
            if owner != queue.name:
                message = f"spec.namespaces: {namespace} is bound to queue {owner}; name it in one of the two only"
                doubles.setdefault(queue.name, []).append(("NamespaceBoundTwice", message))
    return bindings, doubles


def build(
    queues: Mapping[str, Queue],
    lines: Mapping[str, QueueLine],
    last: Mapping[str, Queue],
    capacity: Mapping[str, int],
    strategy: QueueStrategy,
) -> Structure:
    """The whole tree, with sums taken from the lines. ``lines``: by queue name, "" for units without a queue; ``last``:
    how deleted queues were written. ``strategy``: among the queues at the top. Costs as queues and shapes."""
    root = QueueNode(Queue("", guaranteed=dict(capacity), strategy=strategy), lines[""])
    bindings, doubles = bindings_of(queues.values())
    found = Structure(root, {"": root}, bindings, doubles, strategy)
    for name, queue in queues.items():
        found.nodes[name] = QueueNode(queue, lines.get(name) or QueueLine(name))
    for name in (*lines, *(queue.parent for queue in queues.values())):
        if name not in found.nodes:
            found.nodes[name] = _ghost(name, last.get(name), lines.get(name) or QueueLine(name))
    _connect(found, queues)
    _promises(found)
    ordered = sorted(found.nodes.values(), key=lambda node: -node.depth)
    for node in ordered:
        _limit(node)
    for node in ordered:
        _sum_up(node)
    _rescale(root, dict(capacity))
    for line in lines.values():
        line.free_all()
    return found


def _ghost(name: str, before: Queue | None, line: QueueLine) -> QueueNode:
    if before is None:
        problem = "there is no Queue of this name; create it, or correct the label conclave.io/queue"
        return QueueNode(Queue(name, problem=problem), line)
    problem = "the Queue was deleted; its pods count until they end. Create it again, or give its units another queue"
    return QueueNode(Queue(name, before.parent, weight=before.weight, problem=problem), line)


def _connect(found: Structure, queues: Mapping[str, Queue]) -> None:
    """Parents, depths and problems of the shape: loops, a parent that is not there, too deep."""
    nodes = found.nodes
    for name, node in nodes.items():
        if not name:
            continue
        above, seen = node.queue.parent, [name]
        while above and above in nodes and above not in seen:
            seen.append(above)
            above = nodes[above].queue.parent
        if above in seen:
            if above == name:
                loop = " -> ".join([*seen, name])
                node.problem = f"spec.parent: {loop} is a loop; let one of them have another parent, or none"
                node.parent = found.root
            else:
                node.parent = nodes[node.queue.parent]
            continue
        chain = [other for other in reversed(seen) if other != name]
        parent = nodes.get(node.queue.parent) if node.queue.parent else found.root
        if len(seen) > MAX_DEPTH and name in queues:
            node.problem = (
                f"spec.parent: the queue would be on level {len(seen)}, the deepest is {MAX_DEPTH}; give it a parent "
                "further up"
            )
            parent = nodes[chain[MAX_DEPTH - 1]]
        if node.queue.parent and node.queue.parent not in queues and name in queues:
            node.problem = f"spec.parent: there is no Queue {node.queue.parent}; create it or correct the field"
        node.parent = parent if parent is not None else found.root
    for name, node in nodes.items():
        if name and node.parent is not None:
            node.parent.children[name] = node
    level, depth = [found.root], 0
    while level:
        for node in level:
            node.depth = depth
        level, depth = [child for node in level for child in node.children.values()], depth + 1


def _promises(found: Structure) -> None:
    """Children that are guaranteed more than their parent has to give."""
    for node in found.nodes.values():
        if node is found.root:
            continue
        for name in sorted({name for child in node.children.values() for name in child.guaranteed}):
            given = sum(child.guaranteed.get(name, 0) for child in node.children.values())
            has = node.guaranteed.get(name, 0)
            if given > has:
                children = sorted(child.name for child in node.children.values() if child.guaranteed.get(name))
                promised = at_least_text(name, given) + " together" * (len(children) > 1)
                found.warn(
                    node.name,
                    "PromisesTooMuch",
                    f"spec.guaranteed[{name}]: {', '.join(children)} {'are' if len(children) > 1 else 'is'} guaranteed "
                    f"{promised}, the queue itself {at_most_text(name, has)}; guarantee the queue more, or them less",
                )


def _limit(node: QueueNode) -> None:
    """Its limits; and what it and those below it keep. Children come first."""
    queue, guaranteed = node.queue, node.guaranteed
    if node.parent is None:
        node.limits = {name: Limit(amount, "what there is") for name, amount in guaranteed.items()}
    for name, amount in queue.maximum.items():
        node.limits[name] = Limit(amount, "maximum")
    for name, amount in (queue.borrowing or {}).items():
        most = guaranteed.get(name, 0) + amount
        known = node.limits.get(name)
        if known is None or most < known.amount:
            node.limits[name] = Limit(most, "guaranteed and borrowing limit")
    for name, lent in (queue.lending or {}).items():
        if node.parent is not None and guaranteed.get(name, 0) > lent:
            node.kept[name] = guaranteed[name] - lent
    for child in node.children.values():
        for name in child.kept.keys() | child.slack.keys():
            node.slack[name] = node.slack.get(name, 0) + child.kept.get(name, 0) + child.slack.get(name, 0)


def _sum_up(node: QueueNode) -> None:
    """Sums over its line and its children, which come first; and the order of its own line."""
    line = node.own
    line.order = node.queue.order
    node.used, node.inner, node.pending = dict(line.used), dict(line.used), len(line.units)
    for child in node.children.values():
        node.pending += child.pending
        for name, amount in child.used.items():
            node.used[name] = node.used.get(name, 0) + amount
        for name in child.inner.keys() | child.kept.keys():
            takes = max(child.inner.get(name, 0), child.kept.get(name, 0))
            node.inner[name] = node.inner.get(name, 0) + takes


def _rescale(root: QueueNode, capacity: dict[str, int]) -> None:
    """What shares are taken of: with DRF the cluster's totals, else what can be lent in the queue's tree, of what is
    guaranteed to any child (Kueue's covered resources: what nobody set a quota of, such as ``pods``, is not borrowed);
    where nothing is, of all."""
    level: list[tuple[QueueNode, dict[str, int]]] = [(root, capacity)]
    while level:
        below: list[tuple[QueueNode, dict[str, int]]] = []
        for node, reach in level:
            lendable = dict(reach)
            for child in node.children.values():
                for name, amount in child.kept.items():
                    lendable[name] = lendable.get(name, 0) - amount
            contenders = node.contenders()
            named = {name for child in node.children.values() for name in child.guaranteed} or lendable.keys()
            shared = {name: amount for name, amount in lendable.items() if name in named}
            node.totals = capacity if node.queue.strategy is QueueStrategy.DRF else shared
            scale = ShareScale.of(node.totals, (contender.weight for contender in contenders))
            for contender in contenders:
                contender.factors = scale.factors(contender.weight)
            below.extend((child, _reach(child, lendable)) for child in node.children.values())
        level = below


def _reach(child: QueueNode, lendable: Mapping[str, int]) -> dict[str, int]:
    """The most that a queue could ever use: what it keeps, and what is lent around it, up to its limits."""
    reach = {name: amount + child.kept.get(name, 0) for name, amount in lendable.items()}
    return {name: min(amount, child.limits[name].amount if name in child.limits else amount)
            for name, amount in reach.items()}  # fmt: skip
