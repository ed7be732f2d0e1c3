"""Long lists in pieces: ``limit`` and an opaque ``continue``, as the Kubernetes API does it.

The token names the last item that was given, so a list that changes meanwhile is neither repeated nor cut.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from heapq import nsmallest
from typing import Annotated, Any, TypeVar

import msgspec

from services.coordinator.api.routing import Schema
from shared.runtime.http import Refused

T = TypeVar("T")
K = TypeVar("K", int, str)

Limit = Annotated[int, msgspec.Meta(ge=1, le=500, description="Most items in one answer.")]
Token = Annotated[str, msgspec.Meta(max_length=1024, description="``continue`` of the last answer.")]


class PageQuery(Schema, frozen=True, kw_only=True):
    """Which piece of a list."""

    limit: Limit = 100
    continue_: Token = msgspec.field(default="", name="continue")


def page(keys: Iterable[K], query: PageQuery, kind: type[K]) -> tuple[list[K], str]:
    """(the next keys in order, ``continue`` of the answer). Refused: 400 for a token that we never gave."""
    after = token_key(query.continue_, kind) if query.continue_ else None
    rest = keys if after is None else (key for key in keys if key > after)
    found: list[Any] = nsmallest(query.limit + 1, rest)
    if len(found) <= query.limit:
        return found, ""
    return found[: query.limit], key_token(found[query.limit - 1])


def key_token(key: int | str) -> str:
    """The opaque form of the last key of a page."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def token_key(token: str, kind: type[K]) -> K:
    """The key in a token. Refused: 400 ``invalid_request``."""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise Refused(
            "continue: not a token of ours; leave it out to begin again", code="invalid_request", status=400
        ) from None
