"""Label selectors over plain JSON, for those who must not share code with the scheduler: audit, invariants, the twin.

Source: ``apimachinery/pkg/apis/meta/v1/helpers.go``, ``pkg/labels/selector.go``. It does not take node selectors, which
know Gt, Lt and fields (``audit_rules``), and operators that the API server would not have accepted match nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector matches: an absent one nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(requirement, labels) for requirement in selector.get("matchExpressions") or ())


def is_empty(selector: Json | None) -> bool:
    """Whether it is there and asks for nothing."""
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    value, given = labels.get(requirement.get("key", "")), requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return value is not None and value in given
        case "NotIn":
            return value is None or value not in given
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
