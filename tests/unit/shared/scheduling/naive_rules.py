"""The rules about other pods once more, as plainly as they can be said: loops over nodes and pods, no arrays, no memo.

Written against the published rules and not against ``shared.scheduling``, to hold the two together on random clusters.
Takes the JSON of nodes and pods; finished pods and pods without a node must have been left out.
"""

from __future__ import annotations

import math
from typing import Any

Json = dict[str, Any]


def meets(selector: Json | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for e in selector.get("matchExpressions", []):
        value, operator = labels.get(e["key"]), e["operator"]
        holds = {
            "In": value in e.get("values", []),
            "NotIn": value is None or value not in e.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[operator]
        if not holds:
            return False
    return True


def is_empty(selector: Json | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


class Cluster:
    def __init__(self, nodes: list[Json], pods: list[Json], namespaces: dict[str, dict[str, str]]) -> None:
        self.nodes = {n["metadata"]["name"]: n for n in nodes}
        self.pods = [p for p in pods if p["spec"].get("nodeName") in self.nodes]
        self.namespaces = namespaces

    def label(self, node: str, key: str) -> str | None:
        return self.nodes[node]["metadata"].get("labels", {}).get(key)

    def domain(self, node: str, key: str) -> list[Json]:
        """Pods in the node's domain; none where it lacks the label."""
        value = self.label(node, key)
        if value is None:
            return []
        return [p for p in self.pods if self.label(p["spec"]["nodeName"], key) == value]


def labels(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("labels", {})


def terms(pod: Json, kind: str, when: str) -> list[Json]:
    return pod["spec"].get("affinity", {}).get(kind, {}).get(f"{when}DuringSchedulingIgnoredDuringExecution", [])


def own_term_means(cluster: Cluster, owner: Json, term: Json, other: Json) -> bool:
    """Whether a term of the incoming pod means another pod."""
    space, selector = other["metadata"]["namespace"], term.get("namespaceSelector")
    if not term.get("namespaces") and selector is None:
        within = space == owner["metadata"]["namespace"]
    else:
        named = space in term.get("namespaces", [])
        listed = space in cluster.namespaces and meets(selector, cluster.namespaces[space])
        within = named or listed or is_empty(selector)
    return within and meets(term.get("labelSelector"), labels(other))


def standing_term_means(cluster: Cluster, owner: Json, term: Json, incoming: Json) -> bool:
    """Whether a term of a standing pod means the incoming one."""
    space, selector = incoming["metadata"]["namespace"], term.get("namespaceSelector")
    if not term.get("namespaces") and selector is None:
        within = space == owner["metadata"]["namespace"]
    else:
        within = space in term.get("namespaces", []) or meets(selector, cluster.namespaces.get(space, {}))
    return within and meets(term.get("labelSelector"), labels(incoming))


def affinity_verdict(cluster: Cluster, pod: Json, node: str) -> str:
    """ "" or which part of InterPodAffinity rejects the node: affinity, anti or existing."""
    wanted, avoided = terms(pod, "podAffinity", "required"), terms(pod, "podAntiAffinity", "required")

    def all_mean(other: Json) -> bool:
        return all(own_term_means(cluster, pod, t, other) for t in wanted)

    if wanted:
        if any(cluster.label(node, t["topologyKey"]) is None for t in wanted):
            return "affinity"
        near = all(any(all_mean(p) for p in cluster.domain(node, t["topologyKey"])) for t in wanted)
        anywhere = any(
            all_mean(p) and cluster.label(p["spec"]["nodeName"], t["topologyKey"]) is not None
            for p in cluster.pods
            for t in wanted
        )
        if not near and (anywhere or not all_mean(pod)):
            return "affinity"
    for t in avoided:
        if any(own_term_means(cluster, pod, t, p) for p in cluster.domain(node, t["topologyKey"])):
            return "anti"
    for p in cluster.pods:
        for t in terms(p, "podAntiAffinity", "required"):
            if standing_term_means(cluster, p, t, pod) and p in cluster.domain(node, t["topologyKey"]):
                return "existing"
    return ""


def affinity_sum(cluster: Cluster, pod: Json, node: str) -> int:
    total = 0
    for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity")):
        for w in terms(pod, kind, "preferred"):
            t = w["podAffinityTerm"]
            for p in cluster.domain(node, t["topologyKey"]):
                total += sign * w["weight"] * own_term_means(cluster, pod, t, p)
        for p in cluster.pods:
            for w in terms(p, kind, "preferred"):
                t = w["podAffinityTerm"]
                if p in cluster.domain(node, t["topologyKey"]):
                    total += sign * w["weight"] * standing_term_means(cluster, p, t, pod)
    for p in cluster.pods:
        for t in terms(p, "podAffinity", "required"):
            if p in cluster.domain(node, t["topologyKey"]):
                total += standing_term_means(cluster, p, t, pod)
    return total


def affinity_scores(cluster: Cluster, pod: Json, feasible: list[str]) -> dict[str, int]:
    sums = {n: affinity_sum(cluster, pod, n) for n in feasible}
    low, high = min(sums.values()), max(sums.values())
    return {n: int(100 * ((s - low) / (high - low))) if high > low else 0 for n, s in sums.items()}


def tolerates_hard(pod: Json, node: Json) -> bool:
    def covered(taint: Json) -> bool:
        return any(
            t.get("effect", "") in ("", taint["effect"])
            and t.get("key", "") in ("", taint["key"])
            and (t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""))
            for t in pod["spec"].get("tolerations", [])
        )

    hard = [t for t in node["spec"].get("taints", []) if t["effect"] in ("NoSchedule", "NoExecute")]
    return all(covered(t) for t in hard)


def counts_node(cluster: Cluster, pod: Json, constraint: Json, node: str) -> bool:
    body = cluster.nodes[node]
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor":
        wanted = pod["spec"].get("nodeSelector", {})
        if any(body["metadata"].get("labels", {}).get(k) != v for k, v in wanted.items()):
            return False
    return constraint.get("nodeTaintsPolicy", "Ignore") != "Honor" or tolerates_hard(pod, body)


def counted(pod: Json, constraint: Json, there: list[Json]) -> int:
    selector = constraint.get("labelSelector")
    space = pod["metadata"]["namespace"]
    return sum(
        1
        for p in there
        if p["metadata"]["namespace"] == space
        and "deletionTimestamp" not in p["metadata"]
        and meets(selector, labels(p))
    )


def spread_verdict(cluster: Cluster, pod: Json, node: str) -> str:
    """ "" or label or skew."""
    hard = [c for c in pod["spec"].get("topologySpreadConstraints", []) if c["whenUnsatisfiable"] == "DoNotSchedule"]
    complete = [n for n in cluster.nodes if all(cluster.label(n, c["topologyKey"]) is not None for c in hard)]
    for c in hard:
        key = c["topologyKey"]
        if cluster.label(node, key) is None:
            return "label"
        per_domain: dict[str, int] = {}
        for n in complete:
            if counts_node(cluster, pod, c, n):
                value = cluster.label(n, key)
                assert value is not None
                there = [p for p in cluster.pods if p["spec"]["nodeName"] == n]
                per_domain[value] = per_domain.get(value, 0) + counted(pod, c, there)
        least = min(per_domain.values(), default=0)
        if len(per_domain) < c.get("minDomains", 1):
            least = 0
        itself = int(meets(c.get("labelSelector"), labels(pod)))
        if per_domain.get(cluster.label(node, key) or "", 0) + itself - least > c["maxSkew"]:
            return "skew"
    return ""


def spread_scores(cluster: Cluster, pod: Json, feasible: list[str]) -> dict[str, int]:
    soft = [c for c in pod["spec"].get("topologySpreadConstraints", []) if c["whenUnsatisfiable"] == "ScheduleAnyway"]
    keys = [c["topologyKey"] for c in soft]
    scored = [n for n in feasible if all(cluster.label(n, k) is not None for k in keys)]
    raw = {}
    for n in scored:
        total = 0.0
        for c in soft:
            key = c["topologyKey"]
            if key == "kubernetes.io/hostname":
                size = len(scored)
                there = [p for p in cluster.pods if p["spec"]["nodeName"] == n]
            else:
                size = len({cluster.label(m, key) for m in scored})
                there = [
                    p
                    for p in cluster.domain(n, key)
                    if all(cluster.label(p["spec"]["nodeName"], k) is not None for k in keys)
                    and counts_node(cluster, pod, c, p["spec"]["nodeName"])
                ]
            total += counted(pod, c, there) * math.log(size + 2) + (c["maxSkew"] - 1)
        raw[n] = math.floor(total) + (total - math.floor(total) >= 0.5)
    if not raw:
        return dict.fromkeys(feasible, 0)
    low, high = min(raw.values()), max(raw.values())
    return {n: (100 * (high + low - raw[n]) // high if high else 100) if n in raw else 0 for n in feasible}
