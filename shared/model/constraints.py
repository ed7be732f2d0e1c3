"""What a pod asks of a node, as immutable values that compare and hash: the *class* of a pod.

Most pods come from templates, so thousands share one class; masks and scores are computed once per class. These
structs travel in offers as msgpack arrays: append fields with defaults, never reorder.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct

from shared.model.node_topology import PodNeeds
from shared.model.resources import GPU_MILLI
from shared.model.scheduling_profile import SchedulingProfile
from shared.model.terms.selector_terms import PreferredTerm, Requirement, SelectorTerm

__all__ = ["PreferredTerm", "Requirement", "SelectorTerm"]  # beside what is defined here

CLASS_LABEL_PREFIX = "policy.conclave.io/"
"""A pod's labels under it are part of its class: by them policies tell pods apart."""


class Toleration(Struct, frozen=True, array_like=True, gc=False):
    """``operator`` is Exists or Equal; empty ``key`` with Exists tolerates all; empty ``effect`` means any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(Struct, frozen=True, array_like=True, gc=False):
    """``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = ""


class HostPort(Struct, frozen=True, array_like=True, gc=False):
    """A port on the node itself. ``ip`` 0.0.0.0 conflicts with every address."""

    protocol: str
    ip: str
    port: int


class PodClass(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """All that decides on which nodes a pod may run and how well: two pods of equal class are interchangeable.

    ``requests``: (resource, amount) sorted by name, amounts > 0 only; ``pods`` is not among them (each counts 1).
    ``score_cpu_millis`` and ``score_memory_bytes``: what scoring counts, with kube-scheduler's defaults of 100m and
    200 MiB for containers that request none. ``affinity_terms`` None: no required node affinity; () matches nothing.
    ``latency_soft_us`` and ``latency_hard_us``: what latency to the users the pod would like and how much it bears, in
    microseconds; 0: any. They guide the policies that know latency; where ``latency_strict``, the hard one makes a node
    infeasible that is beyond it, or whose latency is not known.
    ``latency_target``: whose latency is meant, a LatencyTarget's name; "": the users', as nodes' annotations say.
    ``workload``: what the pod is a copy of (``workload_key``), for policies that learn what its copies really use; ""
    where nobody asks. The mesh carries it beside the class, so that pods of many owners still share one.
    ``features``: what a node must declare to run the pod (``features.py``), sorted.
    ``labels``: the pod's labels under ``CLASS_LABEL_PREFIX``, sorted; no other label, or each pod had its own class.
    ``by_class``: resources among ``requests`` that a device class stands for: a node that offers none of one gives its
    devices instead, and that amount is not looked at there.
    ``claimed``: (devices, thousandths of each) that its claims come to as GPUs, for policies; (0, 0) for none.
    ``needs``: what a kubelet's managers would align it by; None: nothing.
    ``profile``: by what its schedulerName is judged otherwise than by default; None: nothing.
    """

    requests: tuple[tuple[str, int], ...] = ()
    score_cpu_millis: int = 0
    score_memory_bytes: int = 0
    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity_terms: tuple[SelectorTerm, ...] | None = None
    preferred_terms: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    latency_soft_us: int = 0
    latency_hard_us: int = 0
    workload: str = ""
    features: tuple[str, ...] = ()
    latency_target: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    claimed: tuple[int, int] = (0, 0)
    by_class: tuple[str, ...] = ()
    needs: PodNeeds | None = None
    latency_strict: bool = False
    profile: SchedulingProfile | None = None


def left_out(pod_class: PodClass, plugin: str) -> bool:
    """Whether the class's profile leaves the plugin out."""
    return pod_class.profile is not None and plugin in pod_class.profile.without


def ignores(pod_class: PodClass, name: str) -> bool:
    """Whether the class's profile looks for no room of the resource: it is counted on nodes, and asked of none."""
    profile = pod_class.profile
    return profile is not None and any(fnmatchcase(name, pattern) for pattern in profile.ignored)


def fitted(pod_class: PodClass) -> tuple[tuple[str, int], ...]:
    """Those of the requests that a node must have room for."""
    if pod_class.profile is None or not pod_class.profile.ignored:
        return pod_class.requests
    return tuple(one for one in pod_class.requests if not ignores(pod_class, one[0]))


def gpu_milli_of(pod_class: PodClass) -> int:
    """Thousandths of a device that the class asks for; 0 for none."""
    for name, amount in pod_class.requests:
        if name == GPU_MILLI:
            return amount
    return 0


class Norms(Struct, frozen=True, array_like=True, gc=False):
    """What normalised scores of a class are divided by: maxima over the feasible nodes of the whole cluster.

    ``taints``: most untolerated PreferNoSchedule taints on a node; ``affinity``: greatest sum of preferred weights.
    """

    taints: int = 0
    affinity: int = 0


NO_NORMS = Norms()
