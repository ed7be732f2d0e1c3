"""Whether a pod that came, went or changed may decide about one that waits: rules of one that mean the other."""

from __future__ import annotations

from shared.model.pod import Pod
from shared.model.terms.labels import selects
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.matching.pod_terms import means, own_condition
from shared.scheduling.profiles import spreads_by_default
from shared.scheduling.state.namespaces import Namespaces


def concerns(pod: Pod, waiting: Pod, namespaces: Namespaces) -> bool:
    """``namespaces``: the labels of each. One that only its nodes keep away may still be kept from evicting by the
    anti-affinity of others."""
    theirs, own = pod.relations or NO_RELATIONS, waiting.relations or NO_RELATIONS
    if theirs.anti_affinity:
        labels = namespaces.get(waiting.namespace, {})
        if any(means(term, waiting, labels) for term in theirs.anti_affinity):
            return True
    alike = pod.namespace == waiting.namespace
    if alike and spreads_by_default(waiting):
        return True  # services and owners say whom it counts
    if alike and any(c.hard and selects(c.selector, pod.labels) for c in own.spread):
        return True
    if alike and own.claims and not {c.name for c in own.claims}.isdisjoint(c.name for c in theirs.claims):
        return True
    for term in (*own.affinity, *own.anti_affinity):
        names, selector = own_condition(term, namespaces)
        if (names is None or pod.namespace in names) and selects(selector, pod.labels):
            return True
    return False
