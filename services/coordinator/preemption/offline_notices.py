"""What is told of nodes where offline pods hold more than is lent and stay all the same: once for the same reasons."""

from __future__ import annotations

from collections.abc import Iterable

from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoordinatorState
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import at_least_text
from shared.scheduling.preemption.giving_way import VictimChoice

NAMED = 5
"""Pods that are named for one reason."""

DOUBTS_KEPT = 4096
"""Pods of which it is remembered that their annotations were told to be wrong."""


class OfflineNotices:
    """One term's."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._told: dict[str, frozenset[str]] = {}
        """By node, the reasons that were told."""
        self._doubts: dict[str, str] = {}

    def over(self, node: str) -> None:
        """Enough is lent there, or there is no such node: what comes next is news."""
        self._told.pop(node, None)

    def clear(self) -> None:
        """All of it is to be told again."""
        self._told.clear()

    def gone(self, uid: str) -> None:
        """There is no such pod any more."""
        self._doubts.pop(uid, None)

    def unsaid(self, node: Node, resource: str) -> None:
        """The node does not name a resource that pods hold."""
        self._tell(node, f"nothing is said of {resource}, which offline pods hold; nobody leaves for it", [resource])

    def stay(self, node: Node, choice: VictimChoice) -> None:
        """What is short still, and who would help and stays."""
        self._tell_doubts(self._state.cluster.index.pods_on(node.name))
        if not choice.lacking:
            return
        index, why = self._state.cluster.index, dict[str, list[str]]()
        for uid, reason in choice.stays.items():
            if (pod := index.get(uid)) is not None:
                why.setdefault(reason, []).append(pod.key)
        short = ", ".join(f"{name}: {at_least_text(name, choice.lacking[name])}" for name in sorted(choice.lacking))
        told = "; ".join(f"{_names(names)}: {reason}" for reason, names in why.items()) or "no pod"
        text = f"less is lent than offline pods hold ({short}), and nobody else may leave: {told}"
        self._tell(node, text, [*choice.lacking, *why])

    def _tell(self, node: Node, text: str, reasons: Iterable[str]) -> None:
        gist = frozenset("".join(letter for letter in reason if not letter.isdigit()) for reason in reasons)
        if gist <= self._told.get(node.name, frozenset()):
            return
        self._told[node.name] = self._told.get(node.name, frozenset()) | gist
        self._state.log("offline_pods_stay", level="warning", node=node.name, reason=text)
        self._state.out.append(
            EmitEvent(
                node.uid, "default", node.name, "", "Warning", "OfflinePodsStay", "Evicting",
                text[0].upper() + text[1:], kind=gist, regarding=("v1", "Node"),
            )
        )  # fmt: skip

    def _tell_doubts(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            doubt = pod.offline.doubt if pod.offline is not None else ""
            if doubt and self._doubts.get(pod.uid) != doubt:
                if len(self._doubts) >= DOUBTS_KEPT:
                    self._doubts.clear()
                self._doubts[pod.uid] = doubt
                self._state.log("offline_terms_unread", level="warning", pod_uid=pod.uid, pod=pod.key, reason=doubt)


def _names(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
