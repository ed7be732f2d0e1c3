"""Structured logs: one JSON object per line on stderr, or readable text on a terminal.

Event names are constants of the form ``noun_verb``; facts are keys. A name that repeats too fast is held back and
counted, so a storm of refusals cannot fill a disk or the CPU (I10); errors of the stdlib's and aiohttp's loggers come
through here too. The level can be changed while running. It refuses f-string messages by convention and long values
by cutting them.
"""

from __future__ import annotations

import logging as stdlib_logging
import sys
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

LEVELS = ("debug", "info", "warning", "error")
"""Levels that a process can be set to."""

NEVER_HELD_BACK = frozenset({"admin_change"})
"""Events that pass the rate limit: who changes much must not be able to hide a change behind others."""

MAX_VALUE_CHARS = 1024
"""A longer text value is cut: labels, annotations and API bodies are other people's text."""


TAIL_LINES = 500
TAIL_LINE_CHARS = 2048


class LogTail:
    """The last lines of a log, for dumps: as they were written, after secrets and long values were cut."""

    def __init__(self, lines: int = TAIL_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=lines)

    def keep(self, line: str) -> None:
        """One rendered line, of which ``TAIL_LINE_CHARS`` are kept."""
        self._lines.append(line[:TAIL_LINE_CHARS])

    def lines(self) -> list[str]:
        """Oldest first."""
        return list(self._lines)


TAIL = LogTail()
"""Of this process's log."""


class RateLimit:
    """A token bucket per event name: ``burst`` at once, then ``per_s``. What was held back is told by the next line.

    ``now`` gives monotonic seconds. Lines of level critical pass
    always, and so do changes by operators, which the admin API bounds itself.
    """

    def __init__(self, *, burst: int = 50, per_s: float = 5.0, now: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._per_s = per_s
        self._now = now
        self._buckets: dict[str, list[float]] = {}

    def __call__(self, _: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """A structlog processor."""
        name = str(event.get("event", ""))[:64]
        if method == "critical" or name in NEVER_HELD_BACK:
            return event
        now = self._now()
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= 1024:  # event names are constants; this guards against one that is not
                self._buckets.clear()
            bucket = self._buckets[name] = [float(self._burst), now, 0.0]
        tokens = min(self._burst, bucket[0] + (now - bucket[1]) * self._per_s)
        bucket[1] = now
        if tokens < 1.0:
            bucket[0] = tokens
            bucket[2] += 1
            raise structlog.DropEvent
        bucket[0] = tokens - 1.0
        if bucket[2]:
            event["suppressed"] = int(bucket[2])
            bucket[2] = 0.0
        return event


class _StandardError:
    """``sys.stderr`` as it is at each line: who called a service or a command in its own process, as tests do, may have
    put another there meanwhile and closed the one before."""

    @staticmethod
    def write(text: str) -> int:
        return sys.stderr.write(text)

    @staticmethod
    def flush() -> None:
        sys.stderr.flush()

    @staticmethod
    def isatty() -> bool:
        return sys.stderr.isatty()


_STANDARD_ERROR = cast("TextIO", _StandardError())


def configure(
    service: str,
    *,
    level: str = "info",
    json: bool | None = None,
    stream: TextIO | None = None,
    rate_limit: RateLimit | None = None,
    tail: LogTail | None = None,
) -> None:
    """Set up structlog and bridge the stdlib's loggers into it. ``json`` None: JSON unless ``stream`` is a terminal.

    Call once, in ``__main__``. ``service`` is a key of every line; ``tail`` keeps the last ones.
    """
    stream = stream if stream is not None else _STANDARD_ERROR
    as_json = json if json is not None else not stream.isatty()
    set_level(level)
    renderer = cast("structlog.typing.Processor", render_json if as_json else structlog.dev.ConsoleRenderer())
    structlog.configure(
        processors=[
            _Service(service),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            rate_limit if rate_limit is not None else RateLimit(),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _errors_as_text,
            *(() if as_json else (_printable,)),
            renderer if tail is None else _Tee(renderer, tail),
        ],
        wrapper_class=_LiveLogger,
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    root = stdlib_logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(stdlib_logging.WARNING)


def set_level(level: str) -> None:
    """Log from ``level`` on; at once, for every logger of the process. ``KeyError``: no such level."""
    threshold = stdlib_logging.getLevelNamesMapping()[level.upper()]
    # what is below the level must cost nothing: structlog's classes have empty methods there, and we put those in
    source = structlog.make_filtering_bound_logger(threshold)
    for name in _LEVEL_METHODS:
        setattr(_LiveLogger, name, getattr(source, name))
    _LiveLogger.threshold = threshold


def current_level() -> str:
    """The level that is logged from on now."""
    return stdlib_logging.getLevelName(_LiveLogger.threshold).lower()


def log_always(event: str, **facts: Any) -> None:
    """One line of level info, whatever the level is: for what must not be hidden by setting it."""
    logger = structlog.get_logger().bind()
    logger._proxy_to_logger("info", event, **facts)  # noqa: SLF001  structlog's own hook for methods of one's own


def debugs() -> bool:
    """Whether debug lines are logged: ask before anything is put together for one."""
    return _LiveLogger.threshold <= stdlib_logging.DEBUG


class _LiveLogger(structlog.make_filtering_bound_logger(stdlib_logging.INFO)):  # type: ignore[misc]  # made at run time
    """The bound logger of every module; its methods are exchanged by ``set_level``, so that cached ones follow too."""

    threshold: int = stdlib_logging.INFO


_LEVEL_METHODS = tuple(
    name
    for name in dir(_LiveLogger)
    if name.removeprefix("a") in {"debug", "info", "warning", "warn", "error", "critical", "exception", "fatal", "log"}
)


class _Tee:
    """Renders a line and keeps a copy."""

    def __init__(self, renderer: structlog.typing.Processor, tail: LogTail) -> None:
        self._renderer = renderer
        self._tail = tail

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> Any:
        line = self._renderer(logger, method, event)
        self._tail.keep(str(line))
        return line


class _Service:
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["service"] = self._name
        return event


def render_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    """One line of JSON, ``time``, ``level`` and ``event`` first."""
    head = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    return msgspec.json.encode({**head, **event}, enc_hook=_as_text).decode()


def _as_text(value: Any) -> str:
    return str(value)[:MAX_VALUE_CHARS]


def _errors_as_text(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Exceptions become ``Type: text``; a traceback only where ``exc_info`` asks for it."""
    exc_info = event.pop("exc_info", None)
    if exc_info:
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
        if error is not None:
            import traceback

            event["traceback"] = "".join(traceback.format_exception(error))[-8 * MAX_VALUE_CHARS :]
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = f"{type(value).__name__}: {value}"[:MAX_VALUE_CHARS]
        elif isinstance(value, str) and len(value) > MAX_VALUE_CHARS and key != "traceback":
            event[key] = value[:MAX_VALUE_CHARS]
    return event


def _printable(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """For a terminal: other people's text must not move its cursor, ring or hide lines. JSON escapes by itself."""
    for key, value in event.items():
        if isinstance(value, str) and key != "traceback" and not value.isprintable():
            event[key] = value.encode("unicode_escape").decode("ascii")
    return event


MAX_REASON_CHARS = 200


def _is_callers_doing(error: BaseException) -> bool:
    """Whoever connected has gone in the middle, or speaks no HTTP: nothing of ours is broken, and strangers must not
    fill the log with tracebacks."""
    return isinstance(error, ConnectionError) or type(error).__module__ == "aiohttp.http_exceptions"


class _Bridge(stdlib_logging.Handler):
    """Lines of the stdlib's loggers (asyncio, aiohttp, kubernetes) as events named ``library_logged``."""

    def emit(self, record: stdlib_logging.LogRecord) -> None:
        facts: MutableMapping[str, Any] = {"logger": record.name, "message": record.getMessage()}
        level = "error" if record.levelno >= stdlib_logging.ERROR else "warning"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and record.name == "aiohttp.server" and _is_callers_doing(error):
            level = "debug" if isinstance(error, ConnectionError) else "warning"
            facts["reason"] = " ".join(str(error).split())[:MAX_REASON_CHARS]
        elif error is not None:
            facts["exc_info"] = error
        getattr(structlog.get_logger(), level)("library_logged", **facts)
