"""The wire contract: `msgpack` reads what we write and writes what we read; hostile input gets a stable code."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import WireError
from shared.model.constraints import HostPort, Norms, Taint
from shared.wire.codec import MAX_BODY_BYTES, decode, encode
from shared.wire.messages import (
    KINDS,
    VERSION,
    Answer,
    ClassDefinition,
    Decisions,
    Message,
    NodeRow,
    NodeUsage,
    Offer,
    Placement,
    PlacementResult,
    Plan,
    PlanResult,
    Refusal,
    UnitGroup,
    View,
    ViewAck,
    ViewUpdate,
    score_to_wire,
)
from tests.builders import make_pod

usage = NodeUsage(3, 17, [500, 1 << 30], 500, 1 << 30, [HostPort("TCP", "0.0.0.0", 80)], [1000, 400])
row = NodeRow("n", {"zone": "x"}, [Taint("k", "", "NoSchedule")], False, {"cpu": 4000}, usage)
view = View(1, 0, 1, ["cpu", "memory"], [row], [usage], [9])
definition = ClassDefinition(4, make_pod().cpu("1").pod().pod_class)
refusal = Refusal(4, 2, {"Insufficient cpu": 2}, ["NodeResourcesFit"])
MESSAGES: list[Message] = [
    Offer(VERSION, 1, 0, 7, 1, view, [UnitGroup(4, [1, 2], Norms(1, 2))], [definition]),
    Decisions(VERSION, 2, 1, 7, 1, [Answer(1, 3, True, -5, 17, 1)], [refusal], [5]),
    ViewUpdate(VERSION, 3, 0, 7, view),
    ViewAck(VERSION, 4, 3, 7, 1),
    Plan(VERSION, 5, 2, 7, 1, [Placement(1, "uid", "ns", "name", "12", "n", ["m"], "kube-default", 1, 5, 300)]),
    PlanResult(VERSION, 6, 5, 7, 1, [PlacementResult(1, 0, "n", "", 900, 1)], 1200),
]


def as_plain(body: bytes) -> Any:
    return msgpack.unpackb(body, raw=False, strict_map_key=True)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_msgpack_reads_what_we_write_and_we_read_what_msgpack_writes(message: Message) -> None:
    plain = as_plain(encode(message))
    assert KINDS[plain[0]] is type(message)
    assert plain[1:5] == [message.version, message.message_id, message.cause_id, message.term]
    assert decode(msgpack.packb(plain, use_bin_type=True), type(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_newer_sender_may_append_fields(message: Message) -> None:
    assert decode(msgpack.packb([*as_plain(encode(message)), "later"]), type(message)) == message


def test_an_older_sender_may_leave_trailing_fields_out() -> None:
    plain = as_plain(encode(MESSAGES[1]))
    assert decode(msgpack.packb(plain[:7]), Decisions).refusals == []


def refused(body: bytes, expected: type[Message] = Decisions) -> str:
    with pytest.raises(WireError) as caught:
        decode(body, expected)
    return caught.value.code


def test_every_refusal_has_its_code() -> None:
    body = encode(MESSAGES[1])
    plain = as_plain(body)
    assert refused(body, Plan) == "wire_unexpected_kind"
    assert refused(msgpack.packb([99, *plain[1:]])) == "wire_unknown_kind"
    assert refused(msgpack.packb([plain[0], 2, *plain[2:]])) == "wire_unknown_version"
    assert refused(msgpack.packb([plain[0], 2])) == "wire_unknown_version"
    assert refused(body[:-1]) in {"wire_malformed", "wire_invalid"}
    assert refused(b"\0" * (MAX_BODY_BYTES + 1)) == "wire_too_large"
    assert refused(b"\x91" * 100_000) == "wire_malformed"
    assert refused(b"\xdf\xff\xff\xff\xff") == "wire_malformed"
    assert refused(msgpack.packb([*plain[:6], [[1, 3, True, 2**60, 17, 1]]])) == "wire_invalid"
    assert refused(msgpack.packb([*plain[:6], [[1, 3, True, float("nan"), 17, 1]]])) == "wire_invalid"


def decodes(body: bytes, kind: type[Message]) -> bool:
    """Whether the body is taken; anything but a WireError with a code propagates and fails the test."""
    try:
        decode(body, kind)
    except WireError as error:
        if not error.code.startswith("wire_"):
            raise
        return False
    return True


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    assert not any(decodes(noise, kind) for kind in KINDS.values())


@given(st.integers(0, len(MESSAGES) - 1), st.integers(0, 4000), st.integers(1, 255))
def test_a_flipped_byte_never_crashes_the_reader(index: int, position: int, flip: int) -> None:
    body = bytearray(encode(MESSAGES[index]))
    body[position % len(body)] ^= flip
    decodes(bytes(body), type(MESSAGES[index]))


def test_a_decision_is_at_most_42_bytes_with_its_envelope() -> None:
    """The thesis sends 78 to 95 bytes per decision: one alone in a young mesh, eight together in a very old one."""
    alone = Decisions(VERSION, 9999, 9999, 9999, 9999, [Answer(9999, 999, True, score_to_wire(700), 9999, 1)])
    answer = Answer(10**7, 4999, True, score_to_wire(700), 10**9, 300)
    together = Decisions(VERSION, 10**8, 10**8, 10**9, 10**8, [answer] * 8)
    assert len(encode(alone)) <= 42
    assert len(encode(together)) / 8 <= 42


def test_scores_are_clipped_to_what_the_wire_takes() -> None:
    huge = Decisions(VERSION, 1, 1, 1, 1, [Answer(1, 1, True, score_to_wire(1e300), 1, 1)])
    assert decode(encode(huge), Decisions) == huge


def test_message_tables_agree() -> None:
    for kind, message in KINDS.items():
        assert msgspec.inspect.type_info(message).tag == kind
