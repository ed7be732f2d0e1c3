"""Bounded numbers and texts that messages are made of: what is beyond them is refused when a message is decoded.

Not its job: bounds of one message's lists (they stand beside it), scores (``messages.py``).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_COUNT = 2**53 - 1
MAX_FEATURE = 1e9

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Text = Annotated[str, Meta(max_length=253)]
LongText = Annotated[str, Meta(max_length=1024)]
Feature = Annotated[float, Meta(ge=-MAX_FEATURE, le=MAX_FEATURE)]
