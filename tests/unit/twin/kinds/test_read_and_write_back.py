"""Reading an object and writing it back is no change: defaulting, admission and printing agree with each other."""

from __future__ import annotations

from typing import Any

import pytest

Json = dict[str, Any]

RICH_CONTAINER = {
    "name": "c",
    "image": "busybox",
    "ports": [{"containerPort": 80, "hostPort": 8080}],
    "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "resources": {"limits": {"cpu": "1000m", "memory": "1.5Gi", "example.com/gpu": "1"}},
    "livenessProbe": {"httpGet": {"port": 80}},
    "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
}
TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone", "matchLabelKeys": ["rev"]}
RICH_POD = {
    "containers": [RICH_CONTAINER],
    "initContainers": [{"name": "i", "image": "x:1"}, {"name": "s", "image": "x:1", "restartPolicy": "Always"}],
    "volumes": [{"name": "v", "configMap": {"name": "m"}}, {"name": "e"}, {"name": "h", "hostPath": {"path": "/"}}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
            }
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "schedulingGates": [{"name": "example.com/hold"}],
    "terminationGracePeriodSeconds": -1,
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [RICH_CONTAINER], "volumes": [{"name": "v"}]}}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
ONCE = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
STATEFUL = {**SELECTED, "serviceName": "s", "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": CLAIM}]}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}

OBJECTS: list[tuple[str, Json]] = [
    ("pods", {"metadata": {"name": "x", "labels": {"rev": "1"}}, "spec": RICH_POD}),
    ("nodes", {"spec": {"podCIDR": "10.1.0.0/24"}, "status": {"capacity": {"cpu": "8000m", "memory": "32768Mi"}}}),
    ("namespaces", {}),
    ("services", {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
    ("services", {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "web"}]}}),
    ("secrets", {"stringData": {"a": "b"}}),
    ("limitranges", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}]}}),
    ("persistentvolumeclaims", {"spec": CLAIM}),
    (
        "persistentvolumes",
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "nfs": {"server": "s", "path": "/"},
            }
        },
    ),
    ("replicationcontrollers", {"spec": {"template": TEMPLATE}}),
    ("deployments.apps", {"spec": SELECTED}),
    ("deployments.apps", {"spec": {**SELECTED, "strategy": {"type": "Recreate"}}}),
    ("replicasets.apps", {"spec": SELECTED}),
    ("statefulsets.apps", {"spec": STATEFUL}),
    ("daemonsets.apps", {"spec": SELECTED}),
    ("jobs.batch", {"spec": ONCE}),
    ("jobs.batch", {"spec": {**ONCE, "completionMode": "Indexed", "completions": 3}}),
    ("cronjobs.batch", {"spec": {"schedule": "@daily", "jobTemplate": {"spec": ONCE}}}),
    ("horizontalpodautoscalers.autoscaling", {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}}),
    ("poddisruptionbudgets.policy", {"spec": {"minAvailable": "50%", "selector": {}}}),
    ("leases.coordination.k8s.io", {"spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.000001Z"}}),
    ("priorityclasses.scheduling.k8s.io", {"value": 1}),
    ("runtimeclasses.node.k8s.io", {"handler": "h", "overhead": {"podFixed": {"cpu": "0.25"}}}),
    ("storageclasses.storage.k8s.io", {"provisioner": "x/y"}),
    ("csidrivers.storage.k8s.io", {"spec": {}}),
    ("networkpolicies.networking.k8s.io", {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
    (
        "rolebindings.rbac.authorization.k8s.io",
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
    ),
    (
        "resourceclaims.resource.k8s.io",
        {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "c"}}]}}},
    ),
    ("events", {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns"}, "reason": "R"}),
]


@pytest.mark.parametrize(("resource", "obj"), OBJECTS, ids=[f"{i}-{one[0]}" for i, one in enumerate(OBJECTS)])
def test_a_put_of_what_was_read_is_no_write(cluster: Any, resource: str, obj: Json) -> None:
    created = cluster.create(resource, {"metadata": {"name": "x"}, **obj})
    revision = created["metadata"]["resourceVersion"]
    written = cluster.change(resource, "x", lambda one: None)
    assert written["metadata"]["resourceVersion"] == revision
    assert written == created


@pytest.mark.parametrize(("resource", "obj"), OBJECTS, ids=[f"{i}-{one[0]}" for i, one in enumerate(OBJECTS)])
def test_a_label_is_the_only_change_and_no_generation(cluster: Any, resource: str, obj: Json) -> None:
    created = cluster.create(resource, {"metadata": {"name": "x"}, **obj})
    changed = cluster.change(resource, "x", lambda one: one["metadata"].setdefault("labels", {}).update(z="1"))
    assert changed["metadata"].get("generation") == created["metadata"].get("generation")
    assert changed["metadata"]["labels"]["z"] == "1"
    for part in created.keys() - {"metadata"}:
        assert changed[part] == created[part]
