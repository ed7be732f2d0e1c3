"""Log lines: one JSON object each, bounded in length and in number."""

from __future__ import annotations

import io
import logging as stdlib_logging
from collections.abc import Iterator

import msgspec
import pytest
import structlog
from aiohttp.http_exceptions import BadHttpMessage

from shared.runtime.observe.logging import MAX_VALUE_CHARS, TAIL_LINE_CHARS, LogTail, RateLimit, configure, log_always


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


def test_standard_error_is_the_one_of_each_line(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    first = io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    configure("agent")
    log = structlog.get_logger()
    log.info("before")
    monkeypatch.setattr("sys.stderr", stream)
    first.close()
    log.info("after")
    assert [line["event"] for line in lines(stream)] == ["after"]


def test_other_peoples_text_cannot_forge_a_line(stream: io.StringIO):
    configure("agent", stream=stream)
    structlog.get_logger().info("label_seen", label='x\n{"event":"forged"}')
    assert len(lines(stream)) == 1


def test_other_peoples_text_cannot_steer_a_terminal(stream: io.StringIO):
    configure("agent", stream=stream, json=False)
    structlog.get_logger().info("label_seen", label="a\x1b]0;owned\x07\x1b[2J", annotation="x\r\nforged line")
    text = stream.getvalue()
    assert "\x1b]0" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert text.count("\n") == 1


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


def test_a_change_by_an_operator_cannot_hide_behind_others(stream: io.StringIO):
    configure("coordinator", stream=stream, rate_limit=RateLimit(burst=3, per_s=1.0, now=lambda: 0.0))
    for number in range(100):
        structlog.get_logger().info("admin_change", target=f"n{number}")
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


@pytest.mark.parametrize(
    ("error", "level", "told"),
    [
        (BadHttpMessage("no\nHTTP"), "warning", ("reason",)),
        (ConnectionResetError("gone"), "debug", ("reason",)),
        (RuntimeError("ours"), "error", ("traceback",)),
    ],
)
def test_only_what_is_broken_here_is_an_error_with_its_traceback(
    stream: io.StringIO, error: Exception, level: str, told: tuple[str, ...]
) -> None:
    configure("coordinator", stream=stream, level="debug")
    stdlib_logging.getLogger("aiohttp.server").error("Error handling request", exc_info=error)
    (line,) = lines(stream)
    assert line["level"] == level
    assert tuple(key for key in ("reason", "traceback") if key in line) == told


def test_below_the_level_nothing_is_written(stream: io.StringIO):
    configure("agent", stream=stream, level="warning")
    structlog.get_logger().info("service_ready")
    assert stream.getvalue() == ""


def test_a_change_by_an_operator_is_written_at_any_level(stream: io.StringIO):
    configure("coordinator", stream=stream, level="error")
    structlog.get_logger().info("admin_change")
    assert stream.getvalue() == "", "the level holds for what does not ask to be written always"
    log_always("admin_change", by="anna")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["by"], line["service"]) == (
        "admin_change",
        "info",
        "anna",
        "coordinator",
    )


def test_the_last_lines_are_kept_as_they_were_written(stream: io.StringIO):
    tail = LogTail(lines=2)
    configure("agent", stream=stream, tail=tail)
    for number in range(3):
        structlog.get_logger().info("plan_committed", number=number)
    assert tail.lines() == stream.getvalue().splitlines()[1:]
    tail.keep("x" * 10_000)
    assert len(tail.lines()[-1]) == TAIL_LINE_CHARS
