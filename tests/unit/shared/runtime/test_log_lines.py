"""Log lines: one JSON object each, bounded in length and in number."""

from __future__ import annotations

import io
import logging as stdlib_logging
from collections.abc import Iterator

import msgspec
import pytest
import structlog

from shared.runtime.logging import MAX_VALUE_CHARS, RateLimit, configure


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = stdlib_logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_time_level_event_and_service(stream: io.StringIO):
    configure("agent", stream=stream)
    structlog.get_logger().info("plan_committed", pod_uid="u", term=7)
    (line,) = lines(stream)
    assert list(line)[:3] == ["time", "level", "event"]
    assert (line["event"], line["service"], line["term"]) == ("plan_committed", "agent", 7)


def test_other_peoples_text_cannot_forge_a_line(stream: io.StringIO):
    configure("agent", stream=stream)
    structlog.get_logger().info("label_seen", label='x\n{"event":"forged"}')
    assert len(lines(stream)) == 1


def test_long_values_are_cut(stream: io.StringIO):
    configure("agent", stream=stream)
    structlog.get_logger().info("label_seen", label="x" * 10_000)
    assert len(str(lines(stream)[0]["label"])) == MAX_VALUE_CHARS


def test_a_storm_of_one_event_is_held_back_counted_and_does_not_silence_others(stream: io.StringIO):
    now = [0.0]
    configure("agent", stream=stream, rate_limit=RateLimit(burst=3, per_s=1.0, now=lambda: now[0]))
    log = structlog.get_logger()
    for _ in range(100):
        log.warning("plan_refused")
    log.warning("leader_changed")
    now[0] = 1.5
    log.warning("plan_refused")
    assert [line["event"] for line in lines(stream)] == ["plan_refused"] * 3 + ["leader_changed", "plan_refused"]
    assert lines(stream)[-1]["suppressed"] == 97


def test_without_the_limit_a_storm_is_written_whole(stream: io.StringIO):
    """Ablation of the test above."""
    configure("agent", stream=stream, rate_limit=RateLimit(burst=1000))
    for _ in range(100):
        structlog.get_logger().warning("plan_refused")
    assert len(lines(stream)) == 100


def test_errors_are_text_and_tracebacks_only_where_asked(stream: io.StringIO):
    configure("agent", stream=stream)
    structlog.get_logger().warning("watch_broken", error=ValueError("why"))
    assert lines(stream)[0]["error"] == "ValueError: why"
    assert "traceback" not in lines(stream)[0]


def test_lines_of_libraries_come_through(stream: io.StringIO):
    configure("agent", stream=stream)
    stdlib_logging.getLogger("aiohttp.server").error("broken %s", "pipe")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["message"]) == ("library_logged", "aiohttp.server", "broken pipe")


def test_below_the_level_nothing_is_written(stream: io.StringIO):
    configure("agent", stream=stream, level="warning")
    structlog.get_logger().info("service_ready")
    assert stream.getvalue() == ""
