"""What intents of other shards hold when a leader begins: after the nodes were divided anew, some are of nodes of ours.

An intent is its own shard's to finish or to withdraw, whoever owns its nodes by now. Until that has happened its pods
on our nodes are counted as if they ran there, and no plan may place any of its pods here::

    listed at the takeover --the watch shows it bound, finished or gone--> over
                           --no intent names it any more--> read --on no node--> over: what it held is free

Only the first list brings any: since the record of the shards that we compare, nobody else commits to our nodes. A pod
is read after its intent was seen to be gone, and an intent goes only when no Binding of it can succeed any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.binder.core.events import StoredIntent
from services.binder.core.instructions import ListIntents, ReadPod
from services.binder.core.state import NEVER, State
from shared.model.pod import Pod
from shared.wire.messages import Plan
from shared.wire.records import IntentPod, gang_part

FIRST_LOOK_S = 0.5


class Loans:
    """Pods that intents of other shards name, by uid."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._of: dict[str, IntentPod] = {}
        self._asked: set[str] = set()
        self._pause = FIRST_LOOK_S
        self._looks = 0
        self.look_at = NEVER
        """When it is looked next whether any is over."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._of

    def __len__(self) -> int:
        return len(self._of)

    def list(self, intents: Mapping[str, StoredIntent]) -> None:
        """The intents of other shards there were when this leader won."""
        for stored in intents.values():
            if stored.intent is not None:
                self._of.update((pod.uid, pod) for pod in stored.intent.pods)

    def count(self) -> None:
        """All is listed: those that are pending hold what they are to get, if it is ours."""
        state = self._state
        for uid, loan in list(self._of.items()):
            account, pod = state.cache.accounts.get(uid), state.pending.get(uid)
            if account is not None:
                self.over(uid)
            elif pod is not None and state.owns(loan.node):
                state.cache.assume(uid, loan.node, pod.pod_class, state.now, devices=loan.devices)
                state.hold_volumes(pod, loan.node)
        if self._of:
            self.look_at = state.now + self._pause

    def over(self, uid: str) -> None:
        """The watch has shown what became of the pod."""
        if not self._of:
            return
        self._of.pop(uid, None)
        self._asked.discard(uid)
        if not self._of:
            self.look_at = NEVER

    def listed(self, intents: Mapping[str, StoredIntent]) -> None:
        """A later list: pods that no intent of another shard names any more are read."""
        named = {pod.uid for stored in intents.values() if stored.intent is not None for pod in stored.intent.pods}
        for uid in self._of.keys() - named - self._asked:
            loan = self._of[uid]
            self._asked.add(uid)
            self._state.emit(ReadPod(uid, loan.ns, loan.name))

    def read(self, uid: str, pod: Pod | None) -> bool:
        """A pod was read; whether it was asked for here."""
        if uid not in self._asked:
            return False
        self.over(uid)
        if pod is not None and (pod.node_name or pod.finished):
            self._state.observe(pod)
        else:
            self._state.cluster.forget(uid)
        return True

    def unread(self, uid: str) -> None:
        """The API server did not answer; the next list asks again."""
        self._asked.discard(uid)

    def step(self) -> None:
        """Look whether their intents are gone, less and less often: until then their room is nobody's."""
        if self._state.now >= self.look_at:
            self._pause = min(2 * self._pause, self._state.settings.sweep_every_s)
            self.look_at = self._state.now + self._pause
            self._looks += 1
            self._state.emit(ListIntents())

    def looked(self) -> bool:
        """Whether a list that came counts as asked for here: it is not one more of the sweep's, which are far apart."""
        asked = self._looks > 0
        self._looks -= asked
        return asked


def divide(
    state: State, intents: Mapping[str, StoredIntent]
) -> tuple[Mapping[str, StoredIntent], Mapping[str, StoredIntent]]:
    """The intents that are ours to finish or withdraw, and those of other shards. All parts of a gang's go together."""
    if state.sole:
        return intents, {}
    own: dict[str, StoredIntent] = {}
    others: dict[str, StoredIntent] = {}
    for key, stored in intents.items():
        part = gang_part(key)
        unit, said = (key, stored) if part is None else (part[0], intents.get(part[0], stored))
        resolver = state.shards.resolver(unit, said.intent)
        (own if resolver == state.shard else others)[key] = stored
    return own, others


def beyond(state: State, plan: Plan) -> str:
    """Which node of another shard the plan names; "" where all are ours."""
    if state.sole:
        return ""
    nodes = (node for placement in plan.placements for node in (placement.node, *placement.alternatives))
    node = next((node for node in nodes if not state.owns(node)), "")
    return f"node {node[:64]} is of shard {state.shards.of(node)}, this is {state.shard}" if node else ""
