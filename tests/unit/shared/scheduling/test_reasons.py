"""One table of reasons: every rule and every word has what it means, what helps, and a place in the FAQ."""

from __future__ import annotations

import re
from pathlib import Path

from shared.model.units.pod_group import GroupSource, PodGroup
from shared.scheduling.groups.quorum import MIXED, TOO_FEW, reason_of
from shared.scheduling.reasons import REASONS, means, of_limit, page, remedy

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "faq-pending.md").read_text()
NOT_TRIED = {"SchedulingGates", "ConclaveUnsupported"}
"""Rules about pods that the mesh never tries: their reasons are SchedulingGated and NotSupported, as conditions have
it."""


def rules() -> set[str]:
    texts = "\n".join(path.read_text() for path in (ROOT / "shared" / "scheduling").rglob("*.py"))
    named = re.findall(r'^(?:    name|NAME|OUTSIDE|TOO_MANY_RULES|NODE_AFFINITY) = "([A-Z]\w+)"$', texts, re.MULTILINE)
    return set(named) - NOT_TRIED


def test_every_rule_has_its_reason() -> None:
    assert len(rules()) >= 14, "the rules have no names any more?"
    assert rules() - REASONS.keys() == set()


def test_every_reason_stands_in_the_faq_as_the_table_has_it() -> None:
    for one in REASONS.values():
        told = f"`{one.condition}`" if one.condition else "-"
        row = f'| <a id="{one.word.lower()}"></a>`{one.word}` | {one.words} | {one.helps} | {told} |'
        assert row in PAGE, one.word
    assert len(re.findall(r'<a id="\w+"></a>', PAGE)) == len(REASONS)


def test_no_reason_is_a_word_of_another_place() -> None:
    """A second list of reasons would drift from this one, and a label of a metric made of one is a second word."""
    words = [one for one in REASONS if one.startswith(("Queue", "Group")) or one in ("Incomplete", "NoAgents")]
    for path in [path for house in ("lab", "services", "shared", "twin") for path in (ROOT / house).rglob("*.py")]:
        if path.name != "reasons.py":
            found = set(re.findall(rf'"([A-Za-z]*(?:{"|".join(words)}))"', path.read_text()))
            assert found <= {"ConclaveNoAgents"}, path  # the alert


def test_pages_that_say_why_something_waits_use_the_same_words() -> None:
    section = (ROOT / "docs" / "gangs.md").read_text().partition("## Why does mine wait?")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    words = [word for cell in cells for word in re.findall(r"`([A-Z]\w+)`", cell)]
    assert len(words) > 5
    assert set(words) <= REASONS.keys()


def test_autoscalers_buy_nodes_for_what_a_node_helps_alone() -> None:
    buys = {word for word, one in REASONS.items() if one.condition == "Unschedulable"}
    assert not buys & {"QueueQuota", "QueueUnusable", "Incomplete", "GroupMissing", "GroupInvalid", "NoAgents"}
    assert {"NodeResourcesFit", "Unschedulable", "NoNodes"} <= buys


def test_several_rules_are_told_together_and_an_unknown_word_says_nothing() -> None:
    both = "NodeResourcesFit+NodeUnschedulable"
    words = f"{REASONS['NodeResourcesFit'].words}; {REASONS['NodeUnschedulable'].words}"
    assert means(both) == f"each node refuses it for one of these: {words}"
    assert remedy(both).startswith(REASONS["NodeResourcesFit"].helps + "; or ")
    assert page(both) == "/ui/reasons.html#noderesourcesfit"
    assert (means("Later"), remedy("Later"), page("Later")) == ("", "", "")


def test_what_a_group_or_a_queue_waits_for_has_one_word() -> None:
    group = PodGroup("podgroup:d/g", GroupSource.NATIVE, "d", "g", gang=True, min_count=3)
    assert reason_of(None, "", short_of_nodes=False) == "GroupMissing"
    assert reason_of(group, TOO_FEW, short_of_nodes=False) == "Incomplete"
    assert reason_of(group, MIXED, short_of_nodes=False) == "GroupInvalid"
    assert reason_of(group, "spec.minResources[cpu]: ...", short_of_nodes=True) == "Unschedulable"
    assert (of_limit("there is no Queue of this name"), of_limit("")) == ("QueueUnusable", "QueueQuota")
