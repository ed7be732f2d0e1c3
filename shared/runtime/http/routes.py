"""What a route of the admin API is: a row of data from which requests are checked, answered and documented.

The schemas are msgspec structs; the same ones decode bodies, encode answers and become the OpenAPI document, so that
what is documented is what is done. Handlers know no HTTP: they take an ``Ask`` and return a struct.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from shared.election.record import LeaderRecord
from shared.runtime.http.callers import Caller, Role
from shared.runtime.observe.metrics import Metrics

FRESH_S = 0.25
"""Of what the leader has in memory: a screen cannot tell, and a hundred readers cost as much as four a second."""

SLOW_FRESH_S = 1.0
"""Of long lists, and of what must be read from etcd. A change through this API shows at once (``caching.py``)."""

MAX_BODY_BYTES = 64 << 10
"""Of a route that does not say otherwise."""

EVENTS = "text/event-stream"
"""Media type of server-sent events: a stream of them may end anywhere."""

Q = TypeVar("Q")
B = TypeVar("B")

PRINTED = r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]*$"
"""Text that prints as what it is: no control characters, no line breaks, nothing that turns the writing."""

Reason = Annotated[str, msgspec.Meta(max_length=256, pattern=PRINTED, description="Why; goes into the audit log.")]


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what callers send: unknown fields are refused, since a misspelt one that is ignored is an accident."""


class RouteAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is answered. Readers must ignore fields that they do not know: versions may add some."""


class RoutePage(RouteAnswer, frozen=True, kw_only=True):
    """Base of lists. ``continue``: to be given with the next request; empty at the end."""

    continue_: str = msgspec.field(default="", name="continue")


class Because(Schema, frozen=True, kw_only=True):
    """The body of a change that takes no other argument. It may be left out."""

    reason: Reason = ""


class NoQuery(Schema, frozen=True, kw_only=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class Ask(Generic[Q, B]):
    """One request, checked against its route's schemas. ``path``: the variable parts of the path."""

    caller: Caller
    request_id: str
    path: Mapping[str, str]
    query: Q
    body: B
    last_event_id: str = ""
    """Of a reader of server-sent events that comes back (header ``Last-Event-ID``)."""


class Backend(Protocol):
    """The process whose admin API it is; handlers get it, as the type it is."""

    service_id: str
    metrics: Metrics

    @property
    def leads(self) -> bool:
        """Whether this process may answer for the mesh now."""
        ...

    @property
    def term(self) -> int:
        """The term in which it leads; 0 where it does not."""
        ...

    @property
    def leader(self) -> tuple[LeaderRecord, int] | None:
        """(record, term) of the leader as last seen: a hint."""
        ...

    @property
    def trouble(self) -> str:
        """Why nobody can lead, where that is known; else ""."""
        ...

    def changed(self) -> None:
        """A change was made: what it keeps for readers is true no more."""
        ...


Handler = Callable[[Any, Ask[Any, Any]], Awaitable[Any]]
StreamHandler = Callable[[Any, Ask[Any, Any]], AsyncGenerator[bytes, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table. Exactly one of ``handler`` and ``stream`` is given."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Any = None
    """What ``handler`` returns, or what a JSON stream adds up to."""
    handler: Handler | None = None
    stream: StreamHandler | None = None
    media_type: str = "application/json"
    query: type[Schema] = NoQuery
    body: type[Schema] | None = None
    body_bytes: int = MAX_BODY_BYTES
    """The largest body that is read."""
    errors: tuple[str, ...] = ()
    """Codes of what it refuses beyond what every route may."""
    local: bool = False
    """Answered by whoever is asked; all others by the leader."""
    fresh_s: float = FRESH_S
    """How old an answer may be, seconds. 0: made for each request, since it depends on the caller or is large."""
    cost: int = 1
    """Tokens of the caller's bucket: about how many milliseconds of the leader's loop it takes with 5,000 nodes."""
    spared: bool = False
    """Answered however late the leader's loop runs: it costs next to nothing, and is wanted most then."""
    audit_path: str = ""
    """The variable part of the path that names what is changed, for the audit log."""

    audit_target: Callable[[Any], str] | None = None
    """What a body changes, for the audit log, where the path does not name it; None: the route's last word."""

    @property
    def writes(self) -> bool:
        """Whether it changes anything: it is audited then, and its rate limit is another."""
        return self.method != "GET"

    @property
    def variables(self) -> list[str]:
        """Names of the variable parts of the path."""
        return re.findall(r"\{([a-z_]+)\}", self.path)

    def target(self, ask: Ask[Any, Any]) -> str:
        """What a request changes, for the audit log."""
        if self.audit_path:
            return ask.path[self.audit_path]
        return self.audit_target(ask.body) if self.audit_target is not None else self.path.split("/")[2]

    @property
    def name(self) -> str:
        """For metrics and the audit log."""
        return f"{self.method} {self.path}"


def row(method: str, path: str, role: Role, summary: str, handler: Callable[..., Any], **more: Any) -> Route:
    """The route of a handler: its annotations say what it answers, and which query and body its ``Ask`` holds (``Any``:
    none). One that yields bytes is a stream. ``more``: the other fields of the route."""
    hints = get_type_hints(handler)
    answer = hints.pop("return")
    query, body = next(get_args(kind) for kind in hints.values() if get_origin(kind) is Ask)
    if inspect.isasyncgenfunction(handler):
        more["stream"] = handler
    else:
        more |= {"handler": handler, "answer": answer}
    if query is not Any:
        more["query"] = query
    return Route(method=method, path=path, role=role, summary=summary, body=None if body is Any else body, **more)
