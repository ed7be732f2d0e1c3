"""NodePorts: a host port can be held once per protocol and address; 0.0.0.0 overlaps every address."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shared.model.constraints import HostPort, PodClass
from shared.scheduling.cycle.framework import Code
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable, Rows

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the value Kubernetes uses, not an address we bind


def conflicts(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Whether any wanted port is taken."""
    taken = list(used)
    for port in wanted:
        for other in taken:
            same_port = port.port == other.port and port.protocol == other.protocol
            if same_port and (port.ip == other.ip or ANY_ADDRESS in (port.ip, other.ip)):
                return True
    return False


class NodePorts:
    """``hostPort``."""

    name = "NodePorts"
    static = False

    def applies(self, table: NodeTable, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Only classes that ask for host ports."""
        return bool(pod_class.host_ports)

    def mask(self, table: NodeTable, pod_class: PodClass, rows: Rows) -> BoolArray:
        """True where no wanted port is taken."""
        indices = np.arange(table.rows)[rows]
        return np.fromiter(
            (not (table.ports[i] and conflicts(pod_class.host_ports, table.ports[i])) for i in indices.tolist()),
            np.bool_,
            len(indices),
        )

    def reasons(self, table: NodeTable, pod_class: PodClass, row: int) -> tuple[Code, tuple[str, ...]]:  # noqa: ARG002
        """Always the one reason."""
        return Code.UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",)

    def tally(self, table: NodeTable, pod_class: PodClass, rows: IntArray) -> dict[str, int]:
        """The one reason, once per row."""
        return {self.reasons(table, pod_class, int(rows[0]))[1][0]: len(rows)} if len(rows) else {}
