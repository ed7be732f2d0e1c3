"""Terms over the labels and names of nodes, as immutable values that compare and hash. They travel in offers."""

from __future__ import annotations

from msgspec import Struct


class Requirement(Struct, frozen=True, array_like=True, gc=False):
    """One expression over a label or field; ``operator``: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorTerm(Struct, frozen=True, array_like=True, gc=False):
    """All of ``expressions`` (labels) and ``fields`` (metadata.name) must hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredTerm(Struct, frozen=True, array_like=True, gc=False):
    """``weight`` 1-100 is added where ``term`` matches."""

    weight: int
    term: SelectorTerm
