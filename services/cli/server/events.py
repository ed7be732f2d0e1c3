"""Server-sent events (WHATWG HTML, 9.2.6) from bytes as they come. Pure; bounded by the length of one event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_EVENT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``data`` lines are joined by a newline."""

    kind: str
    data: str
    id: str = ""


@dataclass(slots=True)
class EventParser:
    """``feed`` it what arrives; it gives the events that are whole. ``ValueError``: an event beyond all bounds."""

    _rest: bytes = b""
    _kind: str = ""
    _id: str = ""
    _data: list[str] = field(default_factory=list)
    _held: int = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that ``data`` completes. Comments (heartbeats) and unknown fields are left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError("an event is longer than any there should be")
        for line in lines:
            event = self._line(line.rstrip(b"\r").decode(errors="replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            event = Event(self._kind or "message", "\n".join(self._data), self._id) if self._data else None
            self._kind, self._data, self._held = "", [], 0
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        elif name == "data":
            self._held += len(value)
            if self._held > MAX_EVENT_BYTES:
                raise ValueError("an event is longer than any there should be")
            self._data.append(value)
        return None
