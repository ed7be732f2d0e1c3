"""Events are as the API server takes them, whatever the object is called and however much there is to tell."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.kube.events import NOTE_BYTES, event_body, event_name

AT = datetime(2026, 11, 28, 6, 0, tzinfo=UTC)
ABOUT = {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "7"}


def body(note: str = "", instance: str = "one") -> dict[str, object]:
    return event_body(
        ABOUT, name="a.1", at=AT, controller="c", instance=instance, kind="Normal", reason="R", action="A", note=note
    )


@pytest.mark.parametrize("note", ["x" * 5000, "ü" * 5000, "x" + "ü" * 5000, "🙂" * 5000])
def test_a_note_is_cut_by_its_bytes_and_never_within_a_letter(note: str) -> None:
    told = str(body(note)["note"])
    assert note.startswith(told)
    assert NOTE_BYTES - 4 < len(told.encode()) <= NOTE_BYTES


def test_an_event_is_in_the_namespace_of_its_object_and_names_it() -> None:
    made = body("told", instance="i" * 500)
    assert made["metadata"] == {"name": "a.1", "namespace": "shop"}
    assert made["regarding"] == ABOUT
    assert made["eventTime"] == "2026-11-28T06:00:00.000000Z"
    assert len(str(made["reportingInstance"])) == 128


@pytest.mark.parametrize("about", ["a", "a" * 253, "a" * 219 + "." + "b" * 33, "a" * 218 + "-." + "b" * 33])
def test_a_name_is_one_that_objects_may_have(about: str) -> None:
    name = event_name(about, 1_764_309_600_000_000_000)
    assert len(name) <= 253
    assert "-." not in name
    assert ".." not in name
