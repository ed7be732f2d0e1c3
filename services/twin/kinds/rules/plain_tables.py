"""Table columns and cells of the kinds without rules: what ``kubectl get`` shows of roles, webhooks, drivers ...

Source: ``pkg/printers/internalversion/printers.go``. A kind that is not here prints its name and creation time, as a
real server does where no printer is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.twin.kinds.rules.printing import NONE, UNSET, columns, labels_text, object_age
from services.twin.kinds.workload.templates import container_cells, selector_cell
from services.twin.registry.strategy import Column

Json = dict[str, Any]
Cells = Callable[[Json, float], list[Any]]

_MOST_SHOWN = 3


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _name_and_age(obj: Json, now_s: float) -> list[Any]:
    return [_name(obj), object_age(obj, now_s)]


def _some(values: list[str], empty: str) -> str:
    if not values:
        return empty
    text = ",".join(values[:_MOST_SHOWN])
    more = len(values) - _MOST_SHOWN
    return f"{text} + {more} more..." if more > 0 else text


def _endpoints(obj: Json, now_s: float) -> list[Any]:
    pairs = [
        f"{address.get('ip', '')}:{port.get('port', 0)}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return [_name(obj), _some(pairs, NONE), object_age(obj, now_s)]


def _endpoint_slice(obj: Json, now_s: float) -> list[Any]:
    ports = [str(one.get("port", "*")) for one in obj.get("ports") or ()]
    addresses = [one for endpoint in obj.get("endpoints") or () for one in endpoint.get("addresses") or ()]
    return [
        _name(obj), obj.get("addressType", ""), _some(ports, UNSET), _some(addresses, UNSET), object_age(obj, now_s),
    ]  # fmt: skip


def _pod_template(obj: Json, now_s: float) -> list[Any]:
    template = obj.get("template") or {}
    return [_name(obj), *container_cells(template), labels_text((template.get("metadata") or {}).get("labels"))]


def _network_policy(obj: Json, now_s: float) -> list[Any]:
    return [_name(obj), selector_cell(obj["spec"].get("podSelector")), object_age(obj, now_s)]


def _ingress(obj: Json, now_s: float) -> list[Any]:
    spec = obj["spec"]
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    balancer = (obj.get("status") or {}).get("loadBalancer") or {}
    addresses = sorted({one.get("ip") or one.get("hostname", "") for one in balancer.get("ingress") or ()})
    ports = "80, 443" if spec.get("tls") else "80"
    return [
        _name(obj), spec.get("ingressClassName") or NONE, _some(hosts, "*"), ",".join(addresses), ports,
        object_age(obj, now_s),
    ]  # fmt: skip


def _ingress_class(obj: Json, now_s: float) -> list[Any]:
    parameters = obj["spec"].get("parameters")
    text = NONE
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        text = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    return [_name(obj), obj["spec"].get("controller", ""), text, object_age(obj, now_s)]


def _binding(obj: Json, now_s: float) -> list[Any]:
    role = obj["roleRef"]
    subjects = obj.get("subjects") or []

    def named(kind: str) -> str:
        return ", ".join(
            f"{one['namespace']}/{one['name']}" if one.get("namespace") else one.get("name", "")
            for one in subjects
            if one.get("kind") == kind
        )

    return [
        _name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", object_age(obj, now_s), named("User"),
        named("Group"), named("ServiceAccount"),
    ]  # fmt: skip


def _csi_driver(obj: Json, now_s: float) -> list[Any]:
    spec = obj["spec"]
    audiences = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    return [
        _name(obj), bool(spec.get("attachRequired")), bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")), ",".join(audiences) or UNSET, bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or UNSET, object_age(obj, now_s),
    ]  # fmt: skip


def _storage_capacity(obj: Json, now_s: float) -> list[Any]:
    return [_name(obj), obj.get("storageClassName", ""), obj.get("capacity", UNSET)]


def _volume_attachment(obj: Json, now_s: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    volume = (spec.get("source") or {}).get("persistentVolumeName", "")
    return [
        _name(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), bool(status.get("attached")),
        object_age(obj, now_s),
    ]  # fmt: skip


def _attributes_class(obj: Json, now_s: float) -> list[Any]:
    return [_name(obj), obj.get("driverName", ""), object_age(obj, now_s)]


def _webhooks(obj: Json, now_s: float) -> list[Any]:
    return [_name(obj), len(obj.get("webhooks") or ()), object_age(obj, now_s)]


def _flow_schema(obj: Json, now_s: float) -> list[Any]:
    spec = obj["spec"]
    conditions = (obj.get("status") or {}).get("conditions") or ()
    dangling = next((c.get("status", "?") for c in conditions if c.get("type") == "Dangling"), "?")
    return [
        _name(obj), (spec.get("priorityLevelConfiguration") or {}).get("name", ""), spec.get("matchingPrecedence", 0),
        (spec.get("distinguisherMethod") or {}).get("type") or NONE, object_age(obj, now_s), dangling,
    ]  # fmt: skip


def _resource_slice(obj: Json, now_s: float) -> list[Any]:
    spec = obj["spec"]
    return [
        _name(obj), spec.get("nodeName") or UNSET, spec.get("driver", ""), (spec.get("pool") or {}).get("name", ""),
        object_age(obj, now_s),
    ]  # fmt: skip


def _service_cidr(obj: Json, now_s: float) -> list[Any]:
    return [_name(obj), ",".join(obj["spec"].get("cidrs") or ()), object_age(obj, now_s)]


_BINDING_COLUMNS = columns("Name", "Role", "Age", wide=("Users", "Groups", "ServiceAccounts"))
_WEBHOOK_COLUMNS = columns("Name", "Webhooks:integer", "Age")
PLAIN_TABLES: dict[str, tuple[tuple[Column, ...], Cells]] = {
    "Endpoints": (columns("Name", "Endpoints", "Age"), _endpoints),
    "EndpointSlice": (columns("Name", "AddressType", "Ports", "Endpoints", "Age"), _endpoint_slice),
    "PodTemplate": (columns("Name", "Containers", "Images", "Pod Labels"), _pod_template),
    "NetworkPolicy": (columns("Name", "Pod-Selector", "Age"), _network_policy),
    "Ingress": (columns("Name", "Class", "Hosts", "Address", "Ports", "Age"), _ingress),
    "IngressClass": (columns("Name", "Controller", "Parameters", "Age"), _ingress_class),
    "RoleBinding": (_BINDING_COLUMNS, _binding),
    "ClusterRoleBinding": (_BINDING_COLUMNS, _binding),
    "CSIDriver": (
        columns(
            "Name", "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean", "TokenRequests",
            "RequiresRepublish:boolean", "Modes", "Age",
        ),
        _csi_driver,
    ),
    "CSIStorageCapacity": (columns("Name", "StorageClassName", "Capacity"), _storage_capacity),
    "VolumeAttachment": (columns("Name", "Attacher", "PV", "Node", "Attached:boolean", "Age"), _volume_attachment),
    "VolumeAttributesClass": (columns("Name", "DriverName", "Age"), _attributes_class),
    "MutatingWebhookConfiguration": (_WEBHOOK_COLUMNS, _webhooks),
    "ValidatingWebhookConfiguration": (_WEBHOOK_COLUMNS, _webhooks),
    "FlowSchema": (
        columns(
            "Name", "PriorityLevel", "MatchingPrecedence:integer", "DistinguisherMethod", "Age", "MissingPL"
        ),
        _flow_schema,
    ),
    "DeviceClass": (columns("Name", "Age"), _name_and_age),
    "ResourceClaimTemplate": (columns("Name", "Age"), _name_and_age),
    "ResourceSlice": (columns("Name", "Node", "Driver", "Pool", "Age"), _resource_slice),
    "ServiceCIDR": (columns("Name", "CIDRs", "Age"), _service_cidr),
}  # fmt: skip
"""Kind -> (columns, cells)."""
