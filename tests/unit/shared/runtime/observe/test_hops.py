"""One cause id names a unit in every log and trace; off, a hop is nothing; a missing extra is one clear line."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.errors import ConfigError
from shared.model.units.unit import cause_id
from shared.runtime.observe.hops import PARENTS, Hops, Tracer, open_hops, span_id, trace_id
from shared.runtime.observe.logging import current_level, set_level


def test_a_trace_id_reads_as_the_cause_id() -> None:
    cause = cause_id(0x1A, 0x3F)
    assert cause == "1a-3f"
    assert f"{trace_id(cause):032x}" == "000000000000001a000000000000003f"


def test_span_ids_differ_within_a_trace_and_are_never_zero() -> None:
    for unit in (1, 2, 2**40):
        ids = {span_id(cause_id(7, unit), name) for name in PARENTS}
        assert len(ids) == len(PARENTS)
        assert 0 not in ids


def test_spans_of_several_processes_make_one_tree() -> None:
    exporters = {service: InMemorySpanExporter() for service in ("coordinator", "agent", "binder")}
    hops = {service: Hops(Tracer(service, f"{service}-0", exporter)) for service, exporter in exporters.items()}
    cause = cause_id(5, 9)
    for _ in range(2):
        hops["agent"].span("decide", cause, 0.001, agent="agent-0", nodes_named=3)
    hops["binder"].span("commit", cause, 0.002)
    hops["binder"].span("bind", cause, 0.003, result="accepted")
    for name, took_s in (("offer", 0.004), ("plan", 0.005), ("schedule", 0.1)):
        hops["coordinator"].span(name, cause, took_s)
    for one in hops.values():
        one.close()
    spans = [span for exporter in exporters.values() for span in exporter.get_finished_spans()]
    assert {span.context.trace_id for span in spans} == {trace_id(cause)}
    assert len({span.context.span_id for span in spans}) == len(spans) == 7
    by_id = {span.context.span_id: span.name for span in spans}
    parents = {(span.name, by_id[span.parent.span_id] if span.parent else "") for span in spans}
    assert parents == set(PARENTS.items())
    root = next(span for span in spans if span.name == "schedule")
    assert root.end_time - root.start_time == pytest.approx(1e8, rel=0.01)
    assert root.attributes["conclave.cause_id"] == "5-9"
    assert root.resource.attributes["service.name"] == "conclave-coordinator"


def test_of_many_units_every_service_traces_the_same_ones() -> None:
    kept = []
    for service, name in (("coordinator", "offer"), ("agent", "decide")):
        exporter = InMemorySpanExporter()
        hops = Hops(Tracer(service, "x", exporter), every=10)
        for unit in range(100):
            hops.span(name, cause_id(3, unit), 0.0)
        hops.close()
        kept.append({span.attributes["conclave.cause_id"] for span in exporter.get_finished_spans()})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 10


def test_off_nothing_is_told_and_debug_lines_alone_turn_it_on(capsys: pytest.CaptureFixture[str]) -> None:
    hops, before = open_hops("agent", "a", endpoint="", every=1), current_level()
    try:
        set_level("info")
        assert not hops.on
        hops.span("decide", "1-1", 0.0)
        hops.line("unit_judged", "1-1")
        assert "unit_judged" not in capsys.readouterr().out
        set_level("debug")
        assert hops.on
        hops.line("unit_judged", "1-1", agent="a")
        assert "cause_id" in capsys.readouterr().out
    finally:
        set_level(before)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"not installed; pip install 'conclave-scheduler\[otel\]'"):
        open_hops("agent", "a", endpoint="http://127.0.0.1:4318", every=1)


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="otel_endpoint: 'collector:4318' is not a URL"):
        open_hops("agent", "a", endpoint="collector:4318", every=1)
