"""Kinds that are stored as they come: typed, defaulted where a default is one value, with no rules of their own.

Why: clients list and watch many kinds that nothing behind the twin acts on. One table row serves each; a kind that
gains a rule moves to a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twin.kinds.rules.codec import TYPES
from twin.kinds.rules.plain_tables import PLAIN_TABLES
from twin.kinds.rules.typed import TypedStrategy, blank_object
from twin.registry.strategy import DEFAULT_COLUMNS, NAME_PATH_SEGMENT, NAME_SUBDOMAIN, KindInfo, KindStrategy

Json = dict[str, Any]


class PlainStrategy(TypedStrategy):
    """One row of the table."""

    def __init__(
        self,
        info: KindInfo,
        package: str,
        *,
        generation: bool = False,
        status: bool = False,
        name_rule: str = NAME_SUBDOMAIN,
        returns_deleted: bool = False,
        put_creates: bool = False,
        unconditional: bool = True,
        default: Callable[[Json], None] | None = None,
        deprecation: str = "",
    ) -> None:
        self.info = info
        self.go_type = f"{package}.{info.kind}"
        self.blank = blank_object(self.go_type)
        self.merge_keys = TYPES.merge_keys(self.go_type)
        self.has_generation = generation
        self.resets_status = status
        self.name_rule = name_rule
        self.returns_deleted = returns_deleted
        self.allow_create_on_update = put_creates
        self.allow_unconditional_update = unconditional
        self.table = PLAIN_TABLES.get(info.kind)
        self.table_columns = DEFAULT_COLUMNS if self.table is None else self.table.columns
        self.deprecation = deprecation
        self._default = default
        super().__init__()

    def default(self, obj: Json) -> None:
        if self._default is not None:
            self._default(obj)


def _default_webhooks(obj: Json) -> None:
    for hook in obj.get("webhooks") or ():
        for name, value in (("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("timeoutSeconds", 10)):
            hook.setdefault(name, value)
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")


def _default_mutating_webhooks(obj: Json) -> None:
    _default_webhooks(obj)
    for hook in obj.get("webhooks") or ():
        hook.setdefault("reinvocationPolicy", "Never")


def _default_role_ref(obj: Json) -> None:
    if not obj["roleRef"].get("apiGroup"):
        obj["roleRef"]["apiGroup"] = _RBAC
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _default_network_policy(obj: Json) -> None:
    spec = obj["spec"]
    for part in ("ingress", "egress"):
        for rule in spec.get(part) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _default_endpoint_ports(obj: Json) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _default_slice_ports(obj: Json) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _default_csi_driver(obj: Json) -> None:
    spec = obj["spec"]
    for name, value in (
        ("attachRequired", True), ("podInfoOnMount", False), ("requiresRepublish", False),
        ("storageCapacity", False), ("seLinuxMount", False), ("fsGroupPolicy", "ReadWriteOnceWithFSType"),
    ):  # fmt: skip
        spec.setdefault(name, value)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


_ADMISSION, _RBAC, _NETWORK = "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "networking.k8s.io"
_STORAGE, _FLOW = "storage.k8s.io", "flowcontrol.apiserver.k8s.io"


def plain_strategies() -> list[KindStrategy]:
    """All of them."""

    def row(
        group: str, kind: str, plural: str, package: str, *short: str, namespaced: bool = False, **flags: Any
    ) -> PlainStrategy:
        info = KindInfo(group, "v1", kind, plural, kind.lower(), namespaced, short_names=short)
        return PlainStrategy(info, f"{package}/v1", **flags)

    path = NAME_PATH_SEGMENT
    return [
        row("", "Endpoints", "endpoints", "core", "ep", namespaced=True, put_creates=True,
            default=_default_endpoint_ports,
            deprecation="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        row("", "PodTemplate", "podtemplates", "core", namespaced=True, generation=True, returns_deleted=True),
        row("discovery.k8s.io", "EndpointSlice", "endpointslices", "discovery", namespaced=True, generation=True,
            default=_default_slice_ports),
        row(_NETWORK, "NetworkPolicy", "networkpolicies", "networking", "netpol", namespaced=True, generation=True,
            default=_default_network_policy),
        row(_NETWORK, "Ingress", "ingresses", "networking", "ing", namespaced=True, generation=True, status=True),
        row(_NETWORK, "IngressClass", "ingressclasses", "networking", generation=True),
        row(_NETWORK, "IPAddress", "ipaddresses", "networking", "ip"),
        row(_NETWORK, "ServiceCIDR", "servicecidrs", "networking", status=True),
        row(_RBAC, "Role", "roles", "rbac", namespaced=True, put_creates=True, name_rule=path),
        row(_RBAC, "RoleBinding", "rolebindings", "rbac", namespaced=True, put_creates=True, name_rule=path,
            default=_default_role_ref),
        row(_RBAC, "ClusterRole", "clusterroles", "rbac", put_creates=True, name_rule=path),
        row(_RBAC, "ClusterRoleBinding", "clusterrolebindings", "rbac", put_creates=True, name_rule=path,
            default=_default_role_ref),
        row(_STORAGE, "CSIDriver", "csidrivers", "storage", unconditional=False, default=_default_csi_driver),
        row(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", "storage", namespaced=True, unconditional=False),
        row(_STORAGE, "VolumeAttachment", "volumeattachments", "storage", status=True, unconditional=False),
        row(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", "storage", "vac"),
        row(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "admissionregistration",
            generation=True, unconditional=False, default=_default_mutating_webhooks),
        row(_ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "admissionregistration",
            generation=True, unconditional=False, default=_default_webhooks),
        row(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "admissionregistration",
            generation=True, unconditional=False, status=True),
        row(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
            "admissionregistration", generation=True, unconditional=False),
        row("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", "certificates", "csr",
            status=True),
        row(_FLOW, "FlowSchema", "flowschemas", "flowcontrol", generation=True, status=True),
        row(_FLOW, "PriorityLevelConfiguration", "prioritylevelconfigurations", "flowcontrol", generation=True,
            status=True),
    ]  # fmt: skip
