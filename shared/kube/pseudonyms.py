"""Names of a cluster's objects replaced, so that a copy of them may leave the house and still decides alike. Pure.

    documents (JSON as Python has it) --hide, in place--> texts that are names --resolve--> pseudonyms in their order

A name is whatever nobody but the cluster's owner chose: of objects, namespaces, nodes, images, disks, values of labels,
keys of labels that no vendor defined. What Kubernetes, vendors of devices and we defined stays: kinds, operators,
effects, phases, quantities and resources, drivers, attributes of devices, CEL, keys such as
``topology.kubernetes.io/zone``, and numbers (``Gt`` and ``Lt`` compare them). uids stay too: they are drawn, and say
who is in a canary.

Equal names get equal pseudonyms wherever they stand, so selectors, owners, claims and zones mean what they meant; the
pseudonyms sort as the names do, since rules break ties by name. Names that Kubernetes derives from others (the claim of
an ephemeral volume, a Deployment's ReplicaSet, a CronJob's Job) are derived anew from their parts' pseudonyms. Nothing
of a name is in its pseudonym: there is no key to guess, and no dictionary helps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from shared.kube.cluster_objects import BETA_CLASS, BIND_COMPLETED, SELECTED_NODE
from shared.kube.convert_demands import FOREIGN_SHARES
from shared.kube.convert_devices import EXTENDED_CLAIM
from shared.kube.convert_relations import normalised_image
from shared.kube.pod_groups import COMPLETION_INDEX, GROUP_LABEL
from shared.kube.qos import ANNOTATIONS as QOS_ANNOTATIONS
from shared.kube.qos import LABELS as QOS_LABELS
from shared.kube.training_jobs import GPU_TYPE_LABELS
from shared.model.node import LATENCY_ANNOTATION, NOT_REMOVED, OUR_ANNOTATIONS
from shared.model.offline import (
    CHECKPOINT_ANNOTATION,
    EVICTION_LABEL,
    INTERVAL_ANNOTATION,
    MIN_RUNTIME_ANNOTATION,
    RESTART_ANNOTATION,
)
from shared.model.pod import (
    DEVICES_ANNOTATION,
    LATENCY_HARD_ANNOTATION,
    LATENCY_LIMIT_ANNOTATION,
    LATENCY_SOFT_ANNOTATION,
    LATENCY_TARGET_ANNOTATION,
    POLICY_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
)
from shared.model.pod_group import (
    GANG_ANNOTATION,
    GANG_BROKEN_ANNOTATION,
    GANG_MIN_COUNT_ANNOTATION,
    GANG_TOPOLOGY_ANNOTATION,
    GANG_TOPOLOGY_PREFERRED_ANNOTATION,
)
from shared.model.power import CURVE_LABEL, TYPE_LABEL
from shared.model.workload_key import LABELS as WORKLOAD_LABELS
from shared.model.workload_key import TEMPLATE_HASH

Json = dict[str, Any]

NAMED_ANNOTATIONS = frozenset({BETA_CLASS, SELECTED_NODE, LATENCY_TARGET_ANNOTATION})
"""Annotations that rules read and whose value is a name."""

KEY_ANNOTATIONS = frozenset({GANG_TOPOLOGY_ANNOTATION, GANG_TOPOLOGY_PREFERRED_ANNOTATION})
"""Those whose value is the key of a label."""

READ_ANNOTATIONS = (
    frozenset(
        {
            BIND_COMPLETED, EXTENDED_CLAIM, COMPLETION_INDEX, GROUP_LABEL, LATENCY_ANNOTATION, OUR_ANNOTATIONS,
            CHECKPOINT_ANNOTATION, INTERVAL_ANNOTATION, MIN_RUNTIME_ANNOTATION, RESTART_ANNOTATION, EVICTION_LABEL,
            DEVICES_ANNOTATION, LATENCY_HARD_ANNOTATION, LATENCY_LIMIT_ANNOTATION, LATENCY_SOFT_ANNOTATION,
            POLICY_ANNOTATION, PREEMPTIBLE_ANNOTATION, GANG_ANNOTATION, GANG_BROKEN_ANNOTATION,
            GANG_MIN_COUNT_ANNOTATION, *NOT_REMOVED, *FOREIGN_SHARES, *QOS_ANNOTATIONS,
        }
    )
    | NAMED_ANNOTATIONS
    | KEY_ANNOTATIONS
)  # fmt: skip
"""Annotations that a rule reads. All others are left out of every copy: they may hold anything, secrets too."""

OWN_DOMAINS = re.compile(
    r"(.+\.)?(kubernetes\.io|k8s\.io|conclave\.io|nvidia\.com|amd\.com|intel\.com|koordinator\.sh|kubewharf\.io"
    r"|volcano\.sh|karpenter\.sh|cloud\.google\.com|amazonaws\.com|azure\.com)"
)
"""Whose keys of labels and taints are public."""
CHOSEN_DOMAINS = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Public domains under which users choose what comes behind."""
PUBLIC_KEYS = frozenset({
    *WORKLOAD_LABELS, TEMPLATE_HASH, "controller-revision-hash", "job-name", "controller-uid", "metadata.name",
    "statefulset.kubernetes.io/pod-name", "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
})  # fmt: skip

READ_VALUES = frozenset({
    "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch", CURVE_LABEL,
    TYPE_LABEL, EVICTION_LABEL, TEMPLATE_HASH, *GPU_TYPE_LABELS, *QOS_LABELS,
})  # fmt: skip
"""Labels whose values mean something to a rule, or to a policy."""

PUBLIC_NAMES = frozenset({
    "", "default", "kube-system", "kube-public", "kube-node-lease", "true", "false", "system-cluster-critical",
    "system-node-critical",
})  # fmt: skip

KEPT_FIELDS = frozenset({
    "kind", "apiVersion", "operator", "effect", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
    "phase", "status", "type", "reason", "protocol", "hostIP", "restartPolicy", "action", "preemptionPolicy",
    "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy", "volumeMode", "accessModes", "volumeBindingMode",
    "lastTransitionTime", "startTime", "startedAt", "finishedAt", "driver", "provisioner", "declaredFeatures",
    "schedulerName", "completionMode", "disruptionMode", "requestName", "resourceName", "policy", "id", "time",
    "source", "finalizers",
})  # fmt: skip
"""Texts in these fields are words of an API, times or numbers of ours."""

QUANTITIES = frozenset({"requests", "limits", "allocatable", "capacity", "overhead", "allocatedResources",
                        "minResources"})  # fmt: skip
"""Maps by resource: they stay as they are."""

MESSAGES = frozenset({"message", "missing", "evicted"})
"""Texts for people, which name anything: left out."""

LABEL_MAPS = frozenset({"labels", "matchLabels", "nodeSelector", "selector"})
KEY_FIELDS, KEY_LISTS = frozenset({"key", "topologyKey"}), frozenset({"matchLabelKeys"})

PUBLIC_KINDS = frozenset({
    "resourceSlices", "deviceClasses", "resourceClaims", "deviceTaintRules", "csiNodes", "nodeTopologies", "queues",
})  # fmt: skip
"""Kinds that say what hardware is like, or how it is shared: of them only what ``NAMES_IN_PUBLIC`` says is a name."""
NAMES_IN_PUBLIC = frozenset({"nodeName", "parent", "namespaces", "pool"})

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_SCHEDULED = re.compile(r"(.+)-([0-9]{8,})")
"""A CronJob's Job."""
_SEVERAL_ZONES = "__"
"""Between the zones of a volume that is in several."""


def only_read(metadata: Json) -> None:
    """Leave out annotations that no rule reads. In place."""
    kept = {key: value for key, value in metadata.get("annotations", {}).items() if key in READ_ANNOTATIONS}
    if kept:
        metadata["annotations"] = kept
    else:
        metadata.pop("annotations", None)


class Pseudonyms:
    """``hide`` documents, all of them; then ``resolve`` once."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._derived: dict[str, tuple[str, tuple[str, ...], str]] = {}
        """By name: what it is made of: what stands between these names, and what comes behind them as it is."""
        self._fill: list[tuple[Any, Any, str]] = []
        """(container, key or place, the name that stands there)."""
        self._maps: list[tuple[Json, str, Callable[[str, Any], Any]]] = []
        self._names: dict[str, str] = {}

    def hide(self, kind: str, item: Json) -> None:
        """One object of a kind, by its field of the document. In place."""
        metadata = item.get("metadata", {})
        only_read(metadata)
        self._derive(kind, item, metadata)
        if kind in PUBLIC_KINDS:
            keeps = kind == "deviceClasses"  # a resource, or a request, may be called after it
            name = metadata.pop("name", "") if keeps else ""
            self._walk(metadata)
            if keeps:
                metadata["name"] = name
            self._public({key: value for key, value in item.items() if key != "metadata"})
            return
        self._walk(item)

    def hide_facts(self, facts: Any) -> None:
        """What a mesh tells: decisions, agents, measurements. In place."""
        self._walk(facts)

    def resolve(self) -> dict[str, str]:
        """Put the pseudonyms in; by name what became of it."""
        parts = {part for _, pieces, _ in self._derived.values() for part in pieces if not _public(part)}
        shown = in_order((self._texts - self._derived.keys()) | parts)
        width = max(4, len(str(len(shown))))
        self._names = {text: f"n{place:0{width}}" for place, text in enumerate(shown, start=1)}
        for text, (between, pieces, end) in self._derived.items():
            self._names[text] = between.join(map(self._named, pieces)) + end
        for container, place, text in self._fill:
            container[place] = self._names[text]
        for parent, field, renamed in self._maps:
            before = parent[field]
            parent[field] = {self._key(key): renamed(key, value) for key, value in before.items()}
        return dict(self._names)

    # --- what is a name -----------------------------------------------------------------------------------------------

    def _named(self, text: str) -> str:
        return text if _public(text) else self._names[text]

    def _key(self, key: str) -> str:
        return key if _public_key(key) else self._named(key)

    def _value(self, key: str, value: Any) -> Any:
        return value if key in READ_VALUES or not isinstance(value, str) else self._named(value)

    def _annotation(self, key: str, value: str) -> str:
        if key in NAMED_ANNOTATIONS or key == GROUP_LABEL:
            return self._named(value)
        return self._key(value) if key in KEY_ANNOTATIONS else value

    def _note(self, text: Any) -> None:
        if isinstance(text, str) and not _public(text):
            self._texts.add(text)

    def _put(self, container: Any, place: Any, text: str) -> None:
        if not _public(text):
            self._texts.add(text)
            self._fill.append((container, place, text))

    # --- where names stand --------------------------------------------------------------------------------------------

    def _walk(self, item: Any) -> None:
        if isinstance(item, list):
            for place, value in enumerate(item):
                if isinstance(value, str):
                    self._put(item, place, value)
                else:
                    self._walk(value)
            return
        if not isinstance(item, dict):
            return
        for field in MESSAGES & item.keys():
            del item[field]
        for field, value in item.items():
            if isinstance(value, str):
                self._text(item, field, value)
            elif isinstance(value, dict):
                self._mapping(item, field, value)
            elif isinstance(value, list) and field not in KEPT_FIELDS:
                self._listed(item, field, value)

    def _text(self, item: Json, field: str, value: str) -> None:
        if field in KEPT_FIELDS:
            return
        if field in KEY_FIELDS:
            if not _public_key(value):
                self._put(item, field, value)
        elif field == "value" and "key" in item:
            self._of_label(item, field, item["key"], value)
        elif field == "image":
            item[field] = normalised_image(value)
            self._image(item, field, item[field])
        else:
            self._put(item, field, value)

    def _mapping(self, item: Json, field: str, value: Json) -> None:
        if field in QUANTITIES:
            return
        if field == "annotations":
            for key, text in value.items():
                self._note(text if key in NAMED_ANNOTATIONS or key == GROUP_LABEL else "")
                if key in KEY_ANNOTATIONS and not _public_key(text):
                    self._note(text)
            self._maps.append((item, field, self._annotation))
        elif field == "latencies":
            for key in value:
                self._note(key)
            self._maps.append((item, field, lambda _, told: told))
        elif field in LABEL_MAPS and all(isinstance(text, str) for text in value.values()):
            for key, text in value.items():
                if not _public_key(key):
                    self._note(key)
                if key not in READ_VALUES:
                    self._zones(text)
                    self._note(text)
            self._maps.append((item, field, self._value))
        else:
            self._walk(value)

    def _listed(self, item: Json, field: str, value: list[Any]) -> None:
        if field in KEY_LISTS:
            for place, key in enumerate(value):
                if not _public_key(key):
                    self._put(value, place, key)
        elif field == "values" and "key" in item:
            for place, text in enumerate(value):
                if isinstance(text, str):
                    self._of_label(value, place, item["key"], text)
        elif field == "images":
            for image in value:
                names = image.get("names", [])
                for place, text in enumerate(names):
                    self._image(names, place, text)
        else:
            self._walk(value)

    def _of_label(self, container: Any, place: Any, key: str, text: str) -> None:
        if key not in READ_VALUES:
            self._zones(text)
            self._put(container, place, text)

    def _zones(self, text: str) -> None:
        if _SEVERAL_ZONES in text:
            self._derived[text] = (_SEVERAL_ZONES, tuple(text.split(_SEVERAL_ZONES)), "")

    def _image(self, container: Any, place: Any, text: str) -> None:
        """Repository and tag apart: a name without a tag means another image than one with it."""
        repository, _, tag = text.rpartition(":")
        self._derived[text] = (":", (repository, tag), "")
        self._put(container, place, text)

    def _public(self, item: Any) -> None:
        """Of a kind where names are few."""
        if isinstance(item, list):
            for value in item:
                self._public(value)
        elif isinstance(item, dict):
            for field, value in item.items():
                if field == "nodeSelector" or (field in NAMES_IN_PUBLIC and not isinstance(value, str)):
                    self._walk(value)
                elif field in NAMES_IN_PUBLIC:
                    self._put(item, field, value)
                else:
                    self._public(value)

    # --- names of names -----------------------------------------------------------------------------------------------

    def _derive(self, kind: str, item: Json, metadata: Json) -> None:
        for owner in metadata.get("ownerReferences", ()):
            self._derive_owner(owner.get("kind", ""), owner.get("name", ""), metadata.get("labels", {}))
        name = metadata.get("name", "")
        if kind == "jobs":
            self._derive_owner("Job", name, {})
        if kind == "pods":
            for volume in item.get("spec", {}).get("volumes", ()):
                if "ephemeral" in volume:
                    self._derived[f"{name}-{volume['name']}"] = ("-", (name, volume["name"]), "")

    def _derive_owner(self, kind: str, name: str, labels: Json) -> None:
        end = f"-{labels.get(TEMPLATE_HASH, '')}"
        if kind == "ReplicaSet" and len(end) > 1 and name.endswith(end):
            # the hash stays as it is, for the label that repeats it does
            self._derived[name] = ("", (name.removesuffix(end),), end)
        elif kind == "Job" and (found := _SCHEDULED.fullmatch(name)):
            self._derived[name] = ("", (found[1],), f"-{found[2]}")


def in_order(texts: Iterable[str]) -> list[str]:
    """As the pseudonyms sort."""
    return sorted(texts)


def _public(text: str) -> bool:
    return text in PUBLIC_NAMES or _NUMBER.fullmatch(text) is not None


def _public_key(key: str) -> bool:
    """Whether somebody else than the cluster's owner chose the key."""
    if key in PUBLIC_KEYS or not key:
        return True
    domain = key.rpartition("/")[0]
    return bool(domain) and domain not in CHOSEN_DOMAINS and OWN_DOMAINS.fullmatch(domain) is not None
