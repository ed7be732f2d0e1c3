"""Label selectors in queries, as kubectl's -l writes them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from services.coordinator.http.answers import refusal
from shared.kube.label_selectors import LabelSelector, SelectorError, parse_label_selector

_KEY, _VALUE = "[a-z][a-z0-9-]{0,60}[a-z0-9]/[a-z]{3,9}", "[a-z0-9]{1,63}"
_REQUIREMENT = rf"({_KEY}(=|==|!=){_VALUE}|!?{_KEY}|{_KEY} (in|notin) \({_VALUE}(,{_VALUE})*\))"
SELECTOR = rf"^({_REQUIREMENT}(,{_REQUIREMENT})*)?$"
"""The form that is promised; all that kubectl takes is read."""

Selector = Annotated[
    str, msgspec.Meta(max_length=2048, description="As kubectl's -l.", extra_json_schema={"pattern": SELECTOR})
]


def selector_of(text: str) -> LabelSelector | None:
    """The selector of a query; None for none. Refused: 400 ``invalid_request``."""
    try:
        return parse_label_selector(text) if text.strip() else None
    except SelectorError as error:
        raise refusal(f"selector: {error}; write it as a=b,c!=d,e in (f,g),!h") from None
