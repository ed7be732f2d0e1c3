"""k8s/ renders, validates against Kubernetes' own schemas, and its pods are hardened, spread and kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import kubernetes_validate
import kubernetes_validate.utils
import pytest

from shared.adapters.peers.identity import CALLING_ROLES, IDENTITY_DOMAIN, SERVICE_ROLES, common_name, identity_of
from shared.runtime.process.etcd_release import UNSAFE
from tests.manifests.rendering import (
    BUILDS,
    JOBS,
    MUTUAL_TLS,
    NAMESPACE,
    OVERLAYS,
    needs_kubectl,
    of_kind,
    pod_templates,
    rendered,
    role_of,
)

RELEASES = ["1.34.0", "1.35.0", "1.36.0", "1.37.0"]
CUSTOM = {
    "cert-manager.io/v1": {"Certificate", "Issuer"},
    "monitoring.coreos.com/v1": {"PrometheusRule", "ServiceMonitor"},
}
"""Kinds of others' operators: no release of Kubernetes has a schema for them (see the tests on certificates below)."""
HOST = {"agents-host-sensors": "conclave-agent", "sensors-host": "conclave-sensor"}
"""Components that mount the node's files, and whose pods."""

pytestmark = needs_kubectl


def is_custom(document: dict[str, Any]) -> bool:
    return document["kind"] in CUSTOM.get(document["apiVersion"], ())


@pytest.fixture(scope="module", autouse=True)
def schemas_read_once() -> Iterator[None]:
    """The library parses megabytes of definitions anew for every object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


@pytest.mark.parametrize("release", RELEASES)
def test_every_object_of_every_overlay_is_valid_in_every_release(release: str) -> None:
    validated: set[str] = set()
    for build in BUILDS:
        for document in rendered(build):
            text = json.dumps(document, sort_keys=True)
            if text not in validated and not is_custom(document):
                # most objects are the same in several overlays
                kubernetes_validate.validate(document, release, strict=True)
                validated.add(text)
    assert len(validated) > 60


def test_a_misspelt_field_does_not_validate() -> None:
    document = next(d for d in rendered("prod") if d["kind"] == "Deployment")
    broken = {**document, "spec": {**document["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, RELEASES[-1], strict=True)


def test_the_promised_overlays_are_there() -> None:
    assert OVERLAYS == ["daemonset-agents", "dev", "etcd-external", "etcd-internal", "partition-agents", "prod"]


@pytest.mark.parametrize("build", BUILDS)
def test_everything_lies_in_our_namespace_once(build: str) -> None:
    cluster_wide = {"Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    seen = set()
    for document in rendered(build):
        name = (document["kind"], document["metadata"]["name"])
        assert name not in seen
        seen.add(name)
        expected = None if document["kind"] in cluster_wide else NAMESPACE
        assert document["metadata"].get("namespace") == expected, name


@pytest.mark.parametrize("build", BUILDS)
def test_pods_meet_the_restricted_standard(build: str) -> None:
    """The controls of the Pod Security Standard ``restricted``, and a read-only root beside them; with host sensors all
    but the two mounts of those who sense, which are read-only."""
    senses = next((who for part, who in HOST.items() if part in build), "")
    enforced = next(d for d in of_kind(build, "Namespace"))["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == ("privileged" if senses else "restricted")
    for name, template in pod_templates(build).items():
        spec = template["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys(), name
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True
        if "openshift" not in build:  # there the namespace's range decides; see test_openshift.py
            assert pod["runAsUser"] > 0
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in spec.get("volumes", ()):
            if name == senses and "hostPath" in volume:
                mount = next(m for m in spec["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
                assert (mount["readOnly"], volume["hostPath"]["path"] in {"/proc", "/sys"}) == (True, True)
                continue
            assert volume.keys() - {"name"} <= {"secret", "configMap", "emptyDir", "persistentVolumeClaim"}, name
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["privileged"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            assert all("hostPort" not in port for port in container.get("ports", ()))


@pytest.mark.parametrize("build", BUILDS)
def test_our_pods_are_never_scheduled_by_conclave_itself(build: str) -> None:
    classes = {d["metadata"]["name"] for d in of_kind(build, "PriorityClass")}
    for template in pod_templates(build).values():
        assert template["spec"]["schedulerName"] == "default-scheduler"
        assert template["spec"]["priorityClassName"] in classes


@pytest.mark.parametrize("build", BUILDS)
def test_services_are_probed_and_ports_are_named(build: str) -> None:
    for name, template in pod_templates(build).items():
        if name in JOBS:
            continue
        for container in template["spec"]["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe]["httpGet"]["port"] in ports, (name, probe)
                plain = name in ("conclave-etcd", "conclave-sensor") or probe == "livenessProbe"
                secure = build in MUTUAL_TLS and not plain
                assert (container[probe]["httpGet"].get("scheme") == "HTTPS") is secure, (name, probe)


@pytest.mark.parametrize("build", BUILDS)
def test_what_has_replicas_is_spread_and_has_a_budget_that_lets_a_node_drain(build: str) -> None:
    budgets = {
        d["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]: d for d in of_kind(build, "PodDisruptionBudget")
    }
    for document in of_kind(build, "Deployment", "StatefulSet"):
        name = document["metadata"]["name"]
        if name == "conclave-learner":
            continue
        # minAvailable would forbid every drain where there is one replica
        assert budgets[name]["spec"]["maxUnavailable"], name
        if document["spec"]["replicas"] > 1:
            rules = document["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert {rule["topologyKey"] for rule in rules} >= {"kubernetes.io/hostname"}
            for rule in rules:
                assert rule["labelSelector"]["matchLabels"] == document["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("build", BUILDS)
def test_selectors_choose_the_pods_of_their_own_template(build: str) -> None:
    for document in of_kind(build, "Deployment", "DaemonSet", "StatefulSet"):
        labels = document["spec"]["template"]["metadata"]["labels"]
        assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = {
        t["metadata"]["labels"]["app.kubernetes.io/name"]: {
            p["name"] for c in t["spec"]["containers"] for p in c.get("ports", ())
        }
        for t in pod_templates(build).values()
    }
    for service in of_kind(build, "Service"):
        target = service["spec"]["selector"]["app.kubernetes.io/name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports[target]


@pytest.mark.parametrize("build", BUILDS)
def test_no_workload_selects_the_pods_of_another(build: str) -> None:
    workloads = of_kind(build, "Deployment", "DaemonSet", "StatefulSet")
    for one in workloads:
        for other in workloads:
            labels = other["spec"]["template"]["metadata"]["labels"]
            selects = one["spec"]["selector"]["matchLabels"].items() <= labels.items()
            assert selects is (one is other), (one["metadata"]["name"], other["metadata"]["name"])


@pytest.mark.parametrize("build", [build for build in BUILDS if "shard" in build])
def test_the_binders_of_a_further_shard_are_as_those_of_the_first(build: str) -> None:
    """The same pod but for its name and its shard: certificates, rights, probes and limits."""
    templates = pod_templates(build)
    first, second = templates["conclave-binder"], json.loads(json.dumps(templates["conclave-binder-1"]))
    second["spec"]["containers"][0]["args"].remove("--shard=1")
    text = json.dumps(second).replace(
        '"app.kubernetes.io/name": "conclave-binder-1"', '"app.kubernetes.io/name": "conclave-binder"'
    )
    assert json.loads(text) == first


def test_agents_run_as_a_partitioned_deployment_or_one_per_node() -> None:
    kinds = {
        build: next(
            d["kind"] for d in of_kind(build, "Deployment", "DaemonSet") if d["metadata"]["name"] == "conclave-agent"
        )
        for build in BUILDS
    }
    per_node = {build for build, kind in kinds.items() if kind == "DaemonSet"}
    assert per_node == {build for build in BUILDS if build.startswith("daemonset-agents")}


@pytest.mark.parametrize("build", BUILDS)
def test_every_secret_and_config_map_that_is_mounted_is_made_or_documented(build: str) -> None:
    """By this build, by cert-manager, by the Job, or by hand where docs/operations/kubernetes.md says so."""
    made = {d["metadata"]["name"] for d in of_kind(build, "Secret", "ConfigMap")}
    made |= {d["spec"]["secretName"] for d in of_kind(build, "Certificate")}
    clients = {f"conclave-etcd-{service}-tls" for service in ("coordinator", "binder", "agent")}
    by_hand = {
        "dev": set(),
        "prod": set(),
        "prod+monitoring": set(),
        "prod+sensors-host": set(),
        "prod+autoscaler+jobs+learner+shard+monitoring": set(),
        "prod+autoscaler+jobs+learner+shard+openshift": set(),
        "etcd-internal": {"conclave-etcd-server-tls", "conclave-etcd-peer-tls", *clients},
        "etcd-external": clients,
    }.get(build, set())
    if any(d["metadata"]["name"] == "conclave-make-peer-secret" for d in of_kind(build, "Job")):
        made |= {"conclave-peer-token", "conclave-admin-token"}
    else:
        by_hand |= {"conclave-peer-token", "conclave-admin-token"}
    wanted = set()
    for template in pod_templates(build).values():
        for volume in template["spec"].get("volumes", ()):
            wanted |= {volume["secret"]["secretName"]} if "secret" in volume else set()
            mounted = volume.get("configMap", {})
            wanted |= {mounted["name"]} if mounted and not mounted.get("optional") else set()
        for container in template["spec"]["containers"]:
            wanted |= {source["configMapRef"]["name"] for source in container.get("envFrom", ())}
    assert wanted - made == by_hand


def test_certificates_name_every_member_and_an_issuer_that_is_there() -> None:
    issuers = {d["metadata"]["name"] for d in of_kind("prod", "Issuer")}
    certificates = {d["metadata"]["name"]: d["spec"] for d in of_kind("prod", "Certificate")}
    assert {spec["issuerRef"]["name"] for spec in certificates.values()} <= issuers
    etcd = next(d for d in of_kind("prod", "StatefulSet"))
    members = [f"conclave-etcd-{n}.conclave-etcd.conclave-system.svc" for n in range(etcd["spec"]["replicas"])]
    assert len(members) == 3
    for name in ("conclave-etcd-server", "conclave-etcd-peer"):
        assert set(members) <= set(certificates[name]["dnsNames"])
    for user in ("coordinator", "binder", "agent", "learner", "root"):
        client = certificates[f"conclave-etcd-{user}"]
        assert (client["commonName"], client["usages"]) == (user, ["digital signature", "client auth"])
    arguments = " ".join(etcd["spec"]["template"]["spec"]["containers"][0]["args"])
    for number, member in enumerate(members):
        assert f"conclave-etcd-{number}=https://{member}:2380" in arguments


@pytest.mark.parametrize("role", SERVICE_ROLES)
def test_a_services_certificate_names_its_role_and_no_other(role: str) -> None:
    specs = {d["metadata"]["name"]: d["spec"] for d in of_kind("prod", "Certificate")}
    ours = specs[f"conclave-peer-{role}"]
    assert ours["commonName"] == common_name(role)
    identities = {name for name in ours["dnsNames"] if name.endswith(IDENTITY_DOMAIN)}
    assert identities == {identity_of(role)}
    assert {"server auth", "client auth"} <= set(ours["usages"])
    # etcd's CA must not open the services' doors, nor the other way round
    assert ours["issuerRef"]["name"] == "conclave-peer-ca" != specs[f"conclave-etcd-{role}"]["issuerRef"]["name"]


@pytest.mark.parametrize("role", CALLING_ROLES)
def test_who_listens_to_nobody_has_a_clients_certificate(role: str) -> None:
    ours = next(d["spec"] for d in of_kind("prod", "Certificate") if d["metadata"]["name"] == f"conclave-peer-{role}")
    assert (ours["commonName"], ours["usages"]) == (common_name(role), ["digital signature", "client auth"])
    assert ours["issuerRef"]["name"] == "conclave-peer-ca"
    assert not ours.keys() & {"dnsNames", "ipAddresses"}, "nobody could take it for a service"


@pytest.mark.parametrize("build", BUILDS)
def test_each_node_is_measured_once(build: str) -> None:
    """By a sensor in every overlay; where agents are on their nodes too, they leave it to it."""
    measures = []
    for document in of_kind(build, "DaemonSet"):
        arguments = document["spec"]["template"]["spec"]["containers"][0]["args"]
        measures += [document["metadata"]["name"]] if "--sensor-every-s=0" not in arguments else []
    assert measures == ["conclave-agent" if "agents-host-sensors" in build else "conclave-sensor"]


@pytest.mark.parametrize("build", BUILDS)
def test_a_sensor_has_no_right_no_etcd_and_little_memory(build: str) -> None:
    template = pod_templates(build).get("conclave-sensor")
    if template is None:
        return
    spec, (container,) = template["spec"], template["spec"]["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert not {"conclave.io/etcd-client", "conclave.io/kube-client"} & template["metadata"]["labels"].keys()
    assert "envFrom" not in container
    assert container["resources"]["limits"]["memory"] == "48Mi"
    assert spec["tolerations"] == [{"operator": "Exists"}], "every node is measured"
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    (own,) = [one for one in of_kind(build, "PriorityClass") if one["metadata"]["name"] == spec["priorityClassName"]]
    assert own["preemptionPolicy"] == "Never", "nobody's pod has to go for a hint"


@pytest.mark.parametrize("build", BUILDS)
def test_each_pod_holds_its_own_certificates_alone(build: str) -> None:
    for name, template in pod_templates(build).items():
        role = role_of(name)
        owners = {"etcd-roles": ("root",), "etcd": ("server", "peer")}.get(role, (role,))
        own = {f"conclave-{ca}-{owner}-tls" for ca in ("etcd", "peer") for owner in owners}
        mounted = {v["secret"]["secretName"] for v in template["spec"].get("volumes", ()) if "secret" in v}
        assert {secret for secret in mounted if secret.endswith("-tls")} <= own, name


def test_an_etcd_with_tls_asks_every_client_for_a_certificate() -> None:
    for build in ("prod", "etcd-internal"):
        arguments = of_kind(build, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
        assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(arguments)
        listening = [a for a in arguments if a.startswith(("--listen-client", "--listen-peer"))]
        assert len(listening) == 2
        assert all("=https://" in argument for argument in listening)


def test_who_speaks_to_etcd_as_a_member_has_a_members_certificate() -> None:
    """Clients have certificates of the same CA, and a member's messages are held against no role."""
    for build in ("prod", "etcd-internal"):
        arguments = of_kind(build, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "--peer-cert-allowed-cn=conclave-etcd-peer" in arguments
    names = [d["spec"].get("commonName") for d in of_kind("prod", "Certificate")]
    assert names.count("conclave-etcd-peer") == 1


@pytest.mark.parametrize("build", BUILDS)
def test_no_overlay_runs_an_etcd_that_may_corrupt_its_data(build: str) -> None:
    """The wheel's 3.5.1 is for demos: pods run etcd's own image, pinned, and services refuse an unsafe release."""
    for document in of_kind(build, "StatefulSet"):
        for container in document["spec"]["template"]["spec"]["containers"]:
            image, _, tag = container["image"].rpartition(":")
            assert image == "registry.k8s.io/etcd"
            release = tuple(int(part) for part in re.split(r"[.-]", tag))
            assert len(release) >= 3
            assert release[:3] >= (3, 5, 3)
            assert ".".join(map(str, release[:3])) not in UNSAFE
    settings = {key: value for d in of_kind(build, "ConfigMap") for key, value in d.get("data", {}).items()}
    assert settings["CONCLAVE_ETCD_UNSAFE"] == "refuse"
