"""Node selectors over label columns (``component-helpers/scheduling/corev1/nodeaffinity``).

Each requirement is judged once per distinct label value, then taken by code for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared.model.constraints import PodClass, Requirement, SelectorTerm
from shared.scheduling.state.node_table import ABSENT, BoolArray, NodeTable


def selects_nodes(pod_class: PodClass) -> bool:
    """Whether the class has a ``nodeSelector`` or required node affinity."""
    return bool(pod_class.node_selector) or pod_class.affinity_terms is not None


def selected_mask(table: NodeTable, pod_class: PodClass) -> BoolArray:
    """``[rows]``: ``nodeSelector`` and at least one required term match."""
    passing = selector_mask(table, pod_class.node_selector)
    return passing if pod_class.affinity_terms is None else passing & terms_mask(table, pod_class.affinity_terms)


def node_matches(name: str, labels: Mapping[str, str], terms: tuple[SelectorTerm, ...]) -> bool:
    """Whether at least one term matches one node: what ``terms_mask`` says, without a table."""
    return any(
        (term.expressions or term.fields)
        and all(_holds_of(requirement, labels) for requirement in term.expressions)
        and all(_field_holds(requirement, name) for requirement in term.fields)
        for term in terms
    )


def _holds_of(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    if value is None:
        return requirement.operator in ("NotIn", "DoesNotExist")
    return _holds(requirement, value)


def _field_holds(requirement: Requirement, name: str) -> bool:
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return False
    return (name in requirement.values) == (requirement.operator == "In")


def selector_mask(table: NodeTable, selector: tuple[tuple[str, str], ...]) -> BoolArray:
    """``[rows]``: every ``key=value`` of a ``nodeSelector`` is among the node's labels."""
    passing = np.ones(table.rows, np.bool_)
    for key, value in selector:
        passing &= requirement_mask(table, Requirement(key, "In", (value,)))
    return passing


def terms_mask(table: NodeTable, terms: tuple[SelectorTerm, ...]) -> BoolArray:
    """``[rows]``: at least one term matches; no terms match nothing."""
    passing = np.zeros(table.rows, np.bool_)
    for term in terms:
        passing |= term_mask(table, term)
    return passing


def term_mask(table: NodeTable, term: SelectorTerm) -> BoolArray:
    """``[rows]``: all expressions and fields hold. A term without any matches nothing."""
    if not term.expressions and not term.fields:
        return np.zeros(table.rows, np.bool_)
    passing = np.ones(table.rows, np.bool_)
    for requirement in term.expressions:
        passing &= requirement_mask(table, requirement)
    for requirement in term.fields:
        passing &= _field_mask(table, requirement)
    return passing


def requirement_mask(table: NodeTable, requirement: Requirement) -> BoolArray:
    """``[rows]``: one expression over one label. NotIn and DoesNotExist hold where the label is absent."""
    negated = requirement.operator in ("NotIn", "DoesNotExist")
    codes = table.codes_of(requirement.key)
    if codes is None:
        return np.full(table.rows, negated, np.bool_)
    values = table.label_values[requirement.key]
    verdicts = np.zeros(len(values) + 1, np.bool_)  # the last one answers for ABSENT (-1)
    for value, code in values.items():
        verdicts[code] = _holds(requirement, value)
    verdicts[ABSENT] = negated
    return verdicts[codes]


def _holds(requirement: Requirement, value: str) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return True
        case "DoesNotExist":
            return False
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str) -> bool:
    """Gt and Lt compare as integers; anything that is none does not match."""
    try:
        actual, wanted = int(value), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return actual > wanted if requirement.operator == "Gt" else actual < wanted


def _field_mask(table: NodeTable, requirement: Requirement) -> BoolArray:
    """Fields: ``metadata.name`` with In or NotIn is the only one there is."""
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return np.zeros(table.rows, np.bool_)
    passing = np.zeros(table.rows, np.bool_)
    for name in requirement.values:
        passing[table.rows_named(name)] = True
    return ~passing if requirement.operator == "NotIn" else passing
