"""``metrics.k8s.io`` of a plane that has no metrics-server: a definition of that name, and an object for each pod.

The API server answers lists and selectors of them as it does those of a metrics-server, so that an HPA and whoever else
reads metrics need nothing of their own. What a pod uses stands in its annotation ``conclave.io/usage``, which the
twin reads too; its first step counts, and a pod without it is not reported.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

Json = dict[str, Any]
USAGE = "conclave.io/usage"
VERSION = "metrics.k8s.io/v1beta1"
WINDOW_S = 15
"""Of a metrics-server: so often it reads, and over so long."""
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests of a plane without a metrics-server"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "pods", "kind": "PodMetrics", "listKind": "PodMetricsList"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def path_of(namespace: str, name: str = "") -> str:
    """Of the object of a pod, or of all of its namespace."""
    return f"/apis/{VERSION}/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def used(pod: Json) -> tuple[int, int] | None:
    """(millicores, bytes) that a pod uses; None: nothing is told of it, or it does not run."""
    told = pod["metadata"].get("annotations", {}).get(USAGE)
    if told is None or pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
        return None
    _, millicores, amount, *_ = json.loads(told)["u"][0]
    return int(millicores), int(amount)


def metrics_of(pod: Json, at: dt.datetime) -> Json | None:
    """The PodMetrics of a pod as of ``at``, its use divided over its containers; None: it has none."""
    use = used(pod)
    if use is None:
        return None
    millicores, amount = use
    names = [one["name"] for one in pod["spec"]["containers"]]
    share = {"cpu": f"{millicores // len(names)}m", "memory": str(amount // len(names))}
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": VERSION,
        "kind": "PodMetrics",
        "metadata": {"name": meta["name"], "labels": meta.get("labels", {}), "ownerReferences": [owner]},
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": f"{WINDOW_S}s",
        "containers": [{"name": name, "usage": share} for name in names],
    }
