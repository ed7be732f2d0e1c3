"""Services: defaults, cluster addresses and node ports.

Sources: ``pkg/apis/core/v1/defaults.go``, ``pkg/registry/core/service/storage/alloc.go``, ``pkg/apis/core/validation``.
Addresses are taken in order from 10.0.0.1 on, ports from 30000 on: a real allocator draws them at random, and nobody
may rely on either.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from services.twin.kinds.names import check, check_labels, dns_label, port_number
from services.twin.kinds.pod_containers import check_port_or_name
from services.twin.kinds.printing import NONE, columns, labels_text, object_age
from services.twin.kinds.typed import TypedStrategy
from services.twin.registry.status import FieldError, duplicate, invalid, not_supported, required
from services.twin.registry.strategy import NAME_LABEL, KindInfo, RequestContext

Json = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_POLICIES = ("Cluster", "Local")
_FIRST_ADDRESS = int(ipaddress.IPv4Address("10.0.0.1"))
_FIRST_NODE_PORT, _LAST_NODE_PORT = 30000, 32767
_ADDRESS_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


class ServiceStrategy(TypedStrategy):
    """Core v1 Service."""

    info = KindInfo("", "v1", "Service", "services", "service", True, short_names=("svc",), categories=("all",))
    go_type = "core/v1.Service"
    has_generation = False
    name_rule = NAME_LABEL
    returns_deleted = True
    supported_fields = frozenset(("metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"))
    table_columns = columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",))

    def __init__(self) -> None:
        self.subresources = (self.status_subresource(),)

    def default(self, obj: Json) -> None:
        spec = obj["spec"]
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("type", "ClusterIP")
        if spec["sessionAffinity"] == "ClientIP":
            client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            client.setdefault("timeoutSeconds", 10800)
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port["port"]
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        obj["status"] = {"loadBalancer": {}}
        self._allocate(obj, ctx)

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        new, before = obj["spec"], old["spec"]
        if new["type"] != "ExternalName" and before["type"] != "ExternalName":
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if name not in new and name in before:
                    new[name] = before[name]
            _keep_node_ports(new, before)
        self._allocate(obj, ctx)

    def _allocate(self, obj: Json, ctx: RequestContext) -> None:
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        services = list(ctx.reader.list("services"))
        if not spec.get("clusterIP"):
            spec["clusterIP"] = (spec.get("clusterIPs") or [""])[0] or _free_address(services)
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        if "ipFamilies" not in spec:
            _set_families(spec)
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec["type"] == "NodePort" or (spec["type"] == "LoadBalancer" and spec["allocateLoadBalancerNodePorts"]):
            _give_node_ports(spec, services)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found: list[FieldError] = []
        ports = spec.get("ports") or []
        headless = spec.get("clusterIP") == "None"
        if not ports and not headless and spec["type"] != "ExternalName":
            found.append(required("spec.ports"))
        found += _check_ports(ports)
        found += check_labels(spec.get("selector"), "spec.selector")
        if spec["sessionAffinity"] not in _AFFINITIES:
            found.append(not_supported("spec.sessionAffinity", spec["sessionAffinity"], _AFFINITIES))
        if spec["type"] not in _TYPES:
            found.append(not_supported("spec.type", spec["type"], _TYPES))
        if spec["type"] == "ExternalName" and not spec.get("externalName"):
            found.append(required("spec.externalName"))
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            if address and address != "None" and not _is_address(address):
                found.append(invalid(f"spec.clusterIPs[{index}]", address, _ADDRESS_TEXT))
        for name in ("internalTrafficPolicy", "externalTrafficPolicy"):
            if name in spec and spec[name] not in _POLICIES:
                found.append(not_supported(f"spec.{name}", spec[name], _POLICIES))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        new, before = obj["spec"], old["spec"]
        if "ExternalName" not in (new["type"], before["type"]) and new.get("clusterIP") != before.get("clusterIP"):
            found.append(invalid("spec.clusterIPs[0]", new.get("clusterIPs"), "may not change once set"))
        return found + self.validate(obj, ctx)

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"spec.clusterIP": obj["spec"].get("clusterIP", ""), "spec.type": obj["spec"]["type"]}

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        spec = obj["spec"]
        return [
            obj["metadata"]["name"],
            spec["type"],
            spec.get("clusterIP") or NONE,
            _external_text(spec, obj["status"]),
            ",".join(_port_text(port) for port in spec.get("ports") or ()) or NONE,
            object_age(obj, now_s),
            labels_text(spec.get("selector")),
        ]


def _external_text(spec: Json, status: Json) -> str:
    if spec["type"] == "ExternalName":
        return str(spec.get("externalName", ""))
    given = [
        one.get("ip") or one.get("hostname", "") for one in (status.get("loadBalancer") or {}).get("ingress") or ()
    ]
    addresses = [*(given if spec["type"] == "LoadBalancer" else ()), *(spec.get("externalIPs") or ())]
    if addresses:
        return ",".join(addresses)
    return "<pending>" if spec["type"] == "LoadBalancer" else NONE


def _port_text(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port['protocol']}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _free_address(services: list[Json]) -> str:
    taken = {one["spec"].get("clusterIP") for one in services}
    address = _FIRST_ADDRESS
    while str(ipaddress.IPv4Address(address)) in taken:
        address += 1
    return str(ipaddress.IPv4Address(address))


def _set_families(spec: Json) -> None:
    """A headless service without a selector could be anything, so it gets both families."""
    if spec["clusterIP"] == "None" and not spec.get("selector"):
        spec["ipFamilies"] = ["IPv4", "IPv6"]
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
    else:
        spec["ipFamilies"] = ["IPv6" if ":" in spec["clusterIP"] else "IPv4"]


def _give_node_ports(spec: Json, services: list[Json]) -> None:
    taken = {port.get("nodePort") for one in services for port in one["spec"].get("ports") or ()}
    taken |= {port.get("nodePort") for port in spec.get("ports") or ()}
    number = _FIRST_NODE_PORT
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            continue
        while number in taken and number < _LAST_NODE_PORT:
            number += 1
        port["nodePort"] = number
        taken.add(number)


def _keep_node_ports(new: Json, before: Json) -> None:
    if new["type"] not in ("NodePort", "LoadBalancer"):
        return
    known = {(p["port"], p["protocol"]): p.get("nodePort") for p in before.get("ports") or ()}
    for port in new.get("ports") or ():
        if not port.get("nodePort") and known.get((port["port"], port["protocol"])):
            port["nodePort"] = known[(port["port"], port["protocol"])]


def _check_ports(ports: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports):
        here, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            found.append(required(f"{here}.name"))
        elif name:
            found += check(f"{here}.name", name, dns_label)
            if name in names:
                found.append(duplicate(f"{here}.name", name))
            names.add(name)
        found += [invalid(f"{here}.port", port["port"], message) for message in port_number(port["port"])]
        if port["protocol"] not in _PROTOCOLS:
            found.append(not_supported(f"{here}.protocol", port["protocol"], _PROTOCOLS))
        found += check_port_or_name(port["targetPort"], f"{here}.targetPort")
        key = (port["port"], port["protocol"])
        if key in seen:
            found.append(duplicate(here, {"Protocol": key[1], "Port": key[0]}))
        seen.add(key)
    return found
