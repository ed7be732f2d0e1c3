"""A kind that is not served is told for as long as it is not."""

from __future__ import annotations

from typing import Any

import pytest

from shared.kube.scaling.autoscaling import AUTOSCALERS
from shared.runtime.kube import unserved


async def test_the_note_about_a_missing_kind_goes_when_it_comes_and_not_when_the_server_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unserved, "LOOK_S", 0.0)
    answers: list[bool | None] = [None, False, None, True]
    noted: list[tuple[str, str]] = []

    async def lists(resource: Any) -> bool | None:
        return answers.pop(0)

    with pytest.raises(IndexError):
        await unserved.tell_unserved(
            AUTOSCALERS, "folder/x", lists=lists, note=lambda *told: noted.append(told), subject="it"
        )
    said = "the cluster serves no ResilientAutoscalers that we may list: apply folder/x"
    assert noted == [("it", said), ("it", "")]
