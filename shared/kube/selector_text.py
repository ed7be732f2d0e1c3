"""Label selectors as kubectl's ``-l`` writes them: ``k=v``, ``k!=v``, ``k``, ``!k``, ``k in (a,b)``, ``k notin (a,b)``.

Pure: text in, ``LabelSelector`` out. A bad one raises ``ValueError`` with the part that cannot be read.
"""

from __future__ import annotations

import re

from shared.model.constraints import Requirement
from shared.model.labels import LabelSelector, canonical

MOST_REQUIREMENTS = 32

_KEY = r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")


def selector_from_text(text: str) -> LabelSelector:
    """The selector; an empty text selects everything. ``ValueError``: what cannot be read."""
    # commas inside parentheses divide values, not requirements
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text)] if text.strip() else []
    if len(parts) > MOST_REQUIREMENTS:
        raise ValueError(f"{len(parts)} requirements, at most {MOST_REQUIREMENTS} are read")
    return canonical([_requirement(part) for part in parts])


def _requirement(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = tuple(sorted({value.strip() for value in found[3].split(",")}))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(found[1], "In" if found[2] == "in" else "NotIn", values)
    elif found := _EQUAL.fullmatch(part):
        return Requirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],))
    elif found := _EXISTS.fullmatch(part):
        return Requirement(found[2], "DoesNotExist" if found[1] else "Exists")
    raise ValueError(f"{part[:64]!r} is no requirement; write k=v, k!=v, k, !k, k in (a,b) or k notin (a,b)")
