"""Labels and taints that are not a person's to change: facts about a node, or another controller's words.

A node labelled ``kubernetes.io/arch=arm64`` runs no arm64 image, and one without ``not-ready`` is not ready. Advice
names such marks only to say which nodes to add, repair or wait for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from enum import Enum

from shared.model.constraints import PodClass, SelectorTerm, Taint
from shared.model.resources import GPU_MILLI
from shared.scheduling.matching.selectors import selector_mask, terms_mask
from shared.scheduling.matching.spread_domains import HOSTNAME
from shared.scheduling.state.node_table import BoolArray, NodeTable

RESERVED_DOMAINS = (
    "kubernetes.io", "k8s.io", "x-k8s.io",  # with topology., node., node-role., feature.node., failure-domain.beta.
    "karpenter.sh", "k8s.aws", "amazonaws.com", "cloud.google.com", "gke.io", "azure.com", "openshift.io",
    "alibabacloud.com", "aliyun.com", "tencent.com", "oraclecloud.com", "oke.oraclecloud.com", "ibm.com",
    "digitalocean.com", "linode.com", "vultr.com", "ovh.com", "ovhcloud.com", "hetzner.cloud", "scaleway.com",
    "exoscale.net", "k3s.io", "rke2.io", "cattle.io", "microk8s.io", "nvidia.com", "amd.com", "intel.com",
)  # fmt: skip
"""Of label and taint keys: Kubernetes and its projects, those who make nodes, those who find devices."""

RESERVED_KEYS = frozenset({
    "agentpool", "storageprofile", "storagetier", "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
})  # fmt: skip
"""Without a domain: AKS' labels, cluster-autoscaler's taints."""

CONDITIONS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that say what is wrong with a node, or that it is not ready yet."""

NOBODYS = ("node-role.kubernetes.io/", "karpenter.sh/disrupt", "karpenter.sh/unregistered")
"""Prefixes of reserved taints that are neither a condition nor an offer: control planes, nodes on their way."""


def reserved(key: str) -> bool:
    """Whether the key is Kubernetes' own, a cloud's, or that of a controller that makes nodes."""
    domain = key.partition("/")[0] if "/" in key else ""
    if not domain:
        return key in RESERVED_KEYS
    return any(domain == known or domain.endswith("." + known) for known in RESERVED_DOMAINS)


class Remedy(Enum):
    """What people can do about taints that keep a pod away."""

    TOLERATE_OR_TAKE = "tolerate or take"
    """Taints of their own."""
    TOLERATE = "tolerate"
    """They say for whom the node is, as ``nvidia.com/gpu`` does."""
    REPAIR = "repair"
    """A condition of the node among them: it goes by itself once the node is well."""
    NONE = "none"


def unasked(table: NodeTable, pod_class: PodClass) -> set[str]:
    """Resources that nodes offer and the class does not ask for. A taint of such a name keeps the node for pods that
    do (``nvidia.com/gpu``): the class has no business there. Shares of GPUs ask for the devices of any maker."""
    asked = {name for name, _ in pod_class.requests}
    return {
        name for name in table.column_of if name not in asked and not (GPU_MILLI in asked and name.endswith("/gpu"))
    }


def remedy_of(taints: Iterable[Taint], others: Set[str] = frozenset()) -> Remedy:
    """What may be advised where these taints refuse together: the most careful of what each allows. ``others``: keys
    of taints that keep a node for pods of another kind."""
    keys = [taint.key for taint in taints]
    if any(key in others for key in keys):
        return Remedy.NONE
    if not any(map(reserved, keys)):
        return Remedy.TOLERATE_OR_TAKE
    if any(key.startswith(NOBODYS) or key in RESERVED_KEYS for key in keys):
        return Remedy.NONE
    return Remedy.REPAIR if any(key.startswith(CONDITIONS) for key in keys) else Remedy.TOLERATE


def labellable_mask(table: NodeTable, pod_class: PodClass) -> BoolArray:
    """``[rows]``: nodes that the class would select if people gave them every label that is theirs to give."""
    passing = selector_mask(table, tuple(pair for pair in pod_class.node_selector if reserved(pair[0])))
    if pod_class.affinity_terms is None:
        return passing
    fixed = [_fixed(term) for term in pod_class.affinity_terms if term.expressions or term.fields]
    if any(not term.expressions and not term.fields for term in fixed):
        return passing  # one way asks for nothing but labels of people's own
    return passing & terms_mask(table, tuple(fixed))


def names_nodes(pod_class: PodClass) -> bool:
    """Whether the class names single nodes: another node like one of them would not do."""
    if pod_class.node_name or any(key == HOSTNAME for key, _ in pod_class.node_selector):
        return True
    terms = [term for term in pod_class.affinity_terms or () if term.expressions or term.fields]
    return bool(terms) and all(
        term.fields or any(one.key == HOSTNAME and one.operator == "In" for one in term.expressions) for term in terms
    )


def _fixed(term: SelectorTerm) -> SelectorTerm:
    return SelectorTerm(tuple(one for one in term.expressions if reserved(one.key)), term.fields)
