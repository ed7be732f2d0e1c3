"""What agents are told of a node's latency, and that its change matters to scheduling."""

from __future__ import annotations

from services.coordinator.intake import decides
from services.coordinator.views import AgentView
from shared.scheduling.node_table import NodeTable
from shared.wire.records import AgentRecord
from tests.builders import make_node


def node(latency: str | None, **annotations: str):
    builder = make_node("n")
    found = dict(annotations) if latency is None else {"conclave.io/latency-ms": latency, **annotations}
    builder.json["metadata"]["annotations"] = found
    return builder.node()


def test_a_change_of_latency_matters_and_of_another_annotation_does_not():
    assert decides(node("12"), node("25"))
    assert decides(node(None), node("25"))
    assert not decides(node("12", note="a"), node("12", note="b"))


def test_agents_are_told_the_latency_and_each_change_of_it():
    table = NodeTable()
    view = AgentView(AgentRecord(id="a", url="", incarnation="i"), epoch=1)
    view.pending = {"n"}
    for latency, expected in (("12", 12_000), ("25.5", 25_500)):
        table.upsert(node(latency))
        piece = view.piece(table, {"n": "a"})
        assert piece is not None
        assert [row.latency_us for row in piece.nodes] == [expected]
