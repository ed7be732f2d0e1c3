"""One episode of the thesis' experiment as the agents live it: the environment and what they know of it.

Joins what must not know of each other: the twin's environment tells bindings, ends and late measurements; the store of
the policies is fed with them. Training and evaluation both go through here, so a policy is trained on what it is
judged on. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.environments.thesis import ThesisCluster, ThesisEnv, ThesisSettings
from lab.environments.thesis_workload import EnvPod, NumpyDraws, thesis_pods
from shared.policy.marl.features import Features, Observer
from shared.policy.observation import Observation
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import scale_of


class Session:
    """``metrics`` False: nothing is ever measured, so that policies have the requests alone. ``cluster``: unlike nodes,
    in place of those of targets T3."""

    def __init__(
        self, pods: Sequence[EnvPod], seed: int, settings: ThesisSettings | None = None, *, metrics: bool = True,
        cluster: ThesisCluster | None = None,
    ) -> None:  # fmt: skip
        self.env = ThesisEnv(pods, np.random.default_rng(seed), settings, cluster)
        self.metrics = metrics
        self.store = UtilisationStore(start_delay_s=self.env.settings.start_delay_s)
        if cluster is not None:
            for row, name in enumerate(self.env.table.names):
                self.store.limits(name, scale_of(self.env.table, row))
        self.observer = Observer(self.store)
        names = self.env.table.names
        if metrics:
            for row, name in enumerate(names):
                self.store.delay(name, float(self.env.delay_ms[row]))
        self._update()

    @classmethod
    def of(cls, workload: str, seed: int, settings: ThesisSettings | None = None, *, metrics: bool = True) -> Session:
        """The built-in workload ``uniform`` or ``random`` of one seed."""
        settings = settings or ThesisSettings()
        return cls(thesis_pods(workload, NumpyDraws(seed), nodes=settings.nodes), seed, settings, metrics=metrics)

    @property
    def over(self) -> bool:
        """Whether the last pod has been placed."""
        return self.env.over

    def observation(self) -> Observation:
        """What a policy is asked with, as in the mesh: rows that pass the filters."""
        assert self.env.pending is not None
        return Observation(self.env.table, self.env.pending.pod_class, np.flatnonzero(self.env.mask))

    def features(self) -> Features:
        """float32 [nodes, features] of every node's agent, feasible or not."""
        assert self.env.pending is not None
        return self.observer.of(self.env.table, self.env.pending.pod_class, np.arange(self.env.settings.nodes))

    @property
    def mask(self) -> NDArray[np.bool_]:
        """bool [nodes]."""
        return self.env.mask

    def place(self, node: int) -> None:
        """Bind the pending pod and go on to the next decision."""
        self.env.place(node)
        self._update()

    def _update(self) -> None:
        if not self.metrics:
            self.env.changes.clear()
            return
        store, env = self.store, self.env
        for change in env.changes:
            name = env.table.names[change.node]
            if change.sign > 0:
                store.bound(str(change.pod), name, change.workload, now_s=change.at_s)
            else:
                store.ended(str(change.pod), now_s=change.at_s)
        env.changes.clear()
        if not env.over:
            store.measure_all(env.measured(), at_s=env.now_s - env.settings.lag_s)
        store.advance(env.now_s)
