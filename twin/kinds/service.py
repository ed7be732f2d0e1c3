"""Services: defaults, cluster addresses and node ports.

Sources: ``pkg/apis/core/v1/defaults.go``, ``pkg/registry/core/service/storage/alloc.go``, ``pkg/apis/core/validation``.
Addresses are taken in order from 10.0.0.1 on, ports from 30000 on: a real allocator draws them at random, and nobody
may rely on either.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from twin.kinds.containers.hooks import check_port_or_name
from twin.kinds.rules.names import check, check_labels, dns_label, dns_subdomain, port_number
from twin.kinds.rules.printing import NONE, labels_text, printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, not_supported, required
from twin.registry.strategy import NAME_LABEL_1035, KindInfo, RequestContext

Json = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_POLICIES = ("Cluster", "Local")
_MAX_AFFINITY_S = 86400
_FIRST_ADDRESS = int(ipaddress.IPv4Address("10.0.0.1"))
_FIRST_NODE_PORT, _LAST_NODE_PORT = 30000, 32767
_ADDRESS_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


class ServiceStrategy(TypedStrategy):
    """Core v1 Service."""

    info = KindInfo("", "v1", "Service", "services", "service", True, short_names=("svc",), categories=("all",))
    go_type = "core/v1.Service"
    allow_create_on_update = True
    has_generation = False
    name_rule = NAME_LABEL_1035
    returns_deleted = True
    supported_fields = frozenset(("metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"))
    table = printed(
        "Name",
        "Type=spec.type",
        f"Cluster-IP=spec.clusterIP|{NONE}",
        ("External-IP", lambda obj: _external_text(obj["spec"], obj["status"])),
        ("Port(s)", lambda obj: ",".join(_port_text(port) for port in obj["spec"].get("ports") or ()) or NONE),
        "Age",
        wide=(("Selector", lambda obj: labels_text(obj["spec"].get("selector"))),),
    )

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
        if spec["type"] in ("NodePort", "LoadBalancer") or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
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
        found += _check_type_rules(spec, headless=headless)
        found += _check_ports(ports)
        found += check_labels(spec.get("selector"), "spec.selector")
        found += _check_affinity(spec)
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            if address and address != "None" and not _is_address(address):
                found.append(invalid(f"spec.clusterIPs[{index}]", address, _ADDRESS_TEXT))
        for index, address in enumerate(spec.get("externalIPs") or ()):
            if not _is_address(address):
                found.append(invalid(f"spec.externalIPs[{index}]", address, _ADDRESS_TEXT))
        if spec["type"] not in _TYPES:
            found.append(not_supported("spec.type", spec["type"], _TYPES))
        return found + _check_node_ports(spec, ports) + _check_traffic(spec)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        new, before = obj["spec"], old["spec"]
        if "ExternalName" not in (new["type"], before["type"]) and new.get("clusterIP") != before.get("clusterIP"):
            found.append(invalid("spec.clusterIPs[0]", new.get("clusterIPs"), "may not change once set"))
        return found + self.validate(obj, ctx)

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"spec.clusterIP": obj["spec"].get("clusterIP", ""), "spec.type": obj["spec"]["type"]}


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


def _check_type_rules(spec: Json, *, headless: bool) -> list[FieldError]:
    kind = spec["type"]
    if kind in ("LoadBalancer", "NodePort") and headless:
        return [invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")]
    if kind != "ExternalName":
        return []
    text = "may not be set for ExternalName services"
    found = [
        forbidden_field(f"spec.{name}", text)
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(name)
    ]
    name = spec.get("externalName", "").removesuffix(".")
    return found + (check("spec.externalName", name, dns_subdomain) if name else [required("spec.externalName")])


def _check_affinity(spec: Json) -> list[FieldError]:
    affinity, config = spec["sessionAffinity"], spec.get("sessionAffinityConfig")
    if affinity not in _AFFINITIES:
        return [not_supported("spec.sessionAffinity", affinity, _AFFINITIES)]
    if affinity == "None" and config is not None:
        text = "must not be set when session affinity is None"
        return [forbidden_field("spec.sessionAffinityConfig", text)]
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= _MAX_AFFINITY_S:
        text = f"must be greater than 0 and less than {_MAX_AFFINITY_S}"
        return [invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, text)]
    return []


def _check_node_ports(spec: Json, ports: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    if spec["type"] == "ClusterIP":
        text = "may not be used when `type` is 'ClusterIP'"
        found += [forbidden_field(f"spec.ports[{i}].nodePort", text) for i, p in enumerate(ports) if p.get("nodePort")]
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port["protocol"], port.get("nodePort", 0))
        if key[1] and key in seen:
            found.append(duplicate(f"spec.ports[{index}].nodePort", key[1]))
        seen.add(key)
    pairs: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        pair = (port["protocol"], port["port"])
        if pair in pairs:
            found.append(duplicate(f"spec.ports[{index}]", {"Protocol": pair[0], "Port": pair[1]}))
        pairs.add(pair)
    return found


def _check_traffic(spec: Json) -> list[FieldError]:
    found: list[FieldError] = []
    balanced = spec["type"] == "LoadBalancer"
    only_balanced = "may only be used when `type` is 'LoadBalancer'"
    if spec.get("loadBalancerSourceRanges") and not balanced:
        found.append(forbidden_field("spec.LoadBalancerSourceRanges", only_balanced))
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        found.append(forbidden_field("spec.allocateLoadBalancerNodePorts", only_balanced))
    if spec.get("loadBalancerClass") is not None and not balanced:
        found.append(forbidden_field("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"))
    external = spec.get("externalTrafficPolicy", "")
    reachable = spec["type"] in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))
    if external and not reachable:
        text = "may only be set for externally-accessible services"
        found.append(invalid("spec.externalTrafficPolicy", external, text))
    elif external and external not in _POLICIES:
        found.append(not_supported("spec.externalTrafficPolicy", external, _POLICIES))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None and internal not in _POLICIES:
        found.append(not_supported("spec.internalTrafficPolicy", internal, _POLICIES))
    return found


def _check_ports(ports: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
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
    return found
