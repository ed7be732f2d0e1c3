"""A kind that is not served is told for as long as it is not."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import KubeUnknown
from shared.kube.autoscaling import AUTOSCALERS
from shared.runtime.kube import unserved


async def test_the_note_about_a_missing_kind_goes_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved, "LOOK_S", 0.0)
    answers: list[bool | KubeUnknown] = [False, KubeUnknown("no answer"), True]
    noted: list[tuple[str, str]] = []

    async def may_list(resource: Any) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, KubeUnknown):
            raise answer
        return answer

    with pytest.raises(IndexError):
        await unserved.tell_unserved(
            AUTOSCALERS, "folder/x", may_list=may_list, note=lambda *told: noted.append(told), subject="it"
        )
    said = "the cluster serves no ResilientAutoscalers that we may list: apply folder/x"
    assert noted == [("it", said), ("it", "")]
