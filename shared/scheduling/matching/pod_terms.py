"""Whom affinity terms mean: a pod's own terms as questions to the index, and terms of standing pods that mean a pod.

Namespace selectors of the incoming pod's own terms become namespace names once; terms of standing pods see the labels
of the pod's namespace (``plugins/interpodaffinity/plugin.go``, ``framework/types.go`` AffinityTerm.Matches). An empty
selector means all namespaces, an absent one none but those that are named. Where kube-scheduler departs from that:
``state/namespaces.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector, selects
from shared.model.terms.relations import AffinityTerm
from shared.scheduling.state.namespaces import Namespaces
from shared.scheduling.state.pod_index import ANTI_AFFINITY, REQUIRED, WEIGHTED, Matcher, PodIndex, TermRows
from shared.scheduling.state.releases import Release

Condition = tuple[frozenset[str] | None, LabelSelector | None]


def own_condition(term: AffinityTerm, namespaces: Namespaces) -> Condition:
    """The pods that a term of the incoming pod means."""
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces), term.selector
    if not selector.requirements or (namespaces.release is Release.V1_36 and selector.matches({})):
        return None, term.selector
    names = {name for name, labels in namespaces.items() if selector.matches(labels)}
    return frozenset(names.union(term.namespaces)), term.selector


def own_matcher(terms: Iterable[AffinityTerm], namespaces: Namespaces) -> Matcher:
    """The pods that every one of the incoming pod's ``terms`` means."""
    return Matcher(tuple(own_condition(term, namespaces) for term in terms))


def means(term: AffinityTerm, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
    """Whether a term of a standing pod means ``pod``, whose namespace carries ``namespace_labels``."""
    in_namespace = pod.namespace in term.namespaces or selects(term.namespace_selector, namespace_labels)
    return in_namespace and selects(term.selector, pod.labels)


def anti_affinity_against(
    index: PodIndex, pod: Pod, namespace_labels: Mapping[str, str]
) -> list[tuple[AffinityTerm, TermRows]]:
    """Required anti-affinity terms of standing pods that mean ``pod``."""
    return _meaning(index, ANTI_AFFINITY, pod, namespace_labels) if index.anti_affinity else []


def weighted_toward(
    index: PodIndex, pod: Pod, namespace_labels: Mapping[str, str]
) -> list[tuple[AffinityTerm, TermRows]]:
    """Preferred terms, and required affinity, of standing pods that mean ``pod``."""
    return _meaning(index, WEIGHTED, pod, namespace_labels) if index.weighted else []


def required_toward(
    index: PodIndex, pod: Pod, namespace_labels: Mapping[str, str]
) -> list[tuple[AffinityTerm, TermRows]]:
    """Required affinity, of standing pods that mean ``pod``, where the index keeps it apart."""
    return _meaning(index, REQUIRED, pod, namespace_labels) if index.required else []


def _meaning(
    index: PodIndex,
    kind: str,
    pod: Pod,
    namespace_labels: Mapping[str, str],
) -> list[tuple[AffinityTerm, TermRows]]:
    """Asked once per template: pods of one come with the same labels, and terms appear far more rarely than pods."""
    key = (kind, pod.namespace, tuple(sorted(pod.labels.items())), tuple(sorted(namespace_labels.items())))
    memo = index.term_memo()
    known = memo.get(key)
    if known is None:
        known = memo[key] = [
            (term, rows) for term, rows in index.terms_among(kind, pod.labels) if means(term, pod, namespace_labels)
        ]
    return known
