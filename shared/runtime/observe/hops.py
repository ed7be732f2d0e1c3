"""The way of one unit through the services, told twice: as debug lines, and as OpenTelemetry spans where asked for.

Every hop names the unit by its ``cause_id``, the coordinator's term and the unit's number in hex (``1a-3f``): the same
key in every service's log, in the Binding's annotation, and as trace id (term and number, 64 bits each). So one query
shows every hop of one pod, and a trace is found from a log line without an index. The spans of one trace::

    schedule (coordinator: first seen to bound)
    +-- offer (coordinator: first offer to plan)
    |   +-- decide (agent)
    +-- plan (coordinator: plan handed over to answered)
        +-- commit (binder: the intent's transaction)
        +-- bind (binder: the Binding call)

All span ids follow from the cause id, so that no message has to carry any. Off (``otel_endpoint`` empty, log level
above debug) a hop costs one comparison. It refuses to tell what is in a pod: its uid, its name and its node are all.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import structlog

from shared.errors import ConfigError
from shared.runtime.observe.logging import debugs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = structlog.get_logger()

PARENTS = {"schedule": "", "offer": "schedule", "decide": "offer", "plan": "schedule", "commit": "plan", "bind": "plan"}
"""Every span there is, and the one it belongs to."""

EXPORT_TIMEOUT_S = 2.0
CLOSE_S = 1.0
"""So long an ending process waits for its last spans; a collector that is away must not delay a hand-over."""

WORD = (1 << 64) - 1


def trace_id(cause: str) -> int:
    """128 bits: term, then number."""
    term, _, unit = cause.partition("-")
    return (int(term, 16) & WORD) << 64 | (int(unit, 16) & WORD)


def span_id(cause: str, name: str) -> int:
    """64 bits, never 0, for the one span of this name in a trace; Fibonacci hashing spreads small numbers."""
    place = list(PARENTS).index(name) + 1
    return ((trace_id(cause) & WORD) * 8 + place) * 0x9E3779B97F4A7C15 & WORD or 1


class Hops:
    """Tells hops. ``tracer`` None: as debug lines only. ``every``: one unit in so many is traced."""

    def __init__(self, tracer: Tracer | None = None, *, every: int = 1) -> None:
        self._tracer = tracer
        self._every = every

    @property
    def on(self) -> bool:
        """Whether anybody listens; ask before anything is put together for ``line`` or ``span``."""
        return self._tracer is not None or debugs()

    def line(self, event: str, cause: str, **facts: Any) -> None:
        """A debug line."""
        if debugs():
            log.debug(event, cause_id=cause, **facts)

    def span(self, name: str, cause: str, took_s: float, **facts: str | int | float | bool) -> None:
        """A span that ends now."""
        if self._tracer is not None and int(cause.rpartition("-")[2], 16) % self._every == 0:
            self._tracer.emit(name, cause, took_s, facts)

    def close(self) -> None:
        """Send what is left, for a moment at most."""
        if self._tracer is not None:
            self._tracer.close()


class Tracer:
    """Spans to a collector, in batches and from a thread of its own; what it cannot take is dropped."""

    def __init__(self, service: str, instance: str, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self._ids = _known_ids()
        about = {"service.name": f"conclave-{service}", "service.instance.id": instance}
        self._provider: TracerProvider = TracerProvider(
            sampler=ALWAYS_ON, resource=Resource(about), id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("conclave")

    def emit(self, name: str, cause: str, took_s: float, facts: dict[str, str | int | float | bool]) -> None:
        """One span that ended just now."""
        from opentelemetry import trace

        ended_ns = time.time_ns()
        trace_of, parent = trace_id(cause), PARENTS[name]
        context = None
        self._ids.trace = trace_of
        # several agents decide about one unit: their spans belong together and need ids of their own
        self._ids.span = span_id(cause, name) if name != "decide" else None
        if parent:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            about = trace.SpanContext(trace_of, span_id(cause, parent), is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(about))
        attributes = {"conclave.cause_id": cause, **{f"conclave.{key}": value for key, value in facts.items()}}
        started_ns = ended_ns - max(0, int(took_s * 1e9))
        span = self._tracer.start_span(name, context or _nowhere(), attributes=attributes, start_time=started_ns)
        span.end(ended_ns)

    def close(self) -> None:
        """Flush in a thread that nobody waits for longer than ``CLOSE_S``."""
        closing = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        closing.start()
        closing.join(CLOSE_S)


def open_hops(service: str, instance: str, *, endpoint: str, every: int) -> Hops:
    """What the settings ask for. ``ConfigError``: the extra ``otel`` is not installed, or the endpoint is no URL."""
    if not endpoint:
        return Hops()
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"otel_endpoint: {endpoint!r} is not a URL such as http://collector:4318")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigError(
            "otel_endpoint: OpenTelemetry is not installed; pip install 'conclave-scheduler[otel]', "
            "or leave --otel-endpoint out"
        ) from error
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
    return Hops(Tracer(service, instance, exporter), every=every)


def _nowhere() -> Any:
    from opentelemetry.context import Context

    return Context()


def _known_ids() -> Any:
    """An id generator that gives what it was told, and else draws."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class KnownIds(RandomIdGenerator):
        trace = 1
        span: int | None = None

        def generate_trace_id(self) -> int:
            return self.trace

        def generate_span_id(self) -> int:
            return self.span if self.span is not None else super().generate_span_id()

    return KnownIds()
