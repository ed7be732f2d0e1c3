"""Volumes and claims: StorageClass, PersistentVolume, PersistentVolumeClaim, CSINode and the other storage kinds.

Sources: ``pkg/apis/core`` and ``pkg/apis/storage`` (defaults, validation), ``pkg/registry/core/persistentvolume*``,
``plugin/pkg/admission/storage/storageobjectinuseprotection`` (the protection finalizers).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.defaults import default_volume_source
from twin.kinds.pod.scheduling_rules import check_node_selector
from twin.kinds.rules.names import check, check_label_selector, dns_subdomain, qualified_name
from twin.kinds.rules.printing import UNSET, printed
from twin.kinds.rules.quantity import parse
from twin.kinds.rules.resources import check_amount
from twin.kinds.rules.typed import TypedStrategy
from twin.kinds.storage.volume_rules import check_host_path, default_claim
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, not_supported, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_GROUP = "storage.k8s.io"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_NOT_SOURCES = frozenset(
    ("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName", "mountOptions",
     "volumeMode", "nodeAffinity", "volumeAttributesClassName")
)  # fmt: skip
_CLAIM_MAY_CHANGE = ("volumeName", "resources", "storageClassName", "volumeAttributesClassName")
_CLAIM_TEXT = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _annotation_warnings(obj: Json) -> list[str]:
    """Of volumes and claims: the beta annotation that storageClassName replaced."""
    if _BETA_CLASS not in (obj["metadata"].get("annotations") or ()):
        return []
    return [f'metadata.annotations[{_BETA_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead']


def add_finalizer(obj: Json, finalizer: str) -> None:
    """The protection plugins' mark, once."""
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def _is_default(obj: Json) -> bool:
    return bool((obj["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION) == "true")


def _phase_text(obj: Json) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else obj["status"].get("phase", "")


def _claim_text(claim: Json) -> str:
    return f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else ""


def _bound(obj: Json) -> bool:
    return bool(obj["spec"].get("volumeName"))


class StorageClassStrategy(TypedStrategy):
    """storage.k8s.io/v1 StorageClass."""

    info = KindInfo(_GROUP, "v1", "StorageClass", "storageclasses", "storageclass", False, short_names=("sc",))
    go_type = "storage/v1.StorageClass"
    has_generation = False
    resets_status = False
    table = printed(
        ("Name", lambda obj: obj["metadata"]["name"] + (" (default)" if _is_default(obj) else "")),
        "Provisioner=provisioner",
        "ReclaimPolicy=reclaimPolicy",
        "VolumeBindingMode=volumeBindingMode",
        ("AllowVolumeExpansion", lambda obj: bool(obj.get("allowVolumeExpansion"))),
        "Age",
    )

    def default(self, obj: Json) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        if not obj.get("provisioner"):
            found.append(required("provisioner"))
        else:
            found += check("provisioner", obj["provisioner"].lower(), qualified_name)
        if obj["reclaimPolicy"] not in ("Delete", "Retain"):
            found.append(not_supported("reclaimPolicy", obj["reclaimPolicy"], ("Delete", "Retain")))
        if obj["volumeBindingMode"] not in _BINDING_MODES:
            found.append(not_supported("volumeBindingMode", obj["volumeBindingMode"], _BINDING_MODES))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = [
            forbidden_field(name, f"updates to {name} are forbidden.")
            for name in ("parameters", "provisioner", "reclaimPolicy")
            if obj.get(name) != old.get(name)
        ]
        if obj["volumeBindingMode"] != old["volumeBindingMode"]:
            found.append(invalid("volumeBindingMode", obj["volumeBindingMode"], "field is immutable"))
        return found


class PersistentVolumeStrategy(TypedStrategy):
    """Core v1 PersistentVolume."""

    info = KindInfo("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume", False, short_names=("pv",))
    go_type = "core/v1.PersistentVolume"
    has_generation = False
    returns_deleted = True
    table = printed(
        "Name",
        ("Capacity", lambda obj: (obj["spec"].get("capacity") or {}).get("storage", "0")),
        ("Access Modes", lambda obj: _modes_text(obj["spec"].get("accessModes"))),
        "Reclaim Policy=spec.persistentVolumeReclaimPolicy",
        ("Status", _phase_text),
        ("Claim", lambda obj: _claim_text(obj["spec"].get("claimRef") or {})),
        "StorageClass=spec.storageClassName",
        f"VolumeAttributesClass=spec.volumeAttributesClassName|{UNSET}",
        "Reason=status.reason",
        "Age",
        wide=(f"VolumeMode=spec.volumeMode|{UNSET}",),
    )

    def default(self, obj: Json) -> None:
        spec = obj["spec"]
        if not spec.get("persistentVolumeReclaimPolicy"):
            spec["persistentVolumeReclaimPolicy"] = "Retain"
        spec.setdefault("volumeMode", "Filesystem")
        if "hostPath" in spec:
            spec["hostPath"].setdefault("type", "")
        default_volume_source(spec)
        if obj.get("status") is not None and not obj["status"].get("phase"):
            obj["status"]["phase"] = "Pending"

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        if old is None:
            add_finalizer(obj, "kubernetes.io/pv-protection")

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": ctx.now}

    def prepare_for_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        if obj["status"].get("phase") != old["status"].get("phase"):
            if not obj["status"].get("lastPhaseTransitionTime") or obj["status"].get("lastPhaseTransitionTime") == old[
                "status"
            ].get("lastPhaseTransitionTime"):
                obj["status"]["lastPhaseTransitionTime"] = ctx.now
        elif "lastPhaseTransitionTime" in old["status"]:
            obj["status"].setdefault("lastPhaseTransitionTime", old["status"]["lastPhaseTransitionTime"])

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = _check_access_modes(spec, "spec")
        capacity = spec.get("capacity") or {}
        if not capacity:
            found.append(required("spec.capacity"))
        elif list(capacity) != ["storage"]:
            found.append(not_supported("spec.capacity", capacity, ("storage",)))
        for name, amount in capacity.items():
            if amount.startswith("-") or amount == "0":
                found.append(invalid(f"spec.capacity[{name}]", amount, "must be greater than zero"))
            found += check_amount(name, amount, f"spec.capacity[{name}]") if not amount.startswith("-") else []
        policy = spec["persistentVolumeReclaimPolicy"]
        if policy not in _RECLAIM_POLICIES:
            found.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES))
        required_terms = (spec.get("nodeAffinity") or {}).get("required")
        if spec.get("nodeAffinity") is not None:
            if required_terms is None:
                found.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
            else:
                found += check_node_selector(required_terms, "spec.nodeAffinity.required")
        sources = [name for name in spec if name not in _NOT_SOURCES]
        if not sources:
            found.append(required("spec", "must specify a volume type"))
        found += [forbidden_field(f"spec.{one}", "may not specify more than 1 volume type") for one in sources[1:]]
        if "hostPath" in spec:
            found += check_host_path(spec["hostPath"], "spec.hostPath")
        if spec.get("local") and spec.get("nodeAffinity") is None:
            found.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
        if spec.get("storageClassName"):
            found += check("spec.storageClassName", spec["storageClassName"], dns_subdomain)
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        new, before = obj["spec"], old["spec"]
        sources = {name for name in new.keys() | before.keys() if name not in _NOT_SOURCES}
        if any(new.get(name) != before.get(name) for name in sources):
            text = "spec.persistentvolumesource is immutable after creation"
            found.append(forbidden_field("spec.persistentvolumesource", text))
        if new.get("volumeMode") != before.get("volumeMode"):
            found.append(invalid("spec.volumeMode", new.get("volumeMode"), "field is immutable"))
        return found

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        return _annotation_warnings(obj)


class PersistentVolumeClaimStrategy(TypedStrategy):
    """Core v1 PersistentVolumeClaim."""

    info = KindInfo(
        "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim", True, short_names=("pvc",)
    )
    go_type = "core/v1.PersistentVolumeClaim"
    has_generation = False
    returns_deleted = True
    table = printed(
        "Name",
        ("Status", _phase_text),
        "Volume=spec.volumeName",
        ("Capacity", lambda obj: (obj["status"].get("capacity") or {}).get("storage", "0") if _bound(obj) else ""),
        ("Access Modes", lambda obj: _modes_text(obj["status"].get("accessModes")) if _bound(obj) else ""),
        "StorageClass=spec.storageClassName",
        f"VolumeAttributesClass=status.currentVolumeAttributesClassName|{UNSET}",
        "Age",
        wide=(f"VolumeMode=spec.volumeMode|{UNSET}",),
    )

    def default(self, obj: Json) -> None:
        default_claim(obj)

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        """The protection finalizer, and the default StorageClass where none is named."""
        if old is not None:
            return
        add_finalizer(obj, "kubernetes.io/pvc-protection")
        if "storageClassName" not in obj["spec"]:
            defaults = [one for one in ctx.reader.list(f"storageclasses.{_GROUP}") if _is_default(one)]
            if defaults:
                newest = max(defaults, key=lambda one: one["metadata"]["creationTimestamp"])
                obj["spec"]["storageClassName"] = newest["metadata"]["name"]

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = _check_access_modes(spec, "spec")
        found += check_label_selector(spec.get("selector"), "spec.selector")
        amount = (spec["resources"].get("requests") or {}).get("storage")
        if amount is None:
            found.append(required("spec.resources[storage]"))
        elif amount.startswith("-") or amount == "0":
            found.append(invalid("spec.resources[storage]", amount, "must be greater than zero"))
        if spec.get("storageClassName"):
            found += check("spec.storageClassName", spec["storageClassName"], dns_subdomain)
        if spec["volumeMode"] not in ("Block", "Filesystem"):
            found.append(not_supported("spec.volumeMode", spec["volumeMode"], ("Block", "Filesystem")))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        new, before = obj["spec"], old["spec"]
        may = set(_CLAIM_MAY_CHANGE)
        if before.get("volumeName"):
            may.discard("volumeName")
        if before.get("storageClassName") is not None:
            may.discard("storageClassName")
        changed = {name for name in new.keys() | before.keys() if new.get(name) != before.get(name)}
        if changed - may:
            found.append(forbidden_field("spec", _CLAIM_TEXT))
        return found

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        amount = (obj["spec"]["resources"].get("requests") or {}).get("storage")
        found = _annotation_warnings(obj)
        if amount is not None and not parse(amount).is_integer:
            text = f'fractional byte value "{amount}" is invalid, must be an integer'
            found.append(f"spec.resources.requests[storage]: {text}")
        return found


class CSINodeStrategy(TypedStrategy):
    """storage.k8s.io/v1 CSINode."""

    info = KindInfo(_GROUP, "v1", "CSINode", "csinodes", "csinode", False)
    go_type = "storage/v1.CSINode"
    allow_unconditional_update = False
    has_generation = False
    resets_status = False
    table = printed("Name", ("Drivers:integer", lambda obj: len(obj["spec"].get("drivers") or ())), "Age")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        seen: set[str] = set()
        for index, driver in enumerate(obj["spec"].get("drivers") or ()):
            here, name = f"spec.drivers[{index}]", driver.get("name", "")
            if not name:
                found.append(required(f"{here}.name"))
            elif name in seen:
                found.append(duplicate(f"{here}.name", name))
            seen.add(name)
            if not driver.get("nodeID"):
                found.append(required(f"{here}.nodeID"))
            count = (driver.get("allocatable") or {}).get("count")
            if count is not None and count < 0:
                text = "must be greater than or equal to 0"
                found.append(invalid(f"{here}.allocatable.count", count, text))
        return found


def _check_access_modes(spec: Json, field: str) -> list[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        text = "at least 1 access mode is required" if "resources" in spec else ""
        return [required(f"{field}.accessModes", text)]
    return [not_supported(f"{field}.accessModes", mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES]


def _modes_text(modes: list[str] | None) -> str:
    return ",".join(_SHORT_MODES.get(mode, mode) for mode in modes or ())
