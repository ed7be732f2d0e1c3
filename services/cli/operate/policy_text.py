"""What ``conclave policy`` prints for people, from the admin API's documents. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from services.cli.listing.kinds import Json, ListKind, number, text
from services.cli.terminal.tables import printable

SHORT = 12
"""Characters of a digest that a table shows."""
NEUTRAL = "neutral"
"""The goal that is told beside the one that decides."""


def _pointer(of: Json, name: str) -> Any:
    return (of.get("pointer") or {}).get(name)


def _title(ref: Json | None) -> str:
    if not ref:
        return ""
    return f"{ref['name']}@{ref['version']}" if ref.get("version") else str(ref["name"])


def _stage(of: Json) -> str:
    return f"{of.get('stage', '')} {of['percent']} %" if of.get("percent") else str(of.get("stage", ""))


POLICIES = ListKind(
    title="Policy",
    resource="policy",
    name=_title,
    columns=(
        text("NAME", "name"),
        number("VERSION", "version"),
        text("SHA256", lambda row: str(row.get("sha256") or "")[:SHORT]),
        text("ROLE", "role"),
        number("PODS", "percent", lambda row: f"{row['percent']} %" if row.get("percent") else ""),
        text("FROM", "from"),
    ),
)

CHANGES = ListKind(
    title="PolicyChange",
    resource="policychange",
    name=lambda record: _pointer(record, "number"),
    columns=(
        # records of an earlier version end in +00:00
        text("WHEN", lambda record: str(record.get("at", "")).replace("+00:00", "Z")),
        text("ACTIVE", lambda record: _title(_pointer(record, "active"))),
        text("CANDIDATE", lambda record: _title(_pointer(record, "candidate"))),
        text("STAGE", lambda record: _stage(record["pointer"])),
        text("WHY", lambda record: _because(record["pointer"]) or "first", cut=True),
        number("NUMBER", lambda record: _pointer(record, "number"), wide=True),
        text(
            "SHA256",
            lambda record: (_pointer(record, "candidate") or _pointer(record, "active")).get("sha256"),
            wide=True,
        ),
    ),
)


def _agreed(window: Json) -> str:
    judged = bool(window.get("candidate")) and window.get("samples")
    return f"{window['agreed'] / window['samples']:.0%}" if judged else ""


def _goal(name: str) -> str:
    """A goal for a table: of an expression only that it is one."""
    return name.partition(":")[0]


def _value(window: Json, policy: str, goal: str = "") -> str:
    """What the policy's choices were worth by ``goal``; by the one that decides where none is named."""
    values: Sequence[Json] = window.get("values") or ()
    found = next((value.get(policy) for value in values if goal in ("", value["goal"])), None)
    return "" if found is None else f"{found:.3f}"


WINDOWS = ListKind(
    title="PolicyWindow",
    resource="policywindow",
    name=lambda window: window.get("number"),
    columns=(
        text("WINDOW", "time"),
        text("CANDIDATE", "candidate"),
        text("STAGE", _stage),
        number("SAMPLES", "samples"),
        number("SAME NODE", _agreed),
        text("GOAL", lambda window: _goal(next((value["goal"] for value in window.get("values") or ()), NEUTRAL))),
        number("CANDIDATE", lambda window: _value(window, "candidate")),
        number("ACTIVE", lambda window: _value(window, "active")),
        number("NEUTRAL: CANDIDATE", lambda window: _value(window, "candidate", NEUTRAL)),
        number("ACTIVE", lambda window: _value(window, "active", NEUTRAL)),
        text("VERDICT", lambda window: ": ".join(filter(None, (window.get("verdict"), window.get("why")))), cut=True),
        number("NUMBER", "number", wide=True),
        number("P99-MS", lambda window: (window.get("conduct") or {}).get("p99_ms"), wide=True),
        number("ACTIVE-P99-MS", lambda window: (window.get("conduct") or {}).get("active_p99_ms"), wide=True),
    ),
)
"""What the latest windows said: the value by the goal that decides, then by the neutral one."""


def shown_lines(found: Json, *, wide: bool = False) -> list[str]:
    """The pointer, what comes next by which rules, the newest windows and changes."""
    lines = [*pointer_lines(found.get("pointer")), *_comparison_lines(found)]
    for kind, name in ((WINDOWS, "windows"), (CHANGES, "history")):
        if found.get(name):
            lines += ["", *kind.lines(found[name], wide=wide)]
    return lines


def pointer_lines(pointer: Json | None) -> list[str]:
    """The pointer for people."""
    if pointer is None:
        return ["no policy has been activated: every agent decides by its own --policy"]
    lines = [f"active     {_ref_text(pointer['active'])}"]
    if pointer.get("candidate"):
        share = f" for {pointer['percent']} % of the pods" if pointer.get("percent") else ""
        lines.append(f"candidate  {_ref_text(pointer['candidate'])}, {pointer.get('stage')}{share}")
        mode = {"auto": "by itself after good windows", "manual": "by hand"}.get(
            str(pointer.get("promotion")), "as the setting rollout_promotion says"
        )
        goal = pointer.get("goal") or "of the setting rollout_goal"
        if pointer.get("made_for") and not pointer.get("goal"):
            goal = f"{printable(pointer['made_for'])}, which it is for, unless the setting rollout_goal names another"
        lines.append(f"promoted   {mode}; compared by the goal {goal} (higher is better)")
    if pointer.get("previous"):
        lines.append(f"previous   {_ref_text(pointer['previous'])}")
    lines += [
        printable(f"rehearsed  {one.get('places')} places for {one.get('policy')}: {one.get('told')}")
        for one in pointer.get("rehearsed") or ()
    ]
    if pointer.get("reason"):
        lines.append(f"because    {_because(pointer)}")
    return lines


def card_lines(card: Json) -> list[str]:
    """A card for people."""
    return [
        line
        for key, value in card.items()
        for line in (_network_lines(value) if key == "networks" else [f"{printable(key):<10}{json.dumps(value)}"])
    ]


def _network_lines(told: Json) -> list[str]:
    """Which network judges which nodes."""
    label, by_number = told["label"], dict[int, list[str]]()
    for value, network in sorted(told["values"].items()):
        by_number.setdefault(network, []).append(f"{label}={value}")
    lines = [f"{network}: nodes of {' or '.join(values)}" for network, values in sorted(by_number.items())]
    told_lines = [*lines, "shared: all other nodes"]
    return [f"{'networks' if not place else '':<10}{printable(line)}" for place, line in enumerate(told_lines)]


def _because(pointer: Json) -> str:
    forced = ", forced: without the windows asked for" if pointer.get("forced") else ""
    return printable(f"{pointer['reason']} (by {pointer.get('by', '')}{forced})") if pointer.get("reason") else ""


def _ref_text(ref: Json) -> str:
    return printable(f"{_title(ref)} ({ref['sha256'][:SHORT]})" if ref.get("sha256") else _title(ref))


def _comparison_lines(found: Json) -> list[str]:
    """How the candidate does against the active policy, where there is one."""
    told = found.get("comparison")
    if not told or not _pointer(found, "candidate"):
        return []
    lines = [_rule_line(rule) for rule in told.get("rules") or ()]
    counts = ", ".join(f"{told.get(name, 0)} {name}" for name in ("windows", "good", "bad"))
    lines.append(
        f"compared   by the goal {printable(str(told.get('goal')))} (higher is better): {counts};"
        f" {told.get('samples', 0)} of {told.get('min_samples', 0)} samples in the open window"
    )
    lines += _sampling_lines(told.get("sampling") or {})
    last = told.get("last_window")
    if last:
        lines.append(
            f"           last window {last.get('verdict')}: {last.get('value', 0):.3f} against"
            f" {last.get('active_value', 0):.3f}{_neutral(last)}, same node in {last.get('agreed', 0)} of"
            f" {last.get('samples', 0)}, p99 {last.get('p99_ms', 0):.3g} ms against"
            f" {last.get('active_p99_ms', 0):.3g} ms"
        )
    return lines + [
        f"           {printable(str(name))}: {count}" for name, count in (told.get("failures") or {}).items()
    ]


def _sampling_lines(told: Json) -> list[str]:
    """What share of pods can be sampled, and why the open window lacks samples."""
    lines = []
    if told.get("share") is not None:
        counts = f"{told.get('choosing', 0)} of {told.get('offered', 0)} offered lately"
        lines.append(f"sampled    {100 * told['share']:.0f} % of the pods can be: several nodes were open to {counts}")
    if told.get("why"):
        lines.append(f"           the window lacks samples: {printable(str(told['why']))}")
    return lines


def _neutral(last: Json) -> str:
    mine, theirs = last.get("neutral_value"), last.get("active_neutral_value")
    if last.get("goal") == NEUTRAL or mine is None or theirs is None:
        return ""
    return f" (neutral {mine:.3f} against {theirs:.3f}, which does not decide)"


def _rule_line(rule: Json) -> str:
    """What changes the pointer next, by which rule, and how far that is."""
    needed, so_far = rule.get("needed", 0), rule.get("so_far", 0)
    far = f"{so_far} of {needed} so far"
    if so_far < needed:
        far += f", at the earliest {rule.get('at')}"
    then, why = printable(str(rule.get("then"))), printable(str(rule.get("rule")))
    if rule.get("automatic"):
        return f"next       {then} by itself: {why} ({far})"
    return f"next       {then} when you promote it ('conclave policy promote'); it would earn it by {why} ({far})"
