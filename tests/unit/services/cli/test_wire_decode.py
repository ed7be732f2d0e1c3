"""``conclave wire decode``: an independent reader of what the codec wrote."""

from __future__ import annotations

import json

import msgpack
import pytest

from services.cli.wire import messages_in
from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.wire.codec import encode
from shared.wire.messages import (
    Answer,
    ClassDefinition,
    Decisions,
    NodeUsage,
    Offer,
    Placement,
    Plan,
    Refusal,
    UnitGroup,
    View,
)

DECISIONS = Decisions(
    version=1,
    message_id=7,
    follows=6,
    term=42,
    revision=9,
    answers=[Answer(1, 0, True, 500_000, 3, 1)],
    refusals=[Refusal(2, 5, {"Insufficient cpu": 5}, ["NodeResourcesFit"])],
)


def test_a_message_is_shown_with_its_field_names():
    (shown,) = messages_in(encode(DECISIONS), "x")
    assert shown["kind"] == "Decisions"
    assert (shown["message_id"], shown["follows"], shown["term"], shown["revision"]) == (7, 6, 42, 9)
    assert shown["answers"][0] == {
        "unit": 1, "slot": 0, "accept": True, "score": 500_000, "generation": 3, "policy_version": 1,
    }  # fmt: skip
    assert shown["refusals"][0]["reasons"] == {"Insufficient cpu": 5}


def test_nested_structs_are_named_to_the_bottom():
    view = View(1, 0, 1, ["cpu"], usages=[NodeUsage(0, 1, [100], 100, 0)])
    offer = Offer(
        version=1, message_id=1, follows=0, term=1, epoch=1, view=view, groups=[UnitGroup(1, [4, 5])],
        classes=[ClassDefinition(1, PodClass(requests=(("cpu", 100),)))],
    )  # fmt: skip
    plan = Plan(
        version=1,
        message_id=2,
        follows=1,
        term=1,
        plan_id=1,
        placements=[Placement(1, "u", "default", "p", "5", "n1")],
    )
    first, second = messages_in(encode(offer) + encode(plan), "x")
    assert first["view"]["usages"][0]["requested"] == [100]
    assert first["groups"][0]["units"] == [4, 5]
    assert first["classes"][0]["pod_class"]["requests"][0] == ["cpu", 100]
    assert second["placements"][0]["node"] == "n1"


def test_fields_beyond_the_known_ones_are_shown_by_number():
    body = msgpack.packb([*msgpack.unpackb(encode(DECISIONS), strict_map_key=False), "later"])
    (shown,) = messages_in(body, "x")
    assert shown["+1"] == "later"


@pytest.mark.parametrize(
    "value", [msgpack.ExtType(5, b"x"), msgpack.Timestamp(1), {msgpack.ExtType(5, b"x"): [msgpack.Timestamp(1)]}]
)
def test_what_json_has_no_form_for_is_shown_as_text(value):
    (shown,) = messages_in(msgpack.packb([1, 1, 1, 0, 1, value]), "x")
    assert json.loads(json.dumps(shown))["kind"] == "Offer"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"\xc1", "byte 0: no msgpack"),
        (encode(DECISIONS)[:-3], "byte 0: no msgpack"),
        (encode(DECISIONS) + b"\x95\x01", f"byte {len(encode(DECISIONS))}"),
        (b"\x96\x01\x01\x01\x00\x01\x81\x90\x01", "byte 0: no msgpack"),
        (msgpack.packb({"kind": 1}), "not a message"),
        (msgpack.packb([99, 1, 1, 0, 0]), "kind 99 is not known"),
    ],
)
def test_what_is_no_message_is_named_with_its_offset(body, words):
    with pytest.raises(ConfigError) as caught:
        list(messages_in(body, "dump"))
    assert words in str(caught.value)
    assert str(caught.value).startswith("dump:")
    assert "\n" not in str(caught.value)
