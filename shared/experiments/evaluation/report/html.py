"""An evaluation as one HTML page that needs no other file: no script, no font, no image from outside.

Pure: results in, text out. Every text that comes in is escaped. Colours follow the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape

from shared.experiments.evaluation.behaviour.behaviour import Behaviour
from shared.experiments.evaluation.report import svg
from shared.experiments.evaluation.report.behaviour import behaviour_section
from shared.experiments.evaluation.report.curves import Curves
from shared.experiments.evaluation.report.markup import number, table
from shared.experiments.evaluation.results import Goal, Metric, Paired, SuiteResult

SIGNIFICANT_P = 0.01
"""What the targets ask of a paired difference."""

FEW_FIGURES = 12
"""Up to so many figures are all drawn, and so many groups all shown; of more, those that goals speak of."""

STYLE = """
:root { color-scheme: light dark; --text: #1d2126; --soft: #5c6670; --line: #d7dce1; --page: #fcfcfb; --good: #19733b;
  --bad: #b3261e; --s0: #2563ab; --s1: #c2571a; --s2: #2f7d4f; --s3: #8a4fb0; --s4: #a8862a; --s5: #b53f6b }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7ea; --soft: #9aa5b0; --line: #363d45; --page: #15181c;
  --good: #6fcf8f; --bad: #ff8a80; --s0: #7db3ee; --s1: #f0a06a; --s2: #7fcb9c; --s3: #c79be6; --s4: #dcc06e;
  --s5: #ee92b3 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } h3 { font-size: 1rem; margin-bottom: .3rem }
table { border-collapse: collapse; margin: .6rem 0; display: block; overflow-x: auto }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
code { font-size: .87em; overflow-wrap: anywhere } .soft { color: var(--soft) }
.met { color: var(--good); font-weight: 600 } .unmet { color: var(--bad); font-weight: 600 }
summary { cursor: pointer; font-weight: 600; margin: .4rem 0 }
svg { display: block; width: 100%; max-width: 40rem; height: auto; color: var(--soft); margin: .4rem 0 }
svg text { fill: currentColor; font: 12px system-ui, sans-serif } .grid { stroke: var(--line) }
.s0 { --c: var(--s0) } .s1 { --c: var(--s1) } .s2 { --c: var(--s2) } .s3 { --c: var(--s3) } .s4 { --c: var(--s4) }
.s5 { --c: var(--s5) }
.dot { fill: var(--c); fill-opacity: .65 } .band { fill: var(--c); fill-opacity: .22 }
.mean { stroke: var(--c); stroke-width: 2.5 } .curve { fill: none; stroke: var(--c); stroke-width: 1.8 }
"""


def render(result: SuiteResult, *, curves: Sequence[Curves] = (), behaviours: Sequence[Behaviour] = ()) -> str:
    """The page."""
    title = f"Conclave: evaluation {result.suite}"
    seeds = f"{len(result.seeds)} seeds: {_seeds(result.seeds)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(seeds)}. Made by <code>{escape(result.command)}</code></p>",
        _goals(result.goals),
        _figures(result),
        _paired(result.paired),
        *(_curves(one) for one in curves),
        *(behaviour_section(one) for one in behaviours),
        _weights(result),
        _notes(result.notes),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _goals(goals: Sequence[Goal]) -> str:
    if not goals:
        return ""
    met = sum(goal.met for goal in goals)
    words = "All goals were met." if met == len(goals) else f"{met} of {len(goals)} goals were met."
    rows = [
        (
            escape(goal.goal),
            escape(goal.target),
            number(goal.value),
            '<span class="met">met</span>' if goal.met else '<span class="unmet">not met</span>',
        )
        for goal in goals
    ]
    return f"<h2>Goals</h2><p>{words}</p>" + table(("Goal", "Wanted", "Found", ""), rows, numbers=(1, 2))


def _figures(result: SuiteResult) -> str:
    by_metric: dict[str, dict[str, Metric]] = {}
    for policy, metrics in result.policies.items():
        for name, metric in metrics.items():
            by_metric.setdefault(name, {})[policy] = metric
    if not by_metric:
        return ""
    promised = " ".join((*(goal.goal for goal in result.goals), *(one.metric for one in result.paired)))
    drawn = {name for name in by_metric if len(by_metric) <= FEW_FIGURES or name in promised}
    groups: dict[str, dict[str, dict[str, Metric]]] = {}
    for name, policies in by_metric.items():
        groups.setdefault(name.rpartition("/")[0], {})[name] = policies
    parts = ["<h2>Figures</h2><p class=soft>Mean ± sample standard deviation over the seeds; a dot is one seed.</p>"]
    if len(groups) == 1:
        return "".join([*parts, _group(next(iter(groups.values())), drawn)])
    for prefix, metrics_of_group in groups.items():
        opened = " open" if drawn & metrics_of_group.keys() and len(groups) <= FEW_FIGURES else ""
        summary = f"<summary>{escape(prefix or 'over all')}</summary>"
        parts.append(f"<details{opened}>{summary}{_group(metrics_of_group, drawn)}</details>")
    return "".join(parts)


def _group(metrics: Mapping[str, Mapping[str, Metric]], drawn: Collection[str]) -> str:
    """Drawings of what was promised, then one table: a row per figure, a column per policy."""
    parts = [
        f"<h3>{escape(name)}</h3>{svg.dots(policies, name=name)}"
        for name, policies in metrics.items()
        if name in drawn and len(policies) > 1
    ]
    columns = list(dict.fromkeys(policy for policies in metrics.values() for policy in policies))
    rows = [
        (escape(name.rpartition("/")[2]), *(_mean(policies.get(policy)) for policy in columns))
        for name, policies in metrics.items()
    ]
    head = ("Figure", *(escape(policy) for policy in columns))
    return "".join([*parts, table(head, rows, numbers=range(1, len(head)))])


def _mean(metric: Metric | None) -> str:
    return "" if metric is None else f"{number(metric.mean)} ± {number(metric.sd)}"


def _paired(found: Sequence[Paired]) -> str:
    if not found:
        return ""
    rows = [
        (
            escape(one.metric),
            escape(f"{one.a} less {one.b}"),
            f"{number(one.mean_difference)} ± {number(one.sd)}",
            _p(one.p),
            "yes" if one.p < SIGNIFICANT_P else "no",
        )
        for one in found
    ]
    head = ("Figure", "Difference of", "Mean ± s.d.", "p", f"p &lt; {SIGNIFICANT_P:g}")
    words = "<p class=soft>Paired by seed; p is that of the two-sided paired t test.</p>"
    return "<h2>Paired differences</h2>" + words + table(head, rows, numbers=(2, 3))


def _curves(curves: Curves) -> str:
    drawn = [
        f"<h3>{escape(name)}</h3>{svg.curve(points, name=name, colour=at)}"
        for at, (name, points) in enumerate(curves.points.items())
    ]
    return f"<h2>Learning curves</h2><p class=soft>{escape(curves.title)}</p>{''.join(drawn)}"


def _weights(result: SuiteResult) -> str:
    if not result.card_digests:
        return ""
    rows = [(escape(policy), f"<code>{escape(digest)}</code>") for policy, digest in result.card_digests.items()]
    return "<h2>Weights</h2>" + table(("Policy", "sha256"), rows)


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"


def _p(p: float) -> str:
    return number(p) if p >= 1e-4 else f"{p:.1e}"


def _seeds(seeds: Sequence[int]) -> str:
    """``42-51, 60``: runs of neighbours are joined."""
    parts: list[str] = []
    start = 0
    for at in range(1, len(seeds) + 1):
        if at == len(seeds) or seeds[at] != seeds[at - 1] + 1:
            parts.append(str(seeds[start]) if at - start == 1 else f"{seeds[start]}-{seeds[at - 1]}")
            start = at
    return ", ".join(parts)
