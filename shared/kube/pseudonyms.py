"""Names of a cluster's objects replaced, so that a copy of them may leave the house and still decides alike. Pure.

    documents (JSON as Python has it) --hide, in place--> texts that are names --resolve--> pseudonyms in their order

A text is a name unless it is known for something else: a word of an API (``WORDS``), a number or quantity, a time, a
drawn uid, a key or resource of Kubernetes' or a known vendor's domain. So what nobody thought of here is hidden, not
shown. The same holds of keys of maps: fields of the kinds that are read stay, all other keys are names. Configuration
of devices is left out, and strings in CEL are hidden as the attributes that they are compared with.

Equal names get equal pseudonyms wherever they stand, so selectors, owners, claims and zones mean what they meant; the
pseudonyms sort among themselves as the names do, since rules break ties by name (beside a name that stays, or a number,
they may sort otherwise). Names that Kubernetes derives from others (the claim of an ephemeral volume, a Deployment's
ReplicaSet, a CronJob's Job) are derived anew from their parts' pseudonyms. Nothing of a name is in its pseudonym: there
is no key to guess, and no dictionary helps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_args

import msgspec

from shared.kube.cluster_objects import BETA_CLASS, BIND_COMPLETED, SELECTED_NODE, ClusterObjects
from shared.kube.nodes.katalyst import CustomNodeResource
from shared.kube.nodes.node_topology import POLICY_ATTRIBUTE, SCOPE_ATTRIBUTE, NodeResourceTopology
from shared.kube.pod_groups import COMPLETION_INDEX, GROUP_LABEL, Job, PluginsPodGroup, PodGroupV1alpha2
from shared.kube.pods.convert import REFUSALS
from shared.kube.pods.convert_demands import FOREIGN_SHARES
from shared.kube.pods.convert_devices import EXTENDED_CLAIM
from shared.kube.pods.convert_relations import normalised_image
from shared.kube.pods.qos import ANNOTATIONS as QOS_ANNOTATIONS
from shared.kube.pods.qos import LABELS as QOS_LABELS
from shared.kube.pods.qos import VOCABULARIES as QOS_VOCABULARIES
from shared.kube.queues import QueueObject
from shared.kube.reservations_kept import KeptReservation
from shared.kube.training.training_jobs import GPU_TYPE_LABELS
from shared.model.features import DECIDING_FEATURES
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
from shared.model.power import CURVE_LABEL, TYPE_LABEL
from shared.model.units.pod_group import (
    GANG_ANNOTATION,
    GANG_BROKEN_ANNOTATION,
    GANG_MIN_COUNT_ANNOTATION,
    GANG_TOPOLOGY_ANNOTATION,
    GANG_TOPOLOGY_PREFERRED_ANNOTATION,
)
from shared.model.units.reservation import KEEP_ROOM_ANNOTATION, RESERVATION_ANNOTATION
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
            GANG_MIN_COUNT_ANNOTATION, RESERVATION_ANNOTATION, KEEP_ROOM_ANNOTATION, *NOT_REMOVED, *FOREIGN_SHARES,
            *QOS_ANNOTATIONS,
        }
    )
    | NAMED_ANNOTATIONS
    | KEY_ANNOTATIONS
)  # fmt: skip
"""Annotations that a rule reads. All others are left out of every copy: they may hold anything, secrets too."""

OWN_DOMAINS = re.compile(
    r"(.+\.)?(kubernetes\.io|k8s\.io|conclave\.io|nvidia\.com|amd\.com|intel\.com|koordinator\.sh|kubewharf\.io"
    r"|volcano\.sh|karpenter\.sh|cloud\.google\.com|gke\.io|aws\.com|amazonaws\.com|azure\.com)"
)
"""Whose keys of labels and taints are public."""
CHOSEN_DOMAINS = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Public domains under which users choose what comes behind."""
CLOUDS = (".amazonaws.com", ".azure.com")
"""Domains in which clouds name machines."""
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
    "system-node-critical", "default-scheduler", "conclave",
})  # fmt: skip

WORDS = frozenset({
    "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "NoSchedule", "PreferNoSchedule", "NoExecute", "None",
    "True", "False", "Unknown", "Pending", "Running", "Succeeded", "Failed", "Available", "Bound", "Released", "Lost",
    "TCP", "UDP", "SCTP", "Always", "OnFailure", "Never", "Restart", "RestartAllContainers", "PreemptLowerPriority",
    "DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "Filesystem", "Block", "ReadWriteOnce", "ReadOnlyMany",
    "ReadWriteMany", "ReadWriteOncePod", "WaitForFirstConsumer", "Immediate", "ExactCount", "All", "NonIndexed",
    "Indexed", "single", "all", "Single", "PodGroup", "Pod", "Ready", "MemoryPressure", "DiskPressure", "PIDPressure",
    "NetworkUnavailable", "PodScheduled", "DisruptionTarget", "PodResizePending", "PodResizeInProgress", "Initialized",
    "ContainersReady", "PodReadyToStartContainers", "Unschedulable", "SchedulingGated", "PreemptionByScheduler",
    "Infeasible", "Deferred", "Evicted", "NodeShutdown", "Terminated", "Preempting", "KubeletReady",
    "OutOfcpu", "OutOfmemory", "OutOfpods", "Scheduled", "PodGroupScheduled", "PreScheduling", "Scheduling",
    "Inqueue", "Finished", "Node", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob",
    "ReplicationController", "apps/v1", "batch/v1", "v1",
    "none", "best-effort", "restricted", "single-numa-node", "container", "pod", "BestEffort",
    "BestEffortContainerLevel", "BestEffortPodLevel", "Restricted", "RestrictedContainerLevel", "RestrictedPodLevel",
    "SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel", "LowerPriority", "Any", "yes", "snapshot",
    "PodGroupInitiallyScheduled", "Socket", "Numa", "NumericContainerLevel", "NumericPodLevel",
    "Priority", "FIFO", "DRF", "WeightedFairShare", "Guaranteed", "FairShare", "Expired",
}) | DECIDING_FEATURES | REFUSALS  # fmt: skip
"""What an API says by a word of its own."""

WORD_FIELDS = frozenset({
    "operator", "effect", "phase", "status", "type", "reason", "protocol", "restartPolicy", "action", "apiVersion",
    "kind", "preemptionPolicy", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy", "volumeMode",
    "accessModes", "volumeBindingMode", "completionMode", "topologyPolicy", "declaredFeatures",
    "disruptionMode", "allocationMode", "topologyPolicies",
    "source", "withinQueue", "order", "strategy", "upTo",
})  # fmt: skip
"""Where such words stand; anything else there is hidden, too."""

UNTYPED = frozenset({"enabled", "delaySeconds", "upTo", "withinQueue", "halfLifeSeconds"})
"""Fields of a Queue that are read from a plain mapping."""

TIME_FIELDS = frozenset({
    "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "startTime", "startedAt", "finishedAt", "time",
    "allocationTimestamp", "expirationTime",
})  # fmt: skip
UID_FIELDS = frozenset({"uid", "id", "queue", "shareID"})
"""A uid is drawn, and says who is in a canary; one that somebody chose is hidden."""

RESOURCE_MAPS = frozenset({
    "requests", "limits", "allocatable", "capacity", "overhead", "allocatedResources", "minResources", "guaranteed",
    "maximum", "borrowingLimit", "lendingLimit", "consumedCapacity", "counters", "attributes",
})  # fmt: skip
"""Maps by resource."""
QUANTITY_FIELDS = frozenset({
    "min", "max", "step", "default", "validValues", "value", "quantity", "available", "capacity", "allocatable",
})  # fmt: skip
RESOURCE_FIELDS = frozenset({"resourceName", "extendedResourceName"})
KUBELET_ATTRIBUTES = frozenset({POLICY_ATTRIBUTE, SCOPE_ATTRIBUTE})
NATIVE_RESOURCES = re.compile(r"cpu|memory|pods|storage|ephemeral-storage|hugepages-[0-9]+[KMGT]i|gpu-milli")

DROPPED = frozenset({"message", "missing", "evicted", "config", "opaque", "parameters"})
"""Texts for people and for drivers, which may hold anything: left out of every copy."""

LABEL_MAPS = frozenset({"labels", "matchLabels", "nodeSelector", "selector"})
KEY_FIELDS, KEY_LISTS = frozenset({"key", "topologyKey"}), frozenset({"matchLabelKeys", "finalizers"})
QUALIFIED = frozenset({"matchAttribute", "distinctAttribute", "request", "requests"})
"""Texts of two names with a slash between them."""

CEL_WORDS = frozenset({
    "device", "driver", "attributes", "capacity", "allowMultipleAllocations", "in", "true", "false", "null", "has",
    "all", "exists", "exists_one", "filter", "map", "size", "string", "int", "double", "bool", "type", "cel", "bind",
    "quantity", "isQuantity", "compareTo", "isGreaterThan", "isLessThan", "asInteger", "isInteger",
    "asApproximateFloat", "sign", "add", "sub", "semver", "isSemver", "major", "minor", "patch", "orValue", "optional",
    "hasValue", "value",
    "matches", "startsWith", "endsWith", "contains", "lowerAscii", "upperAscii", "includes",
})  # fmt: skip
"""Words of CEL, its functions and what it says of a device."""
ATTRIBUTES = frozenset({
    "model", "productName", "type", "uuid", "index", "minor", "brand", "architecture", "driverVersion", "memory",
    "cudaDriverVersion", "cudaComputeCapability", "profile", "parentUUID", "pcieRoot", "pciBusID", "numaNode", "numa",
    "multiprocessors", "numaNodeID", "socketID", "ring", "cores",
})  # fmt: skip
"""Attributes and capacities of devices as drivers name them."""
_CEL = re.compile(r"""("[^"\\]*"|'[^'\\]*')|([A-Za-z_][A-Za-z0-9_]*)|([0-9.]+|[^A-Za-z_"'\\0-9]+)""")

STAYING = PUBLIC_NAMES | CEL_WORDS | ATTRIBUTES
"""Names that nobody is known by."""
CLASS_DOMAIN = "deviceclass.resource.kubernetes.io"
"""Before the name of a class, where it is asked for as a resource."""
ANNOTATION_WORDS = frozenset({"true", "false", "yes", *NOT_REMOVED}) | {
    word for _, _, words in QOS_VOCABULARIES for word in words
}

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_QUANTITY = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?")
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d|%)")
_VERSION = re.compile(r"v?[0-9]+(\.[0-9]+){1,3}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
_UID = re.compile(r"[0-9a-f]{8,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH = re.compile(r"[bcdfghjklmnpqrstvwxz0-9]{5,10}")
_MADE_REQUEST = re.compile(r"container-[0-9]+-request-[0-9]+")
_ZONESTAYING = PUBLIC_NAMES | CEL_WORDS | ATTRIBUTES
"""Names that nobody is known by."""
CLASS_DOMAIN = "deviceclass.resource.kubernetes.io"
"""Before the name of a class, where it is asked for as a resource."""
ANNOTATION_WORDS = frozenset({"true", "false", "yes", *NOT_REMOVED}) | {
    word for _, _, words in QOS_VOCABULARIES for word in words
}

_NUMBER = re.compile(r"[0-9]+$")
_ZONE_NUMBER = re.compile(r"[0-9]{1,3}$")
_ZONE = re.compile(r"zone-[0-9]{1,3}")
_SCHEDULED = re.compile(r"(.+)-(2[5-9][0-9]{6}|3[0-9]{7}|1[5-9][0-9]{8})")
"""A CronJob's Job: minutes or seconds since 1970."""
_SEVERAL_ZONES = "__"
"""Between the zones of a volume that is in several."""


def only_read(item: Json) -> None:
    """Leave out annotations that no rule reads, of an object and of a template in it. In place."""
    _only_read(item.get("metadata", {}))
    _only_read(item.get("spec", {}).get("template", {}).get("metadata", {}))


def _only_read(metadata: Json) -> None:
    kept = {key: value for key, value in metadata.get("annotations", {}).items() if key in READ_ANNOTATIONS}
    if kept:
        metadata["annotations"] = kept
    else:
        metadata.pop("annotations", None)


def without_free_texts(item: Any) -> None:
    """Leave out texts for people and configuration for drivers. In place."""
    if isinstance(item, list):
        for value in item:
            without_free_texts(value)
    elif isinstance(item, dict):
        for field in DROPPED & item.keys():
            del item[field]
        for field, value in item.items():
            if field not in ("labels", "annotations"):
                without_free_texts(value)


def only_public(text: str) -> bool:
    """Whether a setting's text names nothing but resources of Kubernetes and of known vendors, and amounts."""
    parts = re.split(r"[\s,;:=()+*]+", text)
    return all(_public(part) or _public_resource(part) or _QUANTITY.fullmatch(part) is not None for part in parts)


class Pseudonyms:
    """``hide`` documents, all of them; then ``resolve`` once."""

    def __init__(self, policies: Iterable[str] = ()) -> None:
        """``policies``: names of those that decide, which stay."""
        self._policies = frozenset(policies)
        self._texts: set[str] = set()
        self._derived: dict[str, tuple[str, tuple[str, ...], str]] = {}
        """By name: what it is made of: what stands between these names, and what comes behind them as it is."""
        self._fill: list[tuple[Any, Any, str]] = []
        """(container, key or place, the name that stands there)."""
        self._maps: list[tuple[Json, str, Callable[[str], str], Callable[[str, Any], Any]]] = []
        self._expressions: list[tuple[Json, str]] = []
        self._csi: list[Json] = []
        self._names: dict[str, str] = {}

    def hide(self, kind: str, item: Json) -> None:
        """One object of a kind, by its field of the document. In place."""
        metadata = item.get("metadata", {})
        only_read(item)
        self._derive(kind, item, metadata)
        if kind == "nodeTopologies":
            self._zones_by_number(item.get("zones", ()))
        if kind == "customNodeResources":
            self._zones_by_number(item.get("status", {}).get("topologyZone", ()))
        if kind == "csiNodes":
            for driver in item.get("spec", {}).get("drivers", ()):
                driver["driver"] = driver.pop("name", "")  # as volumes call it
        self._walk(item)
        if kind == "csiNodes":
            self._csi.append(item)

    def hide_facts(self, facts: Json, only: Iterable[str]) -> None:
        """``only`` these fields of what a mesh tells: decisions, agents, measurements. In place."""
        for field in only:
            value = facts[field]
            if isinstance(value, str):
                self._text(facts, field, value)
            else:
                self._listed(facts, field, value)

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
        for parent, field, keyed, renamed in self._maps:
            before = parent[field]
            parent[field] = {keyed(key): renamed(key, value) for key, value in before.items()}
        for parent, field in self._expressions:
            parent[field] = "".join(self._cel_part(*found) for found in _CEL.findall(parent[field]))
        for item in self._csi:
            for driver in item.get("spec", {}).get("drivers", ()):
                driver["name"] = driver.pop("driver")
        return dict(self._names)

    # --- what is a name -----------------------------------------------------------------------------------------------

    def _named(self, text: str) -> str:
        return text if _public(text) else self._names[text]

    def _key(self, key: str) -> str:
        return key if _public_key(key) else self._named(key)

    def _resource(self, name: str) -> str:
        return self._names.get(name, name) if _public_resource(name) else self._named(name)

    def _value(self, key: str, value: Any) -> Any:
        return value if not isinstance(value, str) or _read_value(key, value) else self._named(value)

    def _annotation(self, key: str, value: str) -> str:
        if key in KEY_ANNOTATIONS:
            return self._key(value)
        return value if self._stays(key, value) else self._named(value)

    def _stays(self, key: str, value: str) -> bool:
        return _read_annotation(key, value) or (key == POLICY_ANNOTATION and self._title(value))

    def _title(self, text: str) -> bool:
        name, _, version = text.rpartition("@")
        return name in self._policies and _NUMBER.fullmatch(version) is not None

    def _cel_part(self, text: str, word: str, rest: str) -> str:
        if text:
            return text if _public_literal(text[1:-1]) else f"{text[0]}{self._named(text[1:-1])}{text[0]}"
        return self._named(word) if word else rest

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
                self._item(item, place, "", value)
            return
        if not isinstance(item, dict):
            return
        for field in DROPPED & item.keys():
            del item[field]
        for field, value in item.items():
            if isinstance(value, str):
                self._text(item, field, value)
            elif isinstance(value, dict):
                self._mapping(item, field, value)
            elif isinstance(value, list):
                self._listed(item, field, value)

    def _text(self, item: Any, field: str, value: str, place: Any = None) -> None:
        """``place``: where in a list that this field is."""
        at = field if place is None else place
        if field == "value" and place is None and "key" in item:
            self._of_label(item, field, item["key"], value)
        elif _known(field, value) or (field == "policy" and self._title(value)):
            return
        elif field in KEY_FIELDS or field in KEY_LISTS:
            if not _public_key(value):
                self._put(item, at, value)
        elif field in RESOURCE_FIELDS:
            if not self._public_resource(value):
                self._put(item, at, value)
        elif field == "expression":
            self._cel(item, value)
        elif field == "image":
            item[field] = normalised_image(value)
            self._image(item, field, item[field])
        else:
            if field in QUALIFIED:
                self._split(value)
            self._put(item, at, value)

    def _cel(self, item: Json, expression: str) -> None:
        parts = _CEL.findall(expression)
        if "".join(map("".join, parts)) != expression:  # escapes, raw texts: nothing in it is known
            self._put(item, "expression", expression)
            return
        for text, word, _ in parts:
            if text and not _public_literal(text[1:-1]):
                self._note(text[1:-1])
            else:
                self._note(word)
        self._expressions.append((item, "expression"))

    def _mapping(self, item: Json, field: str, value: Json) -> None:
        if field in RESOURCE_MAPS and value.keys() != {"requests"}:  # which is a claim's capacity
            self._by_resource(item, field, value)
        elif field == "annotations":
            for key, text in value.items():
                if key in KEY_ANNOTATIONS:
                    self._note("" if _public_key(text) else text)
                elif not self._stays(key, text):
                    self._note(text)
            self._maps.append((item, field, str, self._annotation))
        elif field in LABEL_MAPS and all(isinstance(text, str) for text in value.values()):
            for key, text in value.items():
                if not _public_key(key):
                    self._note(key)
                if not _read_value(key, text):
                    self._zones(text)
                    self._note(text)
            self._maps.append((item, field, self._key, self._value))
        else:
            self._item(item, field, "", value)

    def _by_resource(self, item: Json, field: str, value: Json) -> None:
        for key, amount in value.items():
            if isinstance(amount, dict):  # of a device; CEL knows it by its parts
                self._split(key)
            if not self._public_resource(key) or key in self._derived:
                self._note(key)
            self._item(value, key, "quantity", amount)
        self._maps.append((item, field, self._resource, lambda _, told: told))

    def _public_resource(self, name: str) -> bool:
        """Else its parts are names."""
        if _public_resource(name):
            return True
        self._split(name)
        return False

    def _split(self, name: str) -> None:
        if name.count("/") == 1:
            domain, _, rest = name.partition("/")
            if _vendors(domain):
                self._derived[name] = (f"{domain}/", ("", rest), "")
            else:
                self._derived[name] = ("/", (domain, rest), "")

    def _listed(self, item: Json, field: str, value: list[Any]) -> None:
        if field == "values" and "key" in item:
            for place, text in enumerate(value):
                if isinstance(text, str):
                    self._of_label(value, place, item["key"], text)
        elif field == "images":
            for image in value:
                names = image.get("names", [])
                for place, text in enumerate(names):
                    self._image(names, place, text)
        else:
            for place, one in enumerate(value):
                self._item(value, place, field, one)

    def _item(self, container: Any, place: Any, field: str, value: Any) -> None:
        """What stands in a list, or under a key that is no field."""
        if isinstance(value, str):
            self._text(container, field, value, place)
        elif isinstance(value, dict) and not value.keys() <= known_fields():
            self._unknown(container, place, value)
        else:
            self._walk(value)

    def _unknown(self, container: Any, place: Any, value: Json) -> None:
        """A map whose keys are no fields: they are names."""
        for key, told in value.items():
            self._note(key)
            self._item(value, key, "time", told)
        self._maps.append((container, place, self._named, lambda _, told: told))

    def _of_label(self, container: Any, place: Any, key: str, text: str) -> None:
        if not _read_value(key, text):
            self._zones(text)
            self._put(container, place, text)

    def _zones(self, text: str) -> None:
        if _SEVERAL_ZONES in text:
            self._derived[text] = (_SEVERAL_ZONES, tuple(text.split(_SEVERAL_ZONES)), "")

    def _zones_by_number(self, zones: Iterable[Json]) -> None:
        """Of a zone's name rules read the number at its end, of who has it the uid."""
        for zone in zones:
            for one in (zone, *zone.get("costs", ())):
                if number := _ZONE_NUMBER.search(one.get("name", "")):
                    one["name"] = f"zone-{number[0]}"
            for held in zone.get("allocations", ()):
                who = held.get("consumer", "")
                uid = who.rpartition("/")[2]
                if _UID.fullmatch(uid):
                    self._derived[who] = ("", (), f"default/pod/{uid}")
            self._zones_by_number(zone.get("children", ()))

    def _image(self, container: Any, place: Any, text: str) -> None:
        """Repository and tag apart: a name without a tag means another image than one with it."""
        repository, _, tag = text.rpartition(":")
        if repository and tag:
            self._derived[text] = (":", (repository, tag), "")
        self._put(container, place, text)

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


FACTS = frozenset({
    "node", "age_s", "cpu_millis", "memory_bytes", "disk", "network", "source", "delay_us", "latencies", "time",
    "namespace", "uid", "policy", "considered", "score", "accepted",
})  # fmt: skip
"""Fields of what a mesh tells."""


@cache
def known_fields() -> frozenset[str]:
    """Fields of the objects that are read, wherever they stand: no key of another map stays."""
    found: set[str] = set()
    waiting: list[Any] = [
        ClusterObjects,
        PodGroupV1alpha2,
        PluginsPodGroup,
        Job,
        QueueObject,
        KeptReservation,
        NodeResourceTopology,
        CustomNodeResource,
    ]
    seen: set[Any] = set()
    while waiting:
        of = waiting.pop()
        if isinstance(of, type) and issubclass(of, msgspec.Struct):
            if of not in seen:
                seen.add(of)
                fields = msgspec.structs.fields(of)
                found.update(one.encode_name for one in fields)
                waiting += [one.type for one in fields]
        else:
            waiting += get_args(of)
    return frozenset(found | UNTYPED | FACTS | DROPPED)


def _known(field: str, text: str) -> bool:
    """Whether the text is none that a user chose, by where it stands."""
    if field in WORD_FIELDS:
        return text in WORDS
    if field in TIME_FIELDS:
        return _TIME.fullmatch(text) is not None
    if field in UID_FIELDS:
        return _UID.fullmatch(text) is not None
    if field in QUANTITY_FIELDS:
        return _QUANTITY.fullmatch(text) is not None or (field == "value" and text in WORDS)
    if field in ("version", "versions"):
        return _VERSION.fullmatch(text) is not None
    if field in ("driver", "provisioner"):
        return _vendors(text)
    if field == "name":  # of a node's zone, what it has, how its kubelet lets pods on
        return _ZONE.fullmatch(text) is not None or _public_resource(text) or text in KUBELET_ATTRIBUTES
    return _MADE_REQUEST.fullmatch(text) is not None


def _vendors(text: str) -> bool:
    """A driver, or a resource, of a known vendor's domain; clouds name machines by theirs."""
    domain = text.partition("/")[0]
    return OWN_DOMAINS.fullmatch(domain) is not None and not domain.endswith((*CHOSEN_DOMAINS, *CLOUDS))


def _read_value(key: str, value: str) -> bool:
    """Whether a label's value means something to a rule, or to a policy."""
    if key == TEMPLATE_HASH:
        return _HASH.fullmatch(value) is not None
    return key in READ_VALUES


def _read_annotation(key: str, value: str) -> bool:
    """Whether the value is made of numbers, amounts, and words that rules of annotations know."""
    if key in NAMED_ANNOTATIONS or key == GROUP_LABEL:
        return False
    if key == RESERVATION_ANNOTATION:
        return _UID.fullmatch(value) is not None
    return all(
        not part or part in ANNOTATION_WORDS or any(form.fullmatch(part) for form in (_QUANTITY, _DURATION, _TIME))
        for part in re.split(r'[\s,;={}"]+|: *(?![0-9])', value)
    )


def _public_resource(name: str) -> bool:
    domain, slash, rest = name.partition("/")
    if not slash:
        return NATIVE_RESOURCES.fullmatch(name) is not None
    return domain != CLASS_DOMAIN and bool(rest) and _vendors(domain)


def _public_literal(text: str) -> bool:
    """Of an expression."""
    return _public(text) or _vendors(text) or any(form.fullmatch(text) for form in (_QUANTITY, _VERSION))


def _public(text: str) -> bool:
    return text in STAYING or _NUMBER.fullmatch(text) is not None


def _public_key(key: str) -> bool:
    """Whether somebody else than the cluster's owner chose the key."""
    if key in PUBLIC_KEYS or not key:
        return True
    domain = key.rpartition("/")[0]
    if domain.endswith(CHOSEN_DOMAINS):
        return False
    return bool(domain) and OWN_DOMAINS.fullmatch(domain) is not None
