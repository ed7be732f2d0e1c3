"""What a pod does has the same words in the dashboard as on the command line."""

from __future__ import annotations

import pytest

from services.cli.explain.text import HELD, STATES, state_word
from tests.unit.services.coordinator.ui.javascript import run


@pytest.mark.parametrize(
    "answer",
    [
        *({"state": state, "queue": None} for state in [*STATES, "pending", "bound", "finished", "gone", "evicted"]),
        *({"state": "pending", "queue": {"reason": reason}} for reason in [*HELD, "NodeAffinity"]),
    ],
    ids=str,
)
def test_a_pods_state_has_one_word(answer: dict[str, object]) -> None:
    words = run("return (await ui('waiting.js')).stateWords(answer)", answer=answer)
    assert words == state_word(answer)


def test_what_holds_a_unit_back_is_not_always_a_quota() -> None:
    script = "const { heldWords } = await ui('waiting.js'); return reasons.map(heldWords)"
    assert run(script, reasons=["QueueQuota", "QueueUnusable"]) == list(HELD.values())
