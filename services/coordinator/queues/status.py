"""The status of Queue objects: what is used, how many units wait, and whether the queue can be used as it is written.

Level-triggered: every few seconds, where anything changed, the status of each queue is compared with what the API
server shows, and written where it differs. A write that gets lost is made again; nothing waits for any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from difflib import get_close_matches

from services.coordinator.core.instructions import TellQueue
from services.coordinator.core.state import CoordinatorState
from shared.model.qos import is_lent
from shared.model.resources import at_least_text, at_most_text, quantity_text
from shared.model.units.queue import QueueCondition, QueueStatus
from shared.scheduling.queues.nodes import QueueLine, QueueNode, lines_of
from shared.scheduling.queues.tree import QueueTree

EVERY_S = 2.0
"""How often statuses are compared."""

AGAIN_S = 10.0
"""A write that has not been seen for so long is made again."""

QUEUES_PER_TURN = 64


class QueueReporter:
    """One term's."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._at = 0.0
        self._version = (-1, -1)
        self._left: deque[str] = deque()
        self._asked: dict[str, tuple[QueueStatus, float]] = {}

    def step(self) -> None:
        """Compare some, and ask for what differs to be written."""
        state, tree = self._state, self._state.queues
        if not self._left and state.now >= self._at + EVERY_S:
            self._at = state.now
            if self._seen() != self._version or self._asked:
                self._version = self._seen()
                self._left.extend({**tree.queues, **self._asked})  # also of one that is gone
        for _ in range(min(QUEUES_PER_TURN, len(self._left))):
            self._look(self._left.popleft())

    def wake_at(self) -> float | None:
        """When there is something to compare."""
        if self._left:
            return self._state.now
        changed = self._seen() != self._version or self._asked
        return self._at + EVERY_S if changed else None

    def _seen(self) -> tuple[int, int]:
        turns = self._state.queue.turns
        return self._state.queues.version, turns.moves if turns is not None else 0

    def _look(self, name: str) -> None:
        state = self._state
        queue, node = state.cluster.queues.get(name), state.queues.structure.nodes.get(name)
        if queue is None or node is None:
            self._asked.pop(name, None)
            return
        status = status_of(node, warnings_of(node, state.queues), queue.generation, pending_in(state, node))
        if status == queue.written:
            self._asked.pop(name, None)
            return
        asked = self._asked.get(name)
        if asked is not None and asked[0] == status and state.now < asked[1] + AGAIN_S:
            return
        self._asked[name] = status, state.now
        state.out.append(TellQueue(queue, status))


def warnings_of(node: QueueNode, tree: QueueTree) -> list[tuple[str, str]]:
    """(reason, sentence) of all that should be corrected of a queue, though it is used."""
    found = [*tree.structure.warnings.get(node.name, ()), *_unknown_resources(node, tree)]
    if node.parent is not None and not node.parent.name:
        for name, amount in sorted(node.guaranteed.items()):
            if amount > tree.capacity.get(name, 0):
                has = at_most_text(name, tree.capacity.get(name, 0))
                text = f"spec.guaranteed[{name}]: {at_least_text(name, amount)} is more than the cluster has, {has}"
                found.append(("MoreThanThereIs", f"{text}; guarantee less, or add nodes"))
    return found


def _unknown_resources(node: QueueNode, tree: QueueTree) -> Iterator[tuple[str, str]]:
    """Limits of what no node has: most often a name that is misspelt. While there is no node nothing is known, and what
    is lent may be none for a while: a name of that is a mistake where another domain's is lent."""
    if not any(tree.capacity.values()):
        return
    queue, there = node.queue, [name for name, amount in tree.capacity.items() if amount]
    lent = {name.rpartition("/")[2] for name in there if is_lent(name)}
    for field, limits in (("maximum", queue.maximum), ("borrowingLimit", queue.borrowing or {})):
        for name in sorted(
            name for name in limits.keys() - set(there) if not is_lent(name) or name.rpartition("/")[2] in lent
        ):
            close = get_close_matches(name, there, n=1)
            meant = f"did you mean {close[0]}?" if close else "correct the name, or add nodes that have it"
            yield "UnknownResource", f"spec.{field}[{name}]: no node has this resource, so it limits nothing; {meant}"


def pending_in(state: CoordinatorState, node: QueueNode) -> int:
    """How many units of the queue, and of those below it, wait."""
    turns = state.queue.turns
    return turns.pending(node) if turns is not None else node.pending


def status_of(node: QueueNode, warnings: list[tuple[str, str]], generation: int, pending: int) -> QueueStatus:
    """What a queue's status should say. ``pending``: how many of its units wait."""
    above, problem = node.parent, node.problem
    reason = "CannotBeUsed"
    while not problem and above is not None:
        if above.problem:
            problem, reason = f"queue {above.name}, above it, cannot be used: {above.problem}", "ParentCannotBeUsed"
        above = above.parent
    ready = (
        QueueCondition("Ready", "False", reason, problem) if problem else QueueCondition("Ready", "True", "Used", "")
    )
    sound = QueueCondition("Consistent", "True", "NothingToCorrect", "")
    if warnings:
        text = "; ".join(message for _, message in warnings)
        sound = QueueCondition("Consistent", "False", warnings[0][0], text)
    used = {name: quantity_text(name, amount) for name, amount in sorted(node.used.items()) if amount}
    return QueueStatus((ready, sound), used, pending, sum(map(held_in, lines_of(node))), generation)


def held_in(line: QueueLine) -> int:
    """How many of a line's units a quota holds back."""
    if line.fifo_head() is not None:
        return len(line.units)
    return sum(len(shape.units) for shape in line.held)
