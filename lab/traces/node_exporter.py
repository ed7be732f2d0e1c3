"""What to ask a Prometheus for a node's use, and whose each answer is. Pure.

Queries are over the node-exporter's metrics, as in the kubernetes-mixin's rules (cpu without idle and iowait, memory as
total less available, physical disks and interfaces only). ``$w`` is the window of a rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from shared.hostport import host_part

VIRTUAL_LINKS = "lo|veth.*|cali.*|cni.*|flannel.*|docker.*|br-.*|virbr.*|cilium.*|lxc.*"
VIRTUAL_DISKS = "dm-.*|md.*|loop.*|ram.*"

QUERIES: Mapping[str, str] = {
    "cpu": 'sum by (instance, node) (rate(node_cpu_seconds_total{mode!~"idle|iowait|steal|guest|guest_nice"}[$w]))'
    " * 1000",
    "memory": "max by (instance, node) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)",
    "disk": f'sum by (instance, node) (rate(node_disk_written_bytes_total{{device!~"{VIRTUAL_DISKS}"}}[$w]))',
    "network": f'sum by (instance, node) (rate(node_network_receive_bytes_total{{device!~"{VIRTUAL_LINKS}"}}[$w])'
    f' + rate(node_network_transmit_bytes_total{{device!~"{VIRTUAL_LINKS}"}}[$w])) * 8',
}
"""By part of ``twin.capture.PARTS``, in its units."""

NAMES_QUERY = "max by (instance, nodename) (node_uname_info)"
LEAST_WINDOW_S = 60
"""Two scrapes at least: Prometheus scrapes every 15 to 30 s where nobody chose otherwise."""


def query(part: str, step_s: float) -> str:
    """The query of a part for samples every ``step_s`` seconds."""
    return QUERIES[part].replace("$w", f"{max(LEAST_WINDOW_S, round(4 * step_s))}s")


def node_of(labels: Mapping[str, str], *, nodes: Mapping[str, Iterable[str]], host_names: Mapping[str, str]) -> str:
    """The node a series belongs to, "" for none of ours.

    ``nodes``: addresses by name. ``host_names``: nodename by instance, of ``NAMES_QUERY``. The label ``node`` counts
    first, then the host's own name, then the instance's name or address without its port.
    """
    instance = labels.get("instance", "")
    host = host_part(instance)
    for name in (labels.get("node", ""), host_names.get(instance, ""), host):
        if name in nodes:
            return name
    return next((name for name, addresses in nodes.items() if host in addresses), "")


def on_grid(samples: Iterable[tuple[float, float]], *, start_s: float, step_s: float, steps: int) -> list[float | None]:
    """Samples as one value per step from ``start_s`` on, None where there is none or it is no amount."""
    values: list[float | None] = [None] * steps
    for time_s, value in samples:
        step = round((time_s - start_s) / step_s)
        if 0 <= step < steps and isfinite(value) and value >= 0:
            values[step] = value
    return values
