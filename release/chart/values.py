"""The chart's values: their schema, from which values.yaml is made too, and what each overlay comes to in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from shared.runtime.process.profiles_file import MAY_BE_LEFT_OUT, MOST_PROFILES, MOST_WEIGHT

Json = dict[str, Any]
SERVICES = ("coordinator", "binder", "agent", "sensor", "autoscaler", "jobs", "rebalancer", "learner", "etcd")
REPLICATED = ("coordinator", "binder", "agent", "autoscaler", "jobs", "rebalancer", "learner")
IMAGES = ("coordinator", "binder", "agent", "sensor", "autoscaler", "jobs", "rebalancer", "learner", "cli")
QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$"
NAME = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def _switch(description: str, *, on: bool = False) -> Json:
    return {"type": "boolean", "default": on, "description": description}


def _text(description: str, default: str = "", **more: Any) -> Json:
    return {"type": "string", "default": default, "description": description, **more}


def _part(description: str, **fields: Json) -> Json:
    return {
        "type": "object", "description": description, "additionalProperties": False, "properties": fields,
        "required": list(fields),  # a null takes a key out, and a template would read another mode from its absence
    }  # fmt: skip


def _whole(least: int) -> Json:
    return {"type": ["integer", "null"], "minimum": least, "default": None}


RESOURCES: Json = {
    "type": "object", "additionalProperties": False, "default": {},
    "properties": {
        one: {"type": "object", "additionalProperties": {"type": ["string", "number"], "pattern": QUANTITY}}
        for one in ("requests", "limits")
    },
}  # fmt: skip
PROFILE: Json = {
    "type": "object", "required": ["schedulerName"], "additionalProperties": False,
    "properties": {
        "schedulerName": {"type": "string", "pattern": NAME, "maxLength": 200},
        "policy": {"type": "string", "minLength": 1, "maxLength": 200},
        "filters": {
            "type": "object", "additionalProperties": False,
            "properties": {"disabled": {"type": "array", "items": {"enum": sorted(MAY_BE_LEFT_OUT)}}},
        },
        "scores": {
            "type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": MOST_WEIGHT},
        },
        "args": {"type": "object"},
    },
}  # fmt: skip

PROPERTIES: Json = {
    "schedulerName": _text("The schedulerName that pods give.", "conclave", pattern=NAME, maxLength=200),
    "profiles": {
        "type": "array", "items": PROFILE, "default": [], "maxItems": MOST_PROFILES,
        "description": "Further schedulerNames, each with its filters, scores and policy (docs/profiles.md).",
    },
    "settings": {
        "type": "object", "default": {},
        "propertyNames": {"pattern": "^CONCLAVE_[A-Z0-9_]+$", "not": {"pattern": "_SCHEDULER_NAME$"}},
        "additionalProperties": {"type": "string"},
        "description": "Any CONCLAVE_* variable, as text (docs/reference/settings.md), but for names of the scheduler: "
        "schedulerName sets them all. A change restarts the pods that read them.",
    },
    "image": _part(
        "Where images come from.",
        registry=_text(
            "What stands before conclave-SERVICE, with a slash at its end.",
            pattern="^([A-Za-z0-9][A-Za-z0-9._:/-]*/)?$",
        ),
        tag=_text("Empty: the chart's appVersion.", pattern="^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"),
        digests={
            "type": "object", "default": {}, "additionalProperties": False,
            "properties": {one: {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"} for one in IMAGES},
            "description": "By service, in the tag's place: what a signature was checked of.",
        },
        pullSecrets={
            "type": "array", "default": [],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            "description": "Secrets for the registry: [{name: NAME}].",
        },
    ),
    "replicas": {
        "type": "object", "additionalProperties": False, "properties": {one: _whole(1) for one in REPLICATED},
        "description": "Null: as the overlays have it.",
    },
    "resources": {
        "type": "object", "additionalProperties": False, "properties": dict.fromkeys(SERVICES, RESOURCES),
        "description": "Requests and limits by service; empty: as the overlays have it.",
    },
    "agents": _part(
        "Who decides.",
        kind={
            "enum": ["Deployment", "DaemonSet"], "default": "Deployment",
            "description": "Deployment: each agent decides for a share of all nodes; DaemonSet: one agent a node.",
        },
    ),
    "etcd": _part(
        "Where the mesh keeps what must not be lost.",
        mode={
            "enum": ["single", "internal", "external"], "default": "single",
            "description": "single: one member without TLS, for trying things out; internal: three members with mutual "
            "TLS; external: yours, by its endpoints.",
        },
        endpoints={
            "type": "array", "items": {"type": "string", "pattern": r"^https://[^,\s]+$"}, "default": [],
            "description": "Of an external etcd, each https://HOST:2379; another port with policies of yours alone "
            "(networkPolicies.enabled: false).",
        },
        users=_switch("A user and a role for each service, in etcd of mode internal; needs conclave-etcd-root-tls."),
        image=_text(
            "etcd's own release; never 3.5.0 to 3.5.2.", "registry.k8s.io/etcd:3.6.8-0",
            pattern="^[A-Za-z0-9][A-Za-z0-9._:/@-]*$",
        ),
        storage=_text("Of each member's volume; empty: 2Gi. For ever.", pattern=f"^$|{QUANTITY}"),
        storageClassName=_text("Empty: the cluster's default."),
    ),
    "certManager": _part(
        "Certificates for etcd of mode internal and for mutualTLS.",
        enabled=_switch("Made and renewed by cert-manager, which must be installed; else by you."),
    ),
    "mutualTLS": _part("Between services.", enabled=_switch("Each shows a certificate of its role.")),
    "secrets": _part("Tokens.", create=_switch("Made inside the cluster where they are not there yet.", on=True)),
    "highAvailability": _part(
        "What holds when a node is lost.",
        enabled=_switch("Three coordinators; no two coordinators or binders on one node."),
    ),
    "sensors": _part(
        "What nodes and ways between them are like.",
        enabled=_switch("A sensor on each node.", on=True),
        host=_switch("They read the node's /proc and /sys; beyond Pod Security's restricted."),
    ),
    "networkPolicies": _part("Who may talk to whom.", enabled=_switch("All is denied but what is needed.", on=True)),
    "podDisruptionBudgets": _part("Drains.", enabled=_switch("One of each service at a time.", on=True)),
    "definitions": _part("Custom resources.", install=_switch("Queues and others; kept when the chart goes.", on=True)),
    "openshift": _part("OpenShift.", enabled=_switch("User and group of pods are left to the namespace's range.")),
    "jobs": _part("Training jobs that grow and shrink.", enabled=_switch("The service and its TrainingJobs.")),
    "rebalancer": _part(
        "Pods that are moved to where they should stand.",
        enabled=_switch("The service; it moves nobody before a goal is promoted (docs/rebalance.md)."),
    ),
    "autoscaler": _part("How many replicas services have.", enabled=_switch("The service, ResilientAutoscalers.")),
    "learner": _part("Training while the mesh runs.", enabled=_switch("One learner of marl-dqn.")),
    "lending": _part("Offline pods.", enabled=_switch("Nodes lend what online pods request and do not use.")),
    "podGroups": _part(
        "The scheduler plug-ins' PodGroup.",
        install=_switch("Where `kubectl get crd podgroups.scheduling.x-k8s.io` finds none."),
    ),
    "secondShard": _part("A second shard of nodes.", enabled=_switch("Binders for it (docs/operations/shards.md).")),
    "monitoring": _part("For Prometheus' operator, where it is.", enabled=_switch("Alerts, monitors, dashboards.")),
}  # fmt: skip


def _equals(path: str, value: Any) -> Json:
    outer, inner = path.split(".")
    return {"required": [outer], "properties": {outer: {"required": [inner], "properties": {inner: {"const": value}}}}}


SCHEMA: Json = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Conclave's values",
    "type": "object",
    "additionalProperties": False,
    "properties": {**PROPERTIES, "global": {"type": "object"}},
    "required": list(PROPERTIES),
    "allOf": [
        {
            "if": _equals("etcd.mode", "external"),
            "then": {"properties": {"etcd": {"properties": {"endpoints": {"minItems": 1}}}}},
            "else": {"properties": {"etcd": {"properties": {"endpoints": {"maxItems": 0}}}}},
        },
        {  # the port that the component etcd-external opens
            "if": _equals("networkPolicies.enabled", True),
            "then": {"properties": {"etcd": {"properties": {"endpoints": {"items": {"pattern": ":2379$"}}}}}},
        },
        {"if": _equals("etcd.users", True), "then": _equals("etcd.mode", "internal")},
        {"if": _equals("sensors.host", True), "then": _equals("sensors.enabled", True)},
        {"if": _equals("openshift.enabled", True), "then": _equals("sensors.host", False)},
    ],
}
"""Helm holds values against it, and names the field that is wrong."""

ON = {"enabled": True}
OVERLAYS: Mapping[str, Json] = {
    "dev": {
        "settings": {"CONCLAVE_LOG_LEVEL": "debug"},
        "replicas": {"coordinator": 1, "binder": 1, "agent": 2},
    },
    "partition-agents": {"secrets": {"create": False}},
    "daemonset-agents": {"secrets": {"create": False}, "agents": {"kind": "DaemonSet"}},
    "etcd-internal": {"secrets": {"create": False}, "etcd": {"mode": "internal"}},
    "etcd-external": {
        "secrets": {"create": False},
        "etcd": {
            "mode": "external",
            "endpoints": [f"https://etcd-{number}.example.com:2379" for number in range(3)],
        },
    },
    "prod": {
        "etcd": {"mode": "internal", "users": True},
        "certManager": ON,
        "mutualTLS": ON,
        "highAvailability": ON,
    },
}
"""What to give the chart for what an overlay is."""


def defaults(schema: Json) -> Any:
    """The values that stand where nothing is given."""
    if "default" in schema or "properties" not in schema:
        return schema.get("default")
    return {name: defaults(one) for name, one in schema["properties"].items()}


def values_yaml() -> str:
    """values.yaml, each value under what it is for."""
    head = [
        "# Made by `make chart` (release/chart/values.py). What an overlay is in these values: presets/OVERLAY.yaml.",
        "",
    ]
    return "\n".join([*head, *_shown(PROPERTIES, "")]) + "\n"


def _shown(properties: Json, indent: str) -> Iterator[str]:
    for name, one in properties.items():
        if "description" in one:
            yield f"{indent}# {one['description']}"
        if "enum" in one:
            yield f"{indent}# One of {', '.join(one['enum'])}."
        if "default" in one or "properties" not in one:
            yield f"{indent}{name}: {json.dumps(one.get('default'))}"
        else:
            yield f"{indent}{name}:"
            yield from _shown(one["properties"], f"{indent}  ")
