"""The labels of namespaces, by name."""

from __future__ import annotations

from collections.abc import Mapping


class Namespaces(dict[str, Mapping[str, str]]):
    """``upstream``: a selector of a pod's own affinity terms that asks for no label (NotIn, DoesNotExist) means every
    namespace, as kube-scheduler 1.36 has it (``mergeAffinityTermNamespacesIfNotEmpty`` changes a copy of the term, so
    the selector is also matched against no labels); else those that it selects, as the API says."""

    upstream = False
