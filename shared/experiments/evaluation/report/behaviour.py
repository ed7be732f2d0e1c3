"""The part of a report that says what a policy does beside a baseline, in words and tables."""

from __future__ import annotations

from html import escape

from shared.experiments.evaluation.behaviour.behaviour import RANK, SITUATION, Behaviour, Group
from shared.experiments.evaluation.report.markup import number, table

FEW, MOST = 0.35, 0.65
"""Fullness ranks below and above which a node is called emptier or fuller than most."""

LEGEND = (
    "<p class=soft>Decisions in groups of like situations (k-means), those that agree least first. A rank of 0 is the"
    " emptiest candidate, 1 the fullest.</p>"
)


def behaviour_section(found: Behaviour) -> str:
    """Agreement, the groups of decisions, and what the policy's own run costs."""
    policy, baseline = escape(found.policy), escape(found.baseline)
    agreement = f"{found.agreement:.1%} fall on a node that {baseline} scores highest too"
    regret = f"{baseline} scores its choices {number(found.regret)} points below its own best ones on average"
    parts = [
        f"<h2>What {policy} does</h2>",
        f"<p>Of {found.decisions} decisions, {agreement}; {regret}.</p>",
        LEGEND,
        _groups(found),
    ]
    if found.costs:
        rows = [
            (escape(name), number(own), number(other), number(own - other))
            for name, (own, other) in found.costs.items()
        ]
        parts.append(f"<h3>What it costs beside {baseline}, on the same arrivals</h3>")
        parts.append(table(("Figure", policy, baseline, "Difference"), rows, numbers=(1, 2, 3)))
    return "".join(parts)


def _groups(found: Behaviour) -> str:
    rows = [
        (
            str(group.count),
            f"{group.agreement:.0%}",
            _in_words(group, found.baseline),
            *(number(value) for value in group.means),
            number(group.baseline_rank),
        )
        for group in found.groups
    ]
    head = ("Decisions", "Agreement", "In words", *(escape(name) for name in SITUATION), "rank of the baseline's node")
    return table(head, rows, numbers=(0, 1, *range(3, len(head))))


def _in_words(group: Group, baseline: str) -> str:
    own, other = _fullness(group.means[RANK]), _fullness(group.baseline_rank)
    return escape(f"takes {own}, as {baseline} does" if own == other else f"takes {own}, {baseline} takes {other}")


def _fullness(rank: float) -> str:
    return "emptier nodes" if rank < FEW else "fuller nodes" if rank > MOST else "nodes of middling fullness"
