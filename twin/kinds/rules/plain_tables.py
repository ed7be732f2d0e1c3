"""Tables of the kinds without rules: what ``kubectl get`` shows of roles, webhooks, drivers ...

Source: ``pkg/printers/internalversion/printers.go``. A kind that is not here prints its name and creation time, as a
real server does where no printer is registered.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.printing import NONE, UNSET, Printed, Read, labels_text, printed
from twin.kinds.workload.templates import container_cells, selector_cell

Json = dict[str, Any]

_MOST_SHOWN = 3


def _some(values: list[str], empty: str) -> str:
    if not values:
        return empty
    text = ",".join(values[:_MOST_SHOWN])
    more = len(values) - _MOST_SHOWN
    return f"{text} + {more} more..." if more > 0 else text


def _subsets(obj: Json) -> str:
    pairs = [
        f"{address.get('ip', '')}:{port.get('port', 0)}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return _some(pairs, NONE)


def _slice_ports(obj: Json) -> str:
    return _some([str(one.get("port", "*")) for one in obj.get("ports") or ()], UNSET)


def _slice_addresses(obj: Json) -> str:
    return _some([one for end in obj.get("endpoints") or () for one in end.get("addresses") or ()], UNSET)


def _template(obj: Json) -> Json:
    return obj.get("template") or {}


def _ingress_hosts(obj: Json) -> str:
    return _some([rule["host"] for rule in obj["spec"].get("rules") or () if rule.get("host")], "*")


def _ingress_addresses(obj: Json) -> str:
    balancer = (obj.get("status") or {}).get("loadBalancer") or {}
    return ",".join(sorted({one.get("ip") or one.get("hostname", "") for one in balancer.get("ingress") or ()}))


def _class_parameters(obj: Json) -> str:
    parameters = obj["spec"].get("parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def _role_text(obj: Json) -> str:
    return f"{obj['roleRef'].get('kind', '')}/{obj['roleRef'].get('name', '')}"


def _subjects(kind: str) -> Read:
    return lambda obj: ", ".join(
        f"{one['namespace']}/{one['name']}" if one.get("namespace") else one.get("name", "")
        for one in obj.get("subjects") or ()
        if one.get("kind") == kind
    )


def _token_audiences(obj: Json) -> str:
    return ",".join(one.get("audience", "") for one in obj["spec"].get("tokenRequests") or ()) or UNSET


def _dangling(obj: Json) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c.get("status", "?") for c in conditions if c.get("type") == "Dangling"), "?")


_BINDING = printed(
    "Name", ("Role", _role_text), "Age",
    wide=tuple((f"{kind}s", _subjects(kind)) for kind in ("User", "Group", "ServiceAccount")),
)  # fmt: skip
_WEBHOOKS = printed("Name", ("Webhooks:integer", lambda obj: len(obj.get("webhooks") or ())), "Age")
_NAME_AND_AGE = printed("Name", "Age")
PLAIN_TABLES: dict[str, Printed] = {
    "Endpoints": printed("Name", ("Endpoints", _subsets), "Age"),
    "EndpointSlice": printed(
        "Name", "AddressType=addressType", ("Ports", _slice_ports), ("Endpoints", _slice_addresses), "Age",
    ),
    "PodTemplate": printed(
        "Name",
        ("Containers", lambda obj: container_cells(_template(obj))[0]),
        ("Images", lambda obj: container_cells(_template(obj))[1]),
        ("Pod Labels", lambda obj: labels_text((_template(obj).get("metadata") or {}).get("labels"))),
    ),
    "NetworkPolicy": printed("Name", ("Pod-Selector", lambda o: selector_cell(o["spec"].get("podSelector"))), "Age"),
    "Ingress": printed(
        "Name", f"Class=spec.ingressClassName|{NONE}", ("Hosts", _ingress_hosts), ("Address", _ingress_addresses),
        ("Ports", lambda obj: "80, 443" if obj["spec"].get("tls") else "80"), "Age",
    ),
    "IngressClass": printed("Name", "Controller=spec.controller", ("Parameters", _class_parameters), "Age"),
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "CSIDriver": printed(
        "Name", "AttachRequired:boolean=spec.attachRequired", "PodInfoOnMount:boolean=spec.podInfoOnMount",
        "StorageCapacity:boolean=spec.storageCapacity", ("TokenRequests", _token_audiences),
        "RequiresRepublish:boolean=spec.requiresRepublish",
        ("Modes", lambda obj: ",".join(obj["spec"].get("volumeLifecycleModes") or ()) or UNSET), "Age",
    ),
    "CSIStorageCapacity": printed("Name", "StorageClassName=storageClassName", f"Capacity=capacity|{UNSET}"),
    "VolumeAttachment": printed(
        "Name", "Attacher=spec.attacher", "PV=spec.source.persistentVolumeName", "Node=spec.nodeName",
        "Attached:boolean=status.attached", "Age",
    ),
    "VolumeAttributesClass": printed("Name", "DriverName=driverName", "Age"),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "FlowSchema": printed(
        "Name", "PriorityLevel=spec.priorityLevelConfiguration.name",
        "MatchingPrecedence:integer=spec.matchingPrecedence",
        f"DistinguisherMethod=spec.distinguisherMethod.type|{NONE}", "Age", ("MissingPL", _dangling),
    ),
    "ServiceCIDR": printed("Name", ("CIDRs", lambda obj: ",".join(obj["spec"].get("cidrs") or ())), "Age"),
}  # fmt: skip
