"""Conditions of a status, as ``meta/v1`` has them: what each must say.

Source: apimachinery ``pkg/apis/meta/v1/validation`` (ValidateConditions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from twin.kinds.rules.names import check, qualified_name
from twin.registry.status import FieldError, duplicate, invalid, not_supported, required, too_long

Json = dict[str, Any]

_STATUSES = ("False", "True", "Unknown")
_MAX_REASON, _MAX_MESSAGE = 1024, 32768
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def check_conditions(conditions: Iterable[Json], field: str) -> list[FieldError]:
    """ValidateConditions of ``meta/v1``."""
    found: list[FieldError] = []
    types: set[str] = set()
    for index, one in enumerate(conditions):
        where, type_, reason = f"{field}[{index}]", one.get("type", ""), one.get("reason", "")
        if type_ in types:
            found.append(duplicate(f"{where}.type", type_))
        types.add(type_)
        found += check(f"{where}.type", type_, qualified_name)
        if one.get("status", "") not in _STATUSES:
            found.append(not_supported(f"{where}.status", one.get("status", ""), _STATUSES))
        if (one.get("observedGeneration") or 0) < 0:
            text = "must be greater than or equal to zero"
            found.append(invalid(f"{where}.observedGeneration", one["observedGeneration"], text))
        if not one.get("lastTransitionTime"):
            found.append(required(f"{where}.lastTransitionTime"))
        if not reason:
            found.append(required(f"{where}.reason"))
        elif not _REASON.fullmatch(reason):
            found.append(invalid(f"{where}.reason", reason, _REASON_TEXT))
        if len(reason) > _MAX_REASON:
            found.append(too_long(f"{where}.reason", _MAX_REASON))
        if len(one.get("message") or "") > _MAX_MESSAGE:
            found.append(too_long(f"{where}.message", _MAX_MESSAGE))
    return found
