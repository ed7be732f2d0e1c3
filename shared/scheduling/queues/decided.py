"""What is decided and has not happened yet: pods that are leaving, and pods for which room is made.

Whoever takes something back looks at queues as they will be. Both are summed as they are told, so that a look costs as
queues do, however many pods leave and come; by label and namespace, since a namespace may go to another queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shared.scheduling.queues.nodes import Charge

Whose = tuple[str, str]
"""The queue that pods name, or "", and their namespace."""

Sums = dict[Whose, dict[str, int]]


class QueueCommitments:
    """``leaving``: pods that count and are on their way out; ``coming``: pods for which room is made, by uid each. Of
    those that come, one that counts already is in no sum."""

    def __init__(self) -> None:
        self.leaving: dict[str, Charge] = {}
        self.coming: dict[str, Charge] = {}
        self._sums: tuple[Sums, Sums] = ({}, {})

    def begins(self, pod: Charge) -> None:
        """The pod counts from now on."""
        if pod.leaving:
            self.leaving[pod.uid] = pod
            self._add(0, pod, 1)
        # Else it would stand in the outlook twice, and its queue take back less than it is owed.
        if (known := self.coming.get(pod.uid)) is not None:
            self._add(1, known, -1)

    def ends(self, pod: Charge) -> None:
        """It counts no longer."""
        if self.leaving.pop(pod.uid, None) is not None:
            self._add(0, pod, -1)
        if (known := self.coming.get(pod.uid)) is not None:
            self._add(1, known, 1)

    def leave(self, pod: Charge, *, leaving: bool) -> None:
        """A pod that counts is being evicted, or is not any more."""
        # Told twice it would be in the sum twice (I9).
        if pod.leaving is leaving:
            return
        pod.leaving = leaving
        if leaving:
            self.leaving[pod.uid] = pod
        else:
            del self.leaving[pod.uid]
        self._add(0, pod, 1 if leaving else -1)

    def expect(self, uid: str, pod: Charge | None, *, counts: bool) -> None:
        """Room is made for the pod; None: not any more. ``counts``: whether it counts already."""
        known = self.coming.pop(uid, None)
        if known is not None and not counts:
            self._add(1, known, -1)
        if pod is not None:
            self.coming[uid] = pod
            if not counts:
                self._add(1, pod, 1)

    def goes(self) -> Iterator[tuple[Whose, Mapping[str, int]]]:
        """What those that are leaving count as, summed up."""
        return iter(self._sums[0].items())

    def comes(self) -> Iterator[tuple[Whose, Mapping[str, int]]]:
        """What those that come will count as, summed up."""
        return iter(self._sums[1].items())

    def broken(self, charges: Mapping[str, Charge]) -> Iterator[str]:
        """What is wrong with the sums; nothing while all is well. Costs as all pods."""
        leaving = {uid: pod for uid, pod in charges.items() if pod.leaving}
        if leaving != self.leaving:
            yield f"queue-decided: {sorted(leaving)} are leaving, {sorted(self.leaving)} are known to"
        fresh = QueueCommitments()
        for pod in leaving.values():
            fresh.begins(pod)
        for uid, pod in self.coming.items():
            fresh.expect(uid, pod, counts=uid in charges)
        if fresh._sums != self._sums:
            yield f"queue-decided: {self._sums} is summed up, {fresh._sums} is there"

    def _add(self, which: int, pod: Charge, sign: int) -> None:
        sums, whose = self._sums[which], (pod.label, pod.namespace)
        amounts = sums.setdefault(whose, {})
        for name, amount in pod.amounts:
            after = amounts.get(name, 0) + sign * amount
            if after:
                amounts[name] = after
            else:
                amounts.pop(name, None)
        # I10: namespaces come and go, and a sum of nothing is looked at by every question.
        if not amounts:
            del sums[whose]
