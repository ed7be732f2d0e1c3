"""Random small clusters that exercise the rules about other pods: few labels, few domains, many coincidences."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
SPACES = {"default": {"team": "a"}, "other": {"team": "b"}, "bare": {}}
APPS, TIERS = ("web", "db"), ("front", "back")
KEYS = ("zone", "rack", "kubernetes.io/hostname", "nowhere")


def some_selector(rng: random.Random) -> Json | None:
    kind = rng.randrange(9)
    if kind == 0:
        return None
    if kind == 1:
        return {}
    if kind < 6:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    expression: Json = {"key": rng.choice(("app", "tier")), "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = [rng.choice((*APPS, *TIERS))]
    return {"matchExpressions": [expression]}


def some_term(rng: random.Random) -> Json:
    term: Json = {"topologyKey": rng.choice(KEYS)}
    selector = some_selector(rng)
    if selector is not None:
        term["labelSelector"] = selector
    kind = rng.randrange(6)
    if kind == 0:
        term["namespaces"] = rng.sample(sorted(SPACES), rng.randint(1, 2))
    if kind in (1, 2):
        operator = rng.choice(("In", "NotIn", "DoesNotExist"))
        expression: Json = {"key": "team", "operator": operator}
        if operator != "DoesNotExist":
            expression["values"] = [rng.choice("ab")]
        term["namespaceSelector"] = rng.choice(({}, {"matchExpressions": [expression]}))
    return term


def some_affinity(rng: random.Random) -> Json:
    affinity: Json = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        body: Json = {}
        if rng.random() < 0.5:
            body["requiredDuringSchedulingIgnoredDuringExecution"] = [some_term(rng) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.5:
            body["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": rng.randint(1, 100), "podAffinityTerm": some_term(rng)} for _ in range(rng.randint(1, 2))
            ]
        if body and rng.random() < 0.6:
            affinity[kind] = body
    return affinity


def some_constraint(rng: random.Random) -> Json:
    hard = rng.random() < 0.5
    constraint: Json = {
        "maxSkew": rng.randint(1, 3),
        "topologyKey": rng.choice(KEYS[:3]),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    selector = some_selector(rng)
    if selector is not None:
        constraint["labelSelector"] = selector
    if hard and rng.random() < 0.4:
        constraint["minDomains"] = rng.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.4:
            constraint[policy] = rng.choice(("Honor", "Ignore"))
    return constraint


def some_node(rng: random.Random, name: str) -> Json:
    node_labels = {"kubernetes.io/hostname": name}
    for key, values in (("zone", "xyz"), ("rack", "pq"), ("disk", "sh")):
        if rng.random() < 0.8:
            node_labels[key] = rng.choice(values)
    taints = [{"key": "k", "value": "v", "effect": rng.choice(("NoSchedule", "PreferNoSchedule"))}]
    return {
        "metadata": {"name": name, "labels": node_labels},
        "spec": {"taints": taints} if rng.random() < 0.3 else {},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
    }


def some_pod(rng: random.Random, name: str, node: str = "") -> Json:
    pod_labels = {}
    if rng.random() < 0.8:
        pod_labels["app"] = rng.choice(APPS)
    if rng.random() < 0.5:
        pod_labels["tier"] = rng.choice(TIERS)
    spec: Json = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}
    if rng.random() < 0.5:
        spec["affinity"] = some_affinity(rng)
    if rng.random() < 0.3:
        spec["tolerations"] = [{"operator": "Exists"}]
    if node:
        spec["nodeName"] = node
    else:
        if rng.random() < 0.6:
            spec["topologySpreadConstraints"] = [some_constraint(rng) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            spec["nodeSelector"] = {"disk": rng.choice("sh")}
    meta: Json = {"name": name, "namespace": rng.choice(sorted(SPACES)), "uid": name, "labels": pod_labels}
    if node and rng.random() < 0.15:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running" if node else "Pending"}}


def some_cluster(seed: int) -> tuple[list[Json], list[Json], Json]:
    """(nodes, bound pods, incoming pod) of one seed."""
    rng = random.Random(seed)
    nodes = [some_node(rng, f"n{i}") for i in range(rng.randint(1, 6))]
    places = [*(n["metadata"]["name"] for n in nodes), "gone"]
    pods = [some_pod(rng, f"p{i}", rng.choice(places)) for i in range(rng.randint(0, 12))]
    return nodes, pods, some_pod(rng, "incoming")
