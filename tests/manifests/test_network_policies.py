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
NOT_SCRAPED = {*JOBS, "conclave-sensor"}
"""Pods without a page of metrics; what sensors measure is among the leader's."""
REPORTS = 8711
"""Where training jobs report, from any namespace, each with its own token."""
PORTS = (2379, 2380, 2381, 8700, 8701, 8703, REPORTS)


Other = tuple[dict[str, str], str]
"""Labels and namespace of who is at the other end."""

NO_POD: Other = ({}, "")


def selects(selector: Json, labels: dict[str, str]) -> bool:
    """A label selector: matchLabels, and matchExpressions with In."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def peer_fits(peer: Json, other: Other) -> bool:
    """Whether a peer of a rule is this pod. Pods have no address here, so a block never is; who is no pod of the pod
    network (a node, a link-local address) is only where a rule names nobody."""
    if "ipBlock" in peer or other is NO_POD:
        return False
    labels, namespace = other
    wanted = peer.get("namespaceSelector")
    if wanted is None:
        if namespace != "conclave-system":
            return False
    elif not selects(wanted, {"kubernetes.io/metadata.name": namespace}):
        return False
    return selects(peer.get("podSelector", {}), labels)


def passes(
    policies: list[Json], direction: str, own: dict[str, str], other: Other, port: int, protocol: str = "TCP"
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
            ports = [(one["port"], one["protocol"]) for one in rule.get("ports", ())]
            fits = peers not in rule or any(peer_fits(peer, other) for peer in rule[peers])
            if fits and (not ports or (port, protocol) in ports):
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
        for protocol in ("TCP", "UDP")
        if passes(policies, "Egress", ours, (theirs, "conclave-system"), port, protocol)
        and passes(policies, "Ingress", theirs, (ours, "conclave-system"), port, protocol)
    }


def needed(build: str) -> set[tuple[str, str, int]]:
    """The ways of docs/architecture.md: offers, views, plans, transitions, what a standby passes on, facts in etcd; and
    each standby's connection to its leader."""
    found = {("coordinator", "agent", 8700), ("coordinator", "binder", 8700), ("coordinator", "coordinator", 8701)}
    clients, candidates = {"coordinator", "agent", "binder"}, {"coordinator", "binder"}
    per_node = {one["metadata"]["name"] for one in of_kind(build, "DaemonSet")}
    if "conclave-sensor" in per_node:  # they tell what they measure, and probe each other
        found |= {("sensor", "coordinator", 8700), ("sensor", "sensor", 8703)}
    if "conclave-agent" in per_node:  # and so do agents on their nodes
        found |= {("agent", "coordinator", 8700), ("agent", "agent", 8703)}
    if "learner" in build:
        found |= {("agent", "learner", 8700)}
        clients |= {"learner"}
    if "shard" in build:
        found |= {("coordinator", "binder-1", 8700)}
        clients |= {"binder-1"}
        candidates |= {"binder-1"}
    if "jobs" in build:
        found |= {("jobs", "jobs", REPORTS), ("coordinator", "jobs", 8700)}
        clients |= {"jobs"}
        candidates |= {"jobs"}
    if "rebalancer" in build:
        clients |= {"rebalancer"}
        candidates |= {"rebalancer"}
    if "autoscaler" in build:
        clients |= {"autoscaler"}
        candidates |= {"autoscaler"}
    found |= {(candidate, candidate, 8700) for candidate in candidates}
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
            expected = bool(of_kind(build, "ServiceMonitor")) and name not in NOT_SCRAPED and port in (8700, 2381)
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


DNS: dict[str, tuple[Other, int]] = {
    "kubeadm, EKS, AKS, RKE2, k3s, MicroK8s": (({"k8s-app": "kube-dns"}, "kube-system"), 53),
    "OpenShift": (({"dns.operator.openshift.io/daemonset-dns": "default"}, "openshift-dns"), 5353),
    "NodeLocal DNSCache, a process of the node on 169.254.20.10": (NO_POD, 53),
    "GKE's Cloud DNS on 169.254.169.254": (NO_POD, 53),
}
API_SERVERS = {"EKS, GKE, AKS": 443, "kubeadm, RKE2, OpenShift": 6443, "k3s": 6444, "minikube": 8443, "MicroK8s": 16443}


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("kind", DNS)
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_names_are_resolved_by_whoever_does_it_in_this_cluster(build: str, kind: str, protocol: str) -> None:
    other, port = DNS[kind]
    for name, template in pod_templates(build).items():
        labels = template["metadata"]["labels"]
        assert passes(of_kind(build, "NetworkPolicy"), "Egress", labels, other, port, protocol), name


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("kind", API_SERVERS)
def test_the_api_server_is_reached_where_it_listens_and_by_its_clients_alone(build: str, kind: str) -> None:
    policies = of_kind(build, "NetworkPolicy")
    for name, template in pod_templates(build).items():
        labels = template["metadata"]["labels"]
        client = labels.get("conclave.io/kube-client") == "true"
        assert passes(policies, "Egress", labels, NO_POD, API_SERVERS[kind]) is client, name


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    ("namespace", "port"), [("monitoring", 9090), ("openshift-monitoring", 9091), ("thanos", 10902)]
)
def test_who_is_told_a_prometheus_reaches_it(build: str, namespace: str, port: int) -> None:
    """``--prometheus`` of coordinator and autoscaler was held up by our own policies."""
    policies = of_kind(build, "NetworkPolicy")
    for name, template in pod_templates(build).items():
        labels = template["metadata"]["labels"]
        asks = role_of(name) in ("coordinator", "autoscaler")
        assert passes(policies, "Egress", labels, (PROMETHEUS, namespace), port) is asks, name


def test_without_the_policy_for_prometheus_nobody_reaches_it() -> None:
    kept = [p for p in of_kind("dev", "NetworkPolicy") if p["metadata"]["name"] != "prometheus"]
    labels = pod_templates("dev")["conclave-coordinator"]["metadata"]["labels"]
    assert not passes(kept, "Egress", labels, (PROMETHEUS, "monitoring"), 9090)


@pytest.mark.parametrize("build", BUILDS)
def test_every_service_reaches_a_collector_of_traces(build: str) -> None:
    policies = of_kind(build, "NetworkPolicy")
    for name, template in pod_templates(build).items():
        if name in NOT_SCRAPED or name == "conclave-etcd":
            continue
        labels = template["metadata"]["labels"]
        assert passes(policies, "Egress", labels, ({}, "otel"), 4318), name


@pytest.mark.parametrize("build", [build for build in BUILDS if "monitoring" in build or "openshift" in build])
def test_prometheus_comes_in_from_the_namespaces_that_it_runs_in(build: str) -> None:
    if not of_kind(build, "ServiceMonitor"):
        return
    labels = pod_templates(build)["conclave-coordinator"]["metadata"]["labels"]
    policies = of_kind(build, "NetworkPolicy")
    for namespace in ("monitoring", "openshift-user-workload-monitoring", "cattle-monitoring-system", "observability"):
        assert passes(policies, "Ingress", labels, (PROMETHEUS, namespace), 8700), namespace


def test_without_the_policy_for_dns_nobody_resolves_a_name() -> None:
    kept = [p for p in of_kind("dev", "NetworkPolicy") if p["metadata"]["name"] != "dns"]
    labels = pod_templates("dev")["conclave-agent"]["metadata"]["labels"]
    assert not any(passes(kept, "Egress", labels, other, port, "UDP") for other, port in DNS.values())


def test_without_the_default_deny_anybody_comes_in() -> None:
    kept = [
        p for p in of_kind("dev", "NetworkPolicy") if p["metadata"]["name"] not in ("default-deny", "from-coordinator")
    ]
    labels = pod_templates("dev")["conclave-agent"]["metadata"]["labels"]
    assert passes(kept, "Ingress", labels, (OUTSIDE, "default"), 8700)


@pytest.mark.parametrize("build", [build for build in BUILDS if "agents-host-sensors" not in build])
def test_a_sensor_gets_out_to_nobody_until_the_leader_opens_a_way(build: str) -> None:
    """The policy is there without `egress`, under the name that the coordinator is told and may patch."""
    policies = {d["metadata"]["name"]: d["spec"] for d in of_kind(build, "NetworkPolicy")}
    labels = pod_templates(build)["conclave-sensor"]["metadata"]["labels"]
    mine = policies["sensor-targets"]
    assert mine == {"podSelector": {"matchLabels": labels}, "policyTypes": ["Egress"]}
    arguments = pod_templates(build)["conclave-coordinator"]["spec"]["containers"][0]["args"]
    assert "--target-egress=conclave-system/sensor-targets" in arguments
    shop: Other = ({"app": "shop"}, "shop")
    everything = of_kind(build, "NetworkPolicy")
    assert not passes(everything, "Egress", labels, shop, 8080)
    to = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}},
        "podSelector": {"matchLabels": {"app": "shop"}},
    }
    opened = [*everything, {"metadata": {"name": "x"}, "spec": {**mine, "egress": [{"to": [to]}]}}]
    assert passes(opened, "Egress", labels, shop, 8080)
    assert not passes(opened, "Egress", labels, ({"app": "bank"}, "shop"), 8080)
