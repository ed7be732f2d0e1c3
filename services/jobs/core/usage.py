"""What pods hold by the queue that they are in, summed up as they come and go: a decision costs as queues, not as
pods."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from shared.model.controllers.training_job import WorkerPod
from shared.scheduling.queues.nodes import Amounts


class Whose(Struct, frozen=True):
    """``label``: the queue that the pods name; ``group``: their pod group, which may name one; ``job``: the uid of the
    TrainingJob that owns them."""

    namespace: str
    label: str
    group: str
    job: str


class WorkerUsage:
    """A pod counts from when it has a node until it holds nothing, as the coordinator counts it."""

    def __init__(self) -> None:
        self._sums: dict[Whose, dict[str, int]] = {}

    def add(self, pod: WorkerPod, sign: int = 1) -> bool:
        """The pod came (1) or went (-1), as it is. True: something changed."""
        if not pod.node or not pod.holds:
            return False
        whose = Whose(pod.namespace, pod.queue, "" if pod.queue else pod.group, pod.job)
        sums = self._sums.setdefault(whose, {})
        for name, amount in pod.amounts:
            after = sums.get(name, 0) + sign * amount
            if after:
                sums[name] = after
            else:
                sums.pop(name, None)
        if not sums:
            del self._sums[whose]
        return True

    def __iter__(self) -> Iterator[tuple[Whose, Amounts]]:
        for whose, sums in self._sums.items():
            yield whose, tuple(sorted(sums.items()))
