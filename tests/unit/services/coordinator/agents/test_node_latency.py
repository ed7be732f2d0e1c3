"""What agents are told of a node's latency, and that its change is taken over without waking anybody."""

from __future__ import annotations

from services.coordinator.agents.views import AgentView
from services.coordinator.core.intake import changes_of
from shared.model.cluster_events import NodeUpserted
from shared.scheduling.state.node_table import NodeTable
from shared.wire.records import AgentRecord
from tests.builders import make_node
from tests.unit.services.coordinator.scene import Scene


def node(latency: str | None, **annotations: str):
    builder = make_node("n")
    found = dict(annotations) if latency is None else {"conclave.io/latency-ms": latency, **annotations}
    builder.json["metadata"]["annotations"] = found
    return builder.node()


def test_a_change_of_latency_helps_no_parked_pod():
    assert changes_of(node("12"), node("25")) == []


def test_a_change_of_latency_is_taken_over():
    core = Scene().core
    for latency, expected in (("12", 12_000), ("25", 25_000)):
        core.handle([NodeUpserted(node(latency))], 100.0)
        table = core.state.cache.table
        assert table.latency_us[table.row_of["n"]] == expected


def test_agents_are_told_the_latency_and_each_change_of_it():
    table = NodeTable()
    view = AgentView(AgentRecord(id="a", url="", incarnation="i"), epoch=1)
    view.pending = {"n"}
    for latency, expected in (("12", 12_000), ("25.5", 25_500)):
        table.upsert(node(latency))
        piece = view.piece(table, {"n": "a"})
        assert piece is not None
        assert [row.latency_us for row in piece.nodes] == [expected]
