"""Which victims a PodDisruptionBudget protects.

Source: kube-scheduler ``plugins/defaultpreemption`` (filterPodsWithPDBViolation), as of 1.38: what policy/v1 says of
an empty selector holds, as it does at the API server's eviction.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.model.cluster_objects import DisruptionBudget
from shared.model.pod import Pod
from shared.model.terms.labels import selects
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.releases import Release


def covers(budget: DisruptionBudget, pod: Pod, release: Release = Release.V1_38) -> bool:
    """Whether the budget is about the pod, of its namespace: no selector selects nobody, ``{}`` everybody."""
    if budget.namespace != pod.namespace or budget.selector is None:
        return False
    if release is Release.V1_36 and not (pod.labels and budget.selector.requirements):
        return False
    return selects(budget.selector, pod.labels)


def by_budget(pods: Iterable[Pod], state: ClusterState) -> tuple[list[Pod], list[Pod]]:
    """(pods whose eviction violates a budget, the others), in order; each eviction uses up what budgets allow, and so
    do those that are decided and not made yet."""
    budgets = state.budgets
    counted = [{*budget.disrupted, *state.promised.get((budget.namespace, budget.name), ())} for budget in budgets]
    allowed = [
        budget.allowed - len(names) + len(budget.disrupted) for budget, names in zip(budgets, counted, strict=True)
    ]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        violated = False
        for index, budget in enumerate(budgets):
            if not covers(budget, pod, state.release) or pod.name in counted[index]:
                continue
            allowed[index] -= 1
            violated = violated or allowed[index] < 0
        (violating if violated else others).append(pod)
    return violating, others
