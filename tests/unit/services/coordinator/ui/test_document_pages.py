"""Runbooks and reasons as the dashboard serves them: every alert's section, every reason's place, no markup left."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from services.coordinator.health.verdict import RULES
from services.coordinator.http.ui_files import read_files
from shared.scheduling.reasons import PAGE, REASONS, page
from tests.unit.services.coordinator.ui.javascript import run

ALERTS = yaml.safe_load(Path("compose/monitoring/alerts.yaml").read_text())["groups"]
PARSED = "const { parsed, inline } = await ui('document.js'); const page = parsed(text);"


def test_every_alert_and_finding_has_its_section_on_the_page() -> None:
    text = read_files()["runbooks.md"].body.decode()
    found = run(f"{PARSED} return page.sections.map((one) => [one.anchor, one.blocks.length])", text=text)
    named = {alert["alert"].lower() for group in ALERTS for alert in group["rules"]} | {
        rule.alert.lower() for rule in RULES
    }
    assert {anchor for anchor, _ in found} == named
    assert all(blocks >= 3 for _, blocks in found)


def test_every_reason_leads_to_its_place_on_the_page() -> None:
    text = read_files()["reasons.md"].body.decode()
    script = f"""{PARSED}
        const blocks = page.sections.flatMap((one) => one.blocks);
        return blocks.flatMap((one) => one.rows?.flat() ?? []).flatMap(inline).flatMap((part) => part.id ?? [])"""
    places = run(script, text=text)
    assert sorted(f"{PAGE}#{place}" for place in places) == sorted(page(word) for word in REASONS)


@pytest.mark.parametrize("document", ["runbooks.md", "reasons.md"])
def test_nothing_of_the_markup_is_left_in_what_is_read(document: str) -> None:
    text = read_files()[document].body.decode()
    script = f"""{PARSED}
        const blocks = [...page.blocks, ...page.sections.flatMap((one) => one.blocks)];
        const texts = blocks.flatMap((one) => one.rows?.flat() ?? one.items ?? (one.kind === 'code' ? [] : [one.text]));
        return texts.flatMap((one) => inline(one)).filter((part) => !part.code).map((part) => part.text)"""
    left = [part for part in run(script, text=text) if any(mark in part for mark in ("**", "](", "`", "```", "<a"))]
    assert left == []


def test_links_lead_within_the_page_alone() -> None:
    script = "const { inline } = await ui('document.js'); return inline(text)"
    assert run(script, text="see [here](#b) and [there](x.md), `a [b](c)`") == [
        {"text": "see "}, {"text": "here", "link": "#b"}, {"text": " and "}, {"text": "there"}, {"text": ", "},
        {"text": "a [b](c)", "code": True},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("address", "leads"),
    [
        ("/ui/runbooks.html#conclaveleaderlate", "runbooks.html#conclaveleaderlate"),
        ("docs/operations/runbooks.md#conclaveleaderlate", "runbooks.html#conclaveleaderlate"),
        ("/ui/reasons.html#queuequota", "reasons.html#queuequota"),
        ("docs/faq-pending.md#queuequota", "reasons.html#queuequota"),
        ("https://wiki/runbooks#conclaveleaderlate", "https://wiki/runbooks#conclaveleaderlate"),
        ("javascript:alert(1)", "runbooks.html#javascript:alert(1)"),
    ],
)
def test_what_a_leader_tells_of_a_document_is_a_link(address: str, leads: str) -> None:
    assert run("return (await ui('address.js')).documentAt(address)", address=address) == leads
