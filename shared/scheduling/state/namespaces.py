"""The labels of namespaces, by name."""

from __future__ import annotations

from collections.abc import Mapping

from shared.scheduling.state.releases import Release


class Namespaces(dict[str, Mapping[str, str]]):
    """``release``: by whose rules selectors of a pod's own affinity terms are resolved.

    One that asks for no label (NotIn, DoesNotExist) means every namespace to kube-scheduler 1.36
    (``mergeAffinityTermNamespacesIfNotEmpty`` changes a copy of the term, so the selector is also matched against no
    labels); to the mesh those that it selects, as the API says."""

    release = Release.V1_38
