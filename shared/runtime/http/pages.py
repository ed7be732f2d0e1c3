"""Long lists in pieces: ``limit`` and an opaque ``continue``, as the Kubernetes API does it; label selectors as
kubectl has them.

The token names the last item that was given, so a list that changes meanwhile is neither repeated nor cut.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from heapq import nsmallest
from typing import Annotated, Any, TypeVar

import msgspec

from shared.kube.label_selectors import ParsedSelector, SelectorError, parse_label_selector
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import Schema

T = TypeVar("T")
K = TypeVar("K", int, str)

Limit = Annotated[int, msgspec.Meta(ge=1, le=500, description="Most items in one answer.")]
TOLD = "``continue`` of the last answer."
NAME_PLACE = r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?$"
NUMBER_PLACE = r"^(-?[0-9]{1,18})?$"
"""Whatever fits is a place in the list, so that a document of this API promises nothing that is refused."""

# the pattern is for the document; who sends something else is told what to do about it
NameToken = Annotated[str, msgspec.Meta(max_length=1024, description=TOLD, extra_json_schema={"pattern": NAME_PLACE})]
NumberToken = Annotated[str, msgspec.Meta(max_length=19, description=TOLD, extra_json_schema={"pattern": NUMBER_PLACE})]


class PageQuery(Schema, frozen=True, kw_only=True):
    """Which piece of a list."""

    limit: Limit = 100
    continue_: NameToken = msgspec.field(default="", name="continue")


class NumberedPageQuery(Schema, frozen=True, kw_only=True):
    """Which piece of a list that is in order of numbers."""

    limit: Limit = 100
    continue_: NumberToken = msgspec.field(default="", name="continue")


def page(keys: Iterable[K], query: PageQuery | NumberedPageQuery, kind: type[K]) -> tuple[list[K], str]:
    """(the next keys in order, ``continue`` of the answer). Refused: 400 for a token that we never gave."""
    after = token_key(query.continue_, kind) if query.continue_ else None
    rest = keys if after is None else (key for key in keys if key > after)
    found: list[Any] = nsmallest(query.limit + 1, rest)
    if len(found) <= query.limit:
        return found, ""
    return found[: query.limit], key_token(found[query.limit - 1])


def key_token(key: int | str) -> str:
    """The form in which the last key of a page is told."""
    if isinstance(key, int):
        return str(key)
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def token_key(token: str, kind: type[K]) -> K:
    """The key in a token. Refused: 400 ``invalid_request``."""
    if not re.fullmatch(NUMBER_PLACE if kind is int else NAME_PLACE, token):
        raise RequestRefused("continue: not a token of ours; leave it out to begin again", code="invalid_request")
    if kind is int:
        return kind(token)
    # bytes that are no text are a place like any other
    return kind(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode(errors="replace"))


_KEY, _VALUE = "[a-z][a-z0-9-]{0,60}[a-z0-9]/[a-z]{3,9}", "[a-z0-9]{1,63}"
_REQUIREMENT = rf"({_KEY}(=|==|!=){_VALUE}|!?{_KEY}|{_KEY} (in|notin) \({_VALUE}(,{_VALUE})*\))"
SELECTOR = rf"^({_REQUIREMENT}(,{_REQUIREMENT})*)?$"
"""The form that is promised; all that kubectl takes is read."""

Selector = Annotated[
    str, msgspec.Meta(max_length=2048, description="As kubectl's -l.", extra_json_schema={"pattern": SELECTOR})
]


def selector_of(text: str) -> ParsedSelector | None:
    """The selector of a query; None for none. Refused: 400 ``invalid_request``."""
    try:
        return parse_label_selector(text) if text.strip() else None
    except SelectorError as error:
        raise RequestRefused(f"selector: {error}; write it as a=b,c!=d,e in (f,g),!h", code="invalid_request") from None
