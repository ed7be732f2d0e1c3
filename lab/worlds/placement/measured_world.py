"""What runs on a table of nodes, and what a metrics server would have told of it: for policies that read measurements.

The same facts in the same order as in a cluster: bindings and ends at once, what nodes use ``LAG_S`` late. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lab.suites.thesis import LEARNED, maker
from lab.worlds.placement.table_run import PolicyChooser, TablePod, TableRun, TableStep
from shared.errors import ConfigError
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api
from shared.model.resources import CPU, MEMORY
from shared.policy.marl.single_dqn import NAME as SINGLE
from shared.policy.observation import Observation, Policy, Rng
from shared.policy.registry import POLICIES, make_policy
from shared.policy.usage.sample_means import MEAN_S
from shared.policy.usage.utilisation import UtilisationStore
from twin.model.replay import ReplayedPod, amounts
from twin.model.usage import LIMITS_ANNOTATION, NO_USAGE, UsageLimits, UsageProfile, limits_from_json

LAG_S = 15.0
"""How old measurements are, as in the thesis."""


def named_policy(name: str, store: UtilisationStore) -> Policy:
    """The policy called ``name`` with its shipped weights, reading ``store`` where it reads any.

    Raises ``ConfigError`` naming those there are.
    """
    if name == SINGLE:
        raise ConfigError(f"policy: {name} is made for 4 nodes of its own; --suite thesis measures it")
    if name in LEARNED:
        return maker(name)(store)
    if name not in POLICIES:
        known = sorted({*LEARNED, *POLICIES} - {SINGLE})
        raise ConfigError(f"policy: {name!r} is not known; choose among {', '.join(known)}")
    return make_policy(name)


def limits_of(nodes: Iterable[api.KubeNode]) -> dict[str, UsageLimits]:
    """What each node offers by name: allocatable, disk and network of the annotation. ``ObjectError``: malformed."""
    found = {}
    for raw in nodes:
        node = node_from_api(raw)
        text = (raw.metadata.annotations or {}).get(LIMITS_ANNOTATION, "")
        allocatable = node.allocatable
        found[node.name] = limits_from_json(
            text, cpu_millis=allocatable.get(CPU, 0), memory_bytes=allocatable.get(MEMORY, 0)
        )
    return found


class MeasuredWorld:
    """``profiles``: what each pod uses, by uid; ``base`` [nodes, parts]: what each node uses by itself."""

    def __init__(
        self,
        limits: Mapping[str, UsageLimits],
        profiles: Mapping[str, UsageProfile],
        *,
        base: NDArray[np.float64] | None = None,
    ) -> None:
        self.placed: list[ReplayedPod] = []
        self.store = UtilisationStore(start_delay_s=0.0, mean_s=MEAN_S)
        self._limits = dict(limits)
        self._profiles = profiles
        self._base = base
        self._ended: set[str] = set()
        for name in self._limits:
            self.store.slot(name)

    def stood(self, pod: ReplayedPod, workload: str) -> None:
        """The pod was there before anything was decided."""
        self.placed.append(pod)
        self.store.bound(pod.uid, pod.node, workload, now_s=pod.start_s)

    def run(self, nodes: Sequence[api.KubeNode], jobs: Sequence[TablePod], policy: str, rng: Rng) -> TableRun:
        """The jobs placed by ``policy``, which reads what is measured here; tell each step to ``bound``."""
        return self.run_by(nodes, jobs, named_policy(policy, self.store), rng)

    def run_by(self, nodes: Sequence[api.KubeNode], jobs: Sequence[TablePod], policy: Policy, rng: Rng) -> TableRun:
        """As ``run``, by a policy that reads ``store`` already where it reads any."""
        choose = PolicyChooser(policy, rng)

        def informed(job: TablePod, observation: Observation) -> int:
            self.advance(run.now_s)
            return choose(job, observation)

        run = TableRun([node_from_api(node) for node in nodes], jobs, informed)
        return run

    def advance(self, now_s: float) -> None:
        """Pods end, and the sample of ``LAG_S`` ago comes in."""
        for pod in self.placed:
            if pod.end_s is not None and pod.end_s <= now_s and pod.uid not in self._ended:
                self._ended.add(pod.uid)
                self.store.ended(pod.uid, now_s=pod.end_s)
        if now_s >= LAG_S:
            self.store.measure_all(self._shares(now_s - LAG_S), at_s=now_s - LAG_S)
        self.store.advance(now_s)

    def bound(self, step: TableStep) -> None:
        """The step's pod starts on its node."""
        job = step.job
        end_s = None if job.duration_s is None else step.at_s + job.duration_s
        self.placed.append(ReplayedPod(job.uid, step.node, step.at_s, end_s, self._profiles[job.uid]))
        self.store.bound(job.uid, step.node, job.pod_class.workload, now_s=step.at_s)

    def _shares(self, at_s: float) -> NDArray[np.float64]:
        """[nodes, parts]: use at one moment, as shares of each node's limits; 0 where a limit is not known."""
        used = dict.fromkeys(self._limits, NO_USAGE)
        for pod in self.placed:
            if pod.node in used and pod.start_s <= at_s and (pod.end_s is None or at_s < pod.end_s):
                used[pod.node] = used[pod.node].plus(pod.profile.at(at_s - pod.start_s))
        found = np.array([amounts(one) for one in used.values()], np.float64)
        if self._base is not None:
            found = found + self._base
        limits = np.array([amounts(one) for one in self._limits.values()], np.float64)
        shares: NDArray[np.float64] = np.divide(found, limits, out=np.zeros_like(found), where=limits > 0)
        return shares
