"""Pods whose claims are not there, or are not as they must be: found again when one of those claims comes or changes.

kube-scheduler does not queue a pod before its claims exist (PreEnqueue): they are made from templates a moment after
the pod, so that nearly every pod that claims devices waits here once. A claim that is deleted later keeps its pod from
every node (PreFilter); it is parked then, and noted here too.
"""

from __future__ import annotations

from shared.model.pod import Pod


class AwaitedClaims:
    """Uids by claim (``namespace/name``) and by the key of their pod group, which says what is its own; and back."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, None]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, pod: Pod) -> None:
        """The pod waits for its claims, as it names them now."""
        self.drop(pod.uid)
        claims = pod.asks.claims if pod.asks is not None else ()
        keys = tuple(f"{pod.namespace}/{one.claim}" for one in claims if one.claim)
        if not keys:
            return  # none of them has a name yet: the pod itself will change
        if pod.group:
            keys = (*keys, pod.group)
        self._keys[pod.uid] = keys
        for key in keys:
            self._waiting.setdefault(key, {})[pod.uid] = None

    def drop(self, uid: str) -> None:
        """The pod waits for none; an unknown uid is fine."""
        for key in self._keys.pop(uid, ()):
            waiting = self._waiting[key]
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting[key]

    def of(self, key: str) -> list[str]:
        """Who waits for a claim, first come first."""
        return list(self._waiting.get(key, ()))
