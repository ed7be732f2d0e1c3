"""An agent's counters against node exporter's, which reads the same kernel by code of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.parts.node_exporter import NAMES, found, own_totals, rates, reading, running, window

GIVEN = os.environ.get("CONCLAVE_NODE_EXPORTER", "")
PROGRAM = found(Path(GIVEN) if GIVEN else None)
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason=f"node exporter is not on PATH ({' or '.join(NAMES)})"),
]
WITHIN = 0.02
COUNTED = ("cpu", "disk", "network")


def test_what_is_read_lies_within_two_percent_of_node_exporters_over_the_same_window() -> None:
    """Its amount over the window lies between ours of the window just inside it and of the one just around it, however
    long the machine let either wait."""
    assert PROGRAM is not None
    with running(PROGRAM) as url:
        first, second = window(url, 2.0)
    begin, end = (
        (own_totals(first.before), own_totals(first.after)),
        (own_totals(second.before), own_totals(second.after)),
    )
    busy = [name for name in second.theirs if name.startswith("busy ")]
    for name in (*COUNTED, *busy):
        theirs = second.theirs[name] - first.theirs[name]
        least, most = end[0][name] - begin[1][name], end[1][name] - begin[0][name]
        assert least * (1 - WITHIN) - 0.02 <= theirs <= most * (1 + WITHIN) + 0.02, name
    around = sorted((end[0]["memory"], end[1]["memory"]))
    assert around[0] * (1 - WITHIN) <= second.theirs["memory"] <= around[1] * (1 + WITHIN)
    assert second.theirs["cpu"] > first.theirs["cpu"]
    told = reading(first, second)
    assert told.cpu_millis is not None
    assert dict.fromkeys(name for name, _, _ in rates(first, second)).keys() >= {"memory, bytes", "cpu, millicores"}
