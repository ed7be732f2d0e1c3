"""What an agent lives through, for the learner: state, action and, ``delay_s`` later, reward and next state. Pure.

    judged (a few nodes of one group per offer) --> PENDING --delay_s--> read: did the node get a pod? what is it worth
        --> READY --sent--> gone        (full: the oldest goes and is counted; nothing here ever waits or blocks)

Reading the reward 15 s after the binding is the thesis' T_i (section 4.1.3): a pod takes that long to show in what a
node uses. An agent is not told which node got the pod; it sees its nodes' pods counted in the views, so where it was
told nothing since it judged there is nothing to learn. Reward: balance, by which the shipped weights were trained
(``balance_of``), or what the policy itself is paid for (an attribute ``live_reward``; the thesis' bands of
``marl-dqn-published``): the squared distance of the node's most used part from the cluster's mean, of what it was
measured to use or, where nobody measures, of what is requested on it.

Only policies that can be looked into (``attribution.lens_of``) are recorded, and only while a learner wants them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from shared.model.constraints import PodClass
from shared.policy.attribution import Lens, lens_of
from shared.policy.networks import Floats
from shared.policy.observation import Observation, Policy
from shared.policy.usage.class_usage import FloatArray
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import HIGHEST, balance_of
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable
from shared.wire.messages import Transition

Reward = Callable[[NodeTable, int, UtilisationStore, FloatArray], float]
"""What a row of the table is worth as it is now; last, what is told of the cluster."""


def balance(table: NodeTable, row: int, store: UtilisationStore, cluster: FloatArray) -> float:
    """How near the node's most used part is to the cluster's mean."""
    return balance_of(table, row, store, float(cluster[HIGHEST]))


@dataclass(frozen=True, slots=True)
class ExperienceSettings:
    """Bounds: nothing here grows with what happens outside."""

    delay_s: float = 15.0
    """From the decision to the reading of the reward (thesis: T_i)."""
    pending: int = 1024
    ready: int = 4096
    at_once: int = 32
    """Rewards read without letting an offer in between: each takes about 0.15 ms."""
    rows: int = 4
    """Nodes recorded of one group: the best few, which are those that may get the pod."""


class _Pending(Struct, frozen=True):
    due_s: float
    policy: str
    lens: Lens
    reward: Reward
    node: str
    pod_class: PodClass
    pods: int
    told: int
    s_tm1: list[float]


class Experience:
    """``wanted``: the policy (by name) that a learner trains; "" while there is none. ``told``: messages that brought
    the view up to date."""

    def __init__(self, settings: ExperienceSettings | None = None) -> None:
        self.settings = settings or ExperienceSettings()
        self.wanted = ""
        self.recorded = self.dropped = self.lost = self.told = 0
        self._pending: deque[_Pending] = deque()
        self._ready: deque[Transition] = deque()
        self._lens: tuple[Policy | None, Lens | None] = (None, None)

    @property
    def waiting(self) -> int:
        """Transitions that can be sent."""
        return len(self._ready)

    def want(self, policy: str) -> None:
        """Record for a learner of ``policy`` from now on; what was lived under another one is of no use."""
        if policy != self.wanted:
            self.wanted = policy
            self._pending.clear()
            self._ready.clear()

    def judged(self, policy: Policy, table: NodeTable, pod_class: PodClass, rows: list[int], now_s: float) -> None:
        """A group was judged; ``rows``: the nodes answered with, best first."""
        if policy.name != self.wanted or not rows:
            return
        lens = self._lens_of(policy)
        if lens is None:
            return
        reward: Reward = getattr(policy, "live_reward", None) or balance
        chosen: IntArray = np.unique(np.array(rows[: self.settings.rows], np.int64))
        features = self._look(lens, Observation(table, pod_class, chosen))
        if features is None:
            return
        for row, seen in zip(chosen, features, strict=True):
            if len(self._pending) >= self.settings.pending:
                self._pending.popleft()
                self.dropped += 1
            pods = int(table.requested[PODS_COLUMN, row])
            due_s = now_s + self.settings.delay_s
            told = table.names[row], pod_class, pods, self.told, seen.tolist()
            self._pending.append(_Pending(due_s, policy.name, lens, reward, *told))

    def read(self, table: NodeTable, store: UtilisationStore, now_s: float) -> bool:
        """Read some of the rewards that are due; whether more are. ``store``: what nodes use, and the cluster's means
        as they were told last."""
        cluster = store.cluster
        for _ in range(self.settings.at_once):
            if not self._pending or self._pending[0].due_s > now_s:
                return False
            entry = self._pending.popleft()
            row = table.row_of.get(entry.node)
            if row is None or cluster is None or entry.told == self.told:
                self.lost += 1
                continue
            features = self._look(entry.lens, Observation(table, entry.pod_class, np.array([row], np.int64)))
            if features is None:
                continue
            s_t = features[0]
            got = int(table.requested[PODS_COLUMN, row]) > entry.pods
            reward = self._worth(entry.reward, table, row, store, cluster)
            if reward is None:
                continue
            if not (np.isfinite(s_t).all() and np.isfinite(entry.s_tm1).all() and np.isfinite(reward)):
                self.lost += 1
                continue
            if len(self._ready) >= self.settings.ready:
                self._ready.popleft()
                self.dropped += 1
            self._ready.append(Transition(entry.s_tm1, int(got), reward, s_t.tolist()))
            self.recorded += 1
        return bool(self._pending) and self._pending[0].due_s <= now_s

    def take(self, most: int) -> list[Transition]:
        """The oldest transitions, to be sent; they are gone from here."""
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def give_back(self, transitions: list[Transition]) -> None:
        """They could not be sent: keep them where there is room, the newest first; count the others."""
        room = self.settings.ready - len(self._ready)
        kept = transitions[-room:] if room > 0 else []
        self.dropped += len(transitions) - len(kept)
        self._ready.extendleft(reversed(kept))

    def _look(self, lens: Lens, observation: Observation) -> Floats | None:
        """The features [rows]; None, counted as lost, where the policy's code fails: learning is never worth a
        decision (I12)."""
        try:
            return lens.features(observation)[:, : lens.inputs]
        except Exception:  # noqa: BLE001  as in policy/guard.py: whatever a policy raises
            self.lost += len(observation.rows)
            return None

    def _worth(
        self, reward: Reward, table: NodeTable, row: int, store: UtilisationStore, cluster: FloatArray
    ) -> float | None:
        """The reward; None, counted as lost, where the policy's code fails."""
        try:
            return float(reward(table, row, store, cluster))
        except Exception:  # noqa: BLE001  as above
            self.lost += 1
            return None

    def _lens_of(self, policy: Policy) -> Lens | None:
        if self._lens[0] is not policy:
            self._lens = (policy, lens_of(policy))
        return self._lens[1]
