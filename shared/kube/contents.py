"""What of a pod or a node anything is made of, as one number: equal numbers, equal models but for the resourceVersion.

A kubelet writes a pod's status a handful of times in its life and a node's every few minutes; most of these writes
change nothing that scheduling reads. Who keeps the number of what it was told can drop them before they are converted.
Pure. Two contents of one object share a number by chance once in 2^64.

A pod on no node has no number: a Binding names its newest resourceVersion, so each of its changes counts.
"""

from __future__ import annotations

import msgspec

from shared.kube.objects import KubeNode, KubePod, ObjectMeta

READ_CONDITIONS = frozenset({"PodScheduled", "DisruptionTarget", "PodResizePending"})
"""Of a pod; a kubelet writes others each time that a probe changes its mind."""

_encode = msgspec.msgpack.Encoder().encode


def pod_content(pod: KubePod) -> int | None:
    """The number of what is read of a pod; None while it is on no node."""
    spec, status = pod.spec, pod.status
    if not spec.node_name:
        return None
    return hash(
        _encode(
            (
                *_of(pod.metadata), spec, status.phase, status.start_time, status.nominated_node_name,
                [one for one in status.conditions or () if one.type in READ_CONDITIONS],
                status.container_statuses, status.init_container_statuses,
                status.resources, status.allocated_resources,
            )
        )
    )  # fmt: skip


def node_content(node: KubeNode) -> int | None:
    """The number of what is read of a node: no heartbeat among it."""
    return hash(_encode((*_of(node.metadata), node.spec, node.status)))


def _of(meta: ObjectMeta) -> tuple[object, ...]:
    return meta.labels, meta.annotations, meta.owner_references, meta.deletion_timestamp
