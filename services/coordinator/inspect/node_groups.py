"""Nodes by zone, region, pool or any label: for a map of thousands that is read group by group.

What clouds and autoscalers call a pool has a label of each one's own; the first that a node has counts. Pure, and
bounded: labels with more values than ``MOST_GROUPS`` (host names) are not offered, and beyond them the rest is one.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.scheduling.state.node_table import ABSENT, IntArray, NodeTable

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool", "agentpool",
    "karpenter.sh/nodepool", "doks.digitalocean.com/node-pool", "lke.linode.com/pool-id", "node.cluster.x-k8s.io/pool",
    "machine.openshift.io/cluster-api-machineset", "node-pool", "nodepool", "pool",
)  # fmt: skip

MOST_GROUPS = 500
MOST_KEYS = 64
REST = "…"
LABEL = "label:"


def pool_of(labels: Mapping[str, str]) -> str:
    """The pool that a node belongs to; empty where no label says so."""
    return next((labels[key] for key in POOLS if key in labels), "")


def group_keys(table: NodeTable) -> list[str]:
    """What the nodes may be grouped by."""
    found = [name for name, key in (("zone", ZONE), ("region", REGION)) if key in table.label_codes]
    if any(key in table.label_codes for key in POOLS):
        found.append("pool")
    # more values than nodes can share make no groups
    most = min(MOST_GROUPS, max(1, len(table.row_of) // 2))
    labels = (f"{LABEL}{key}" for key in sorted(table.label_codes) if 0 < len(table.label_values[key]) <= most)
    return [*found, *labels][:MOST_KEYS]


def grouped(table: NodeTable, rows: IntArray, by: str) -> tuple[list[int], list[str]]:
    """(place of each row's group, the groups by name; "" is those without). ``by``: zone, region, pool or label:KEY."""
    keys = {"zone": (ZONE,), "region": (REGION,), "pool": POOLS}.get(by, (by.removeprefix(LABEL),))
    values = [""] * len(rows)
    for key in reversed(keys):  # the first of the keys wins
        codes = table.codes_of(key)
        if codes is not None:
            texts = list(table.label_values[key])
            for place, code in enumerate(codes[rows].tolist()):
                if code != ABSENT:
                    values[place] = texts[code]
    names = sorted(set(values))
    if len(names) > MOST_GROUPS:
        names = [*names[: MOST_GROUPS - 1], REST]
    place_of = {name: place for place, name in enumerate(names)}
    return [place_of.get(value, len(names) - 1) for value in values], names
