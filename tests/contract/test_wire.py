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
from shared.wire.demand import Demand, TypicalPod
from shared.wire.messages import (
    KINDS,
    VERSION,
    Answer,
    ClassDefinition,
    Decisions,
    LaneReport,
    Message,
    NodeRow,
    NodeUsage,
    Offer,
    Placement,
    PlacementResult,
    Plan,
    PlanResult,
    PolicyFailure,
    Readings,
    ReadingsAck,
    Refusal,
    Transition,
    Transitions,
    TransitionsAck,
    UnitGroup,
    View,
    ViewAck,
    ViewUpdate,
    score_to_wire,
)
from shared.wire.readings import (
    NodeReading,
    NodeUse,
    ProbePeer,
    ProbeTarget,
    Standing,
    TargetLatency,
)
from shared.wire.residents import Residents, StandingPod, WorkloadName, WorkloadUse
from tests.builders import make_pod

usage = NodeUsage(3, 17, [500, 1 << 30], 500, 1 << 30, [HostPort("TCP", "0.0.0.0", 80)], [1000, 400])
row = NodeRow("n", {"zone": "x"}, [Taint("k", "", "NoSchedule")], False, {"cpu": 4000}, usage)
view = View(1, 0, 1, ["cpu", "memory"], [row], [usage], [9])
definition = ClassDefinition(4, make_pod().cpu("1").pod().pod_class)
refusal = Refusal(4, 2, {"Insufficient cpu": 2}, ["NodeResourcesFit"])
residents = Residents(
    [WorkloadName(2, b"12345678", 100, 64, -7)], [StandingPod(9, 3, 2, 1500)], [8], True,
    [WorkloadUse(2, [0.1] * 4, 0.5)],
)  # fmt: skip
demand = Demand([TypicalPod(4000, 1, 500, ["A10"], 7), TypicalPod(8000, 0, 0, [], 2)], {"A10": 16}, 4)
reading = NodeReading("n", 200, 1500, 1 << 30, 0.25, -1.0, 5_000_000, -1, [0.5, 0.0, -1.0], 0, ["network: no speed"])
MESSAGES: list[Message] = [
    Offer(VERSION, 1, 0, 7, 1, view, [UnitGroup(4, [1, 2], Norms(1, 2))], [definition]),
    Decisions(VERSION, 2, 1, 7, 1, [Answer(1, 3, True, -5, 17, 1)], [refusal], [5]),
    ViewUpdate(VERSION, 3, 0, 7, view),
    ViewAck(VERSION, 4, 3, 7, 1),
    Plan(VERSION, 5, 2, 7, 1, [Placement(1, "uid", "ns", "name", "12", "n", ["m"], "kube-default", 1, 5, 300)]),
    Decisions(
        VERSION,
        7,
        1,
        7,
        1,
        [],
        [],
        [],
        [LaneReport("marl-dqn@2", True, 3, 250, [4])],
        [PolicyFailure("marl-dqn@2", "a" * 64, "nan", 2)],
    ),
    Transitions(VERSION, 8, 0, 7, "agent-0", "marl-dqn", [Transition([0.5, -1.0], 1, -2.5, [0.25, 0.0])], 3),
    TransitionsAck(VERSION, 9, 8, 7, 1),
    Offer(VERSION, 10, 0, 7, 1, view, [UnitGroup(4, [1])], [definition], False, 2, [0.5], 1, [], residents, demand),
    PlanResult(VERSION, 6, 5, 7, 1, [PlacementResult(1, 0, "n", "", 900, 1)], 1200),
    Readings(
        VERSION, 11, 0, 7, "agent-0", "incarnation", [reading], Standing([1.5, -2.0, 0.0], 0.25, 0.5),
        [TargetLatency("shop", 9000, 50, 5, 1)], ProbePeer("10.0.0.1", 8703),
    ),
    ReadingsAck(
        VERSION, 12, 11, 7, 5000, [b"k" * 32], [ProbePeer("fd00::1", 8703)], [ProbeTarget("shop", "shop.example", 443)]
    ),
]  # fmt: skip


def as_plain(body: bytes) -> Any:
    return msgpack.unpackb(body, raw=False, strict_map_key=True)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_msgpack_reads_what_we_write_and_we_read_what_msgpack_writes(message: Message) -> None:
    plain = as_plain(encode(message))
    assert KINDS[plain[0]] is type(message)
    assert plain[1:5] == [message.version, message.message_id, message.follows, message.term]
    assert decode(msgpack.packb(plain, use_bin_type=True), type(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_newer_sender_may_append_fields(message: Message) -> None:
    assert decode(msgpack.packb([*as_plain(encode(message)), "later"]), type(message)) == message


def test_a_class_and_an_offer_of_before_policies_were_rolled_out_still_decode() -> None:
    plain = as_plain(encode(MESSAGES[0]))
    plain[8] = [item[:2] for item in plain[8]]
    old = decode(msgpack.packb(plain[:11]), Offer)
    assert (old.classes[0].candidate, old.cluster, old.pointer) == (False, [], 0)
    assert (old.classes[0].workload, old.residents) == (0, None)


def test_a_sample_of_before_parts_were_masked_is_one_of_all_parts() -> None:
    use = NodeUse(3, 1500, [0.5, 0.25, 0.0, 0.0], 0b1100, 900, {"shop": 9000}, [2000, 1 << 30])
    plain = as_plain(encode(msgspec.structs.replace(MESSAGES[8], samples=[use])))
    assert decode(msgpack.packb(plain), Offer).samples == [use]
    plain[13][0] = plain[13][0][:3]
    [old] = decode(msgpack.packb(plain), Offer).samples
    assert (old.unmeasured, old.delay_us, old.latencies) == (0, -1, {})


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -2.0, 1e7])
def test_a_reading_with_a_share_that_is_no_number_is_refused(share: float) -> None:
    readings = next(message for message in MESSAGES if isinstance(message, Readings))
    plain = as_plain(encode(readings))
    plain[7][0][4] = share
    with pytest.raises(WireError) as refused:
        decode(msgpack.packb(plain), Readings)
    assert refused.value.code == "wire_invalid"


def test_a_node_of_before_drains_were_told_apart_is_a_cordoned_one() -> None:
    update = next(message for message in MESSAGES if isinstance(message, ViewUpdate))
    closed = msgspec.structs.replace(row, unschedulable=True, drained=True)
    plain = as_plain(encode(msgspec.structs.replace(update, view=msgspec.structs.replace(view, nodes=[closed]))))
    assert decode(msgpack.packb(plain), ViewUpdate).view.nodes == [closed]
    plain[5][4][0] = plain[5][4][0][:7]
    [old] = decode(msgpack.packb(plain), ViewUpdate).view.nodes
    assert (old.unschedulable, old.drained) == (True, False)


@pytest.mark.parametrize(
    "feature", [float("nan"), float("inf"), 1e10, "x"], ids=["nan", "infinite", "out of range", "text"]
)
def test_a_transition_with_a_feature_that_is_no_number_is_refused(feature: object) -> None:
    transitions = next(message for message in MESSAGES if isinstance(message, Transitions))
    plain = as_plain(encode(transitions))
    plain[7][0][0][0] = feature
    with pytest.raises(WireError) as refused:
        decode(msgpack.packb(plain), Transitions)
    assert refused.value.code == "wire_invalid"


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
