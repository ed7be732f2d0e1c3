"""Label selectors as immutable values that compare and hash (``apimachinery/pkg/apis/meta/v1``).

Refuses node selectors: those know Gt, Lt and fields, and are judged per column in ``scheduling.selectors``. A selector
that is absent is ``None`` here and matches nothing; one without requirements matches everything.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shared.model.constraints import Requirement


class LabelSelector(Struct, frozen=True, array_like=True, gc=False):
    """``requirements``: In, NotIn, Exists and DoesNotExist, all of which must hold; sorted, so that equal selectors
    are equal values."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether every requirement holds; NotIn and DoesNotExist hold where the key is absent."""
        return all(_holds(requirement, labels.get(requirement.key)) for requirement in self.requirements)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether ``selector`` matches; an absent one matches nothing."""
    return selector is not None and selector.matches(labels)


def selector_of_labels(labels: Mapping[str, str]) -> LabelSelector:
    """The selector that asks for each of ``labels``."""
    return LabelSelector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))


def both(first: LabelSelector, second: LabelSelector) -> LabelSelector:
    """The selector that matches where both do."""
    return LabelSelector(tuple(sorted({*first.requirements, *second.requirements}, key=_order)))


def _order(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return requirement.key, requirement.operator, requirement.values


def canonical(requirements: list[Requirement]) -> LabelSelector:
    """The selector of ``requirements`` in any order."""
    return LabelSelector(tuple(sorted(requirements, key=_order)))


def _holds(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None
