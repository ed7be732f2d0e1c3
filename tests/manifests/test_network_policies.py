"""Who may talk to whom, worked out from the rendered NetworkPolicies: nothing but the ways that a pod takes.

``allowed`` is the API's rule for pods of one namespace: a connection passes if some policy lets it out at its source
and some policy lets it in at its destination, as soon as a policy selects that end at all.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.manifests.rendering import BUILDS, JOBS, Json, needs_kubectl, of_kind, pod_templates, role_of

pytestmark = needs_kubectl

OUTSIDE = {"app.kubernetes.io/name": "somebody-else"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
REPORTS = 8711
"""Where training jobs report, from any namespace, each with its own token."""
PORTS = (2379, 2380, 2381, 8700, 8701, 8703, REPORTS)


def selects(selector: Json, labels: dict[str, str]) -> bool:
    """A label selector: matchLabels, and matchExpressions with In."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def peer_fits(peer: Json, labels: dict[str, str], namespace: str) -> bool:
    """Whether a peer of a rule is this pod. Pods have no address here, so a block never is."""
    if "ipBlock" in peer:
        return False
    wanted = peer.get("namespaceSelector")
    if wanted is None:
        if namespace != "conclave-system":
            return False
    elif not selects(wanted, {"kubernetes.io/metadata.name": namespace}):
        return False
    return selects(peer.get("podSelector", {}), labels)


def passes(
    policies: list[Json], direction: str, own: dict[str, str], other: tuple[dict[str, str], str], port: int
) -> bool:
    """Whether one end lets it pass."""
    key, peers = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    concerned = [
        p["spec"] for p in policies if direction in p["spec"]["policyTypes"] and selects(p["spec"]["podSelector"], own)
    ]
    if not concerned:
        return True
    for spec in concerned:
        for rule in spec.get(key, ()):
            ports = [one["port"] for one in rule.get("ports", ())]
            if (not ports or port in ports) and any(peer_fits(peer, *other) for peer in rule.get(peers, ())):
                return True
    return False


def ways(policies: list[Json], templates: dict[str, Json]) -> set[tuple[str, str, int]]:
    """(source, destination, port) of every connection between our pods that passes at both ends."""
    labels = {name.removeprefix("conclave-"): t["metadata"]["labels"] for name, t in templates.items()}
    return {
        (source, destination, port)
        for source, ours in labels.items()
        for destination, theirs in labels.items()
        for port in PORTS
        if passes(policies, "Egress", ours, (theirs, "conclave-system"), port)
        and passes(policies, "Ingress", theirs, (ours, "conclave-system"), port)
    }


def needed(build: str) -> set[tuple[str, str, int]]:
    """The ways of docs/architecture.md: offers, views, plans, transitions, what a standby passes on, facts in etcd."""
    found = {("coordinator", "agent", 8700), ("coordinator", "binder", 8700), ("coordinator", "coordinator", 8701)}
    clients = {"coordinator", "agent", "binder"}
    if of_kind(build, "DaemonSet"):  # agents on their nodes tell what they measure, and probe each other
        found |= {("agent", "coordinator", 8700), ("agent", "agent", 8703)}
    if "learner" in build:
        found |= {("agent", "learner", 8700)}
        clients |= {"learner"}
    if "shard" in build:
        found |= {("coordinator", "binder-1", 8700)}
        clients |= {"binder-1"}
    if "jobs" in build:
        found |= {("jobs", "jobs", REPORTS), ("coordinator", "jobs", 8700)}
        clients |= {"jobs"}
    if "autoscaler" in build:
        clients |= {"autoscaler"}
    if "etcd-external" not in build:
        if build.startswith("prod") or "certs-plain-secret" in build:
            clients |= {"etcd-roles"}
        found |= {(client, "etcd", 2379) for client in clients}
    if build.startswith(("prod", "etcd-internal")):
        found |= {("etcd", "etcd", 2380)}
    return found


@pytest.mark.parametrize("build", BUILDS)
def test_pods_talk_where_their_way_leads_and_nowhere_else(build: str) -> None:
    assert ways(of_kind(build, "NetworkPolicy"), pod_templates(build)) == needed(build)


@pytest.mark.parametrize("build", BUILDS)
def test_nobody_from_outside_comes_in_but_prometheus(build: str) -> None:
    policies = of_kind(build, "NetworkPolicy")
    for name, template in pod_templates(build).items():
        labels = template["metadata"]["labels"]
        for port in PORTS:
            if (name, port) == ("conclave-jobs", REPORTS):
                assert passes(policies, "Ingress", labels, (OUTSIDE, "default"), port)
                continue
            assert not passes(policies, "Ingress", labels, (OUTSIDE, "default"), port), (name, port)
            assert not passes(policies, "Ingress", labels, (PROMETHEUS, "default"), port), (name, port)
            scraped = passes(policies, "Ingress", labels, (PROMETHEUS, "monitoring"), port)
            expected = "monitoring" in build and name not in JOBS and port in (8700, 2381)
            assert scraped is expected, (name, port)


@pytest.mark.parametrize("build", BUILDS)
def test_only_who_has_a_role_reaches_the_api_server(build: str) -> None:
    roles = {s["name"] for d in of_kind(build, "ClusterRoleBinding", "RoleBinding") for s in d["subjects"]}
    reach = set()
    for policy in of_kind(build, "NetworkPolicy"):
        ports: set[Any] = {p["port"] for rule in policy["spec"].get("egress", ()) for p in rule.get("ports", ())}
        if 6443 in ports:
            reach |= {
                f"conclave-{role_of(name)}"
                for name, t in pod_templates(build).items()
                if selects(policy["spec"]["podSelector"], t["metadata"]["labels"])
            }
    assert reach == roles


def test_without_the_default_deny_anybody_comes_in() -> None:
    kept = [
        p for p in of_kind("dev", "NetworkPolicy") if p["metadata"]["name"] not in ("default-deny", "from-coordinator")
    ]
    labels = pod_templates("dev")["conclave-agent"]["metadata"]["labels"]
    assert passes(kept, "Ingress", labels, (OUTSIDE, "default"), 8700)
