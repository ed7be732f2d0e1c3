"""What a Reservation is made of on the command line: a shape, for whom, where, for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.errors import ConfigError
from shared.kube.label_selectors import SelectorError, parse_label_selector
from shared.kube.objects import OwnerReference

Json = dict[str, Any]

WORKLOADS = {
    "deployment": ("apps", "v1", "Deployment"), "statefulset": ("apps", "v1", "StatefulSet"),
    "replicaset": ("apps", "v1", "ReplicaSet"), "daemonset": ("apps", "v1", "DaemonSet"),
    "job": ("batch", "v1", "Job"), "replicationcontroller": ("", "v1", "ReplicationController"),
}  # fmt: skip
"""Kinds whose pod template is read, by what people write: group, version, kind."""
SHORT = {
    "deploy": "deployment",
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "rc": "replicationcontroller",
}


class OwningWorkload(NamedTuple):
    """Whose pods the room is for."""

    group: str
    version: str
    kind: str
    name: str

    def path(self, namespace: str) -> str:
        """Where the API server has it."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{base}/namespaces/{namespace}/{self.kind.lower()}s/{self.name}"

    def reference(self, found: Mapping[str, Any]) -> OwnerReference:
        """By which the Reservation goes with it."""
        version = f"{self.group}/{self.version}" if self.group else self.version
        return OwnerReference(version, self.kind, self.name, str(found["metadata"]["uid"]))


def workload_of(text: str) -> OwningWorkload:
    """``KIND/NAME``. ``ConfigError``: it is none."""
    kind, slash, name = text.partition("/")
    kind = SHORT.get(kind.lower(), kind.lower())
    if not slash or not name or kind not in WORKLOADS:
        raise ConfigError(f"--for: {text} is no workload; write KIND/NAME, with one of {', '.join(WORKLOADS)}")
    return OwningWorkload(*WORKLOADS[kind], name)


def amounts_of(cpu: str, memory: str, requests: Sequence[str]) -> dict[str, str]:
    """Requests by resource. ``ConfigError``: one cannot be read."""
    found = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    for one in requests:
        name, equals, amount = one.partition("=")
        if not equals or not name or not amount:
            raise ConfigError(f"--request: {one} is no amount; write NAME=AMOUNT, such as nvidia.com/gpu=1")
        found[name] = amount
    return found


def selector_of(option: str, text: str) -> Json:
    """A label selector as in an object. ``ConfigError``: it cannot be read."""
    operators = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}
    try:
        found = parse_label_selector(text)
        requirements = found.requirements if found is not None else ()
    except SelectorError as error:
        raise ConfigError(f"{option}: {error}; write such as app=web,tier in (a,b)") from None
    if not requirements or any(one.operator not in operators for one in requirements):
        raise ConfigError(f"{option}: {text!r} must name labels by =, !=, in, notin or exists")
    return {
        "matchExpressions": [
            {
                "key": one.key,
                "operator": operators[one.operator],
                **({"values": sorted(one.values)} if one.values else {}),
            }
            for one in requirements
        ]
    }


def spec_of(
    *,
    workload: OwningWorkload | None,
    template: Mapping[str, Any] | None,
    amounts: Mapping[str, str],
    selector: str,
    pod: str,
    nodes: Sequence[str],
    node_selector: str,
    ttl_s: float,
    priority: int,
    shared: bool,
) -> Json:
    """The spec. ``template``: the workload's; ``amounts`` go before it. ``ConfigError``: something is missing."""
    owner: Json = {}
    if workload is not None:
        owner["controller"] = {"kind": workload.kind, "name": workload.name}
    if selector:
        owner["selector"] = selector_of("--selector", selector)
    if pod:
        owner["pod"] = pod
    if not owner:
        raise ConfigError("for whom is it kept? give --for KIND/NAME, --selector or --pod")
    spec: Json = {
        "owners": [owner],
        "ttlSeconds": max(1, round(ttl_s)),
        "priority": priority,
        "allocateOnce": not shared,
    }
    if amounts:
        spec["resources"] = dict(amounts)
    elif template is not None:
        spec["template"] = template
    else:
        raise ConfigError(
            "how much is kept? give --cpu, --memory or --request, or --for a workload that has a template"
        )
    where = {**({"names": list(nodes)} if nodes else {})}
    if node_selector:
        where["selector"] = selector_of("--node-selector", node_selector)  # type: ignore[assignment]
    if where:
        spec["nodes"] = where
    return spec
