"""Who may tell of a node: its agent, else one sensor; never one of a past boot beside it, whatever clocks say."""

from __future__ import annotations

from random import Random

import pytest

from services.coordinator.usage.desk import MESSAGES_PER_S, ReadingsDesk
from services.coordinator.usage.speakers import LEAST_SILENCE_S, MOST, PAST_BOOTS, RETURN, ReadingsRefused, Speakers
from services.coordinator.usage.still import STILL_READINGS, STILL_S
from shared.wire.codec import decode, encode
from shared.wire.messages import Readings
from shared.wire.readings import Boot, NodeReading
from tests.unit.services.coordinator.usage.test_desk import agents, message


def of_sensor(node: str = "n0", boot: str = "b1", began_ms: int = 1000, **changes: object) -> Readings:
    fields: dict[str, object] = {
        "agent": node, "incarnation": "", "boot": Boot(boot, began_ms),
        "readings": [NodeReading(node, 200, 1500, 1 << 30, 0.25)],
    }  # fmt: skip
    return message(0, **{**fields, **changes})


def speakers() -> Speakers:
    return Speakers(lambda node: node.startswith("n"))


def admitted(one: Speakers, sent: Readings, now_s: float) -> str:
    """ "" or the code of the refusal."""
    try:
        one.node_of(sent, agents(), now_s, every_s=1.0)
    except ReadingsRefused as error:
        return error.code
    return ""


def test_a_sensor_needs_no_registration_and_speaks_of_a_node_that_is_there() -> None:
    one = speakers()
    assert one.node_of(of_sensor("n7"), {}, 0.0, every_s=1.0) == "n7"
    assert admitted(one, of_sensor("x"), 0.0) == "node_unknown"
    assert admitted(one, of_sensor("n1", readings=[NodeReading("n2", 0)]), 0.0) == "forbidden"


def test_of_two_sensors_on_a_node_the_one_that_began_later_counts() -> None:
    one = speakers()
    assert admitted(one, of_sensor(began_ms=1000), 0.0) == ""
    assert admitted(one, of_sensor(began_ms=5000), 1.0) == "", "it was started again"
    assert admitted(one, of_sensor(began_ms=1000), 2.0) == "superseded"
    assert admitted(one, of_sensor(began_ms=5000), 3.0) == ""


def test_another_boot_is_believed_when_the_one_before_is_silent_and_that_one_not_beside_it() -> None:
    one = speakers()
    for now in range(0, 100, 5):
        assert admitted(one, of_sensor(boot="b1"), float(now)) == ""
    assert admitted(one, of_sensor(boot="b2", began_ms=10), 96.0) == "superseded"
    assert admitted(one, of_sensor(boot="b2", began_ms=10), 95.0 + LEAST_SILENCE_S) == ""
    for now in (130.0, 130.0 + LEAST_SILENCE_S, 94.0 + (1 + RETURN) * LEAST_SILENCE_S):
        assert admitted(one, of_sensor(boot="b1", began_ms=10**9), now) == "past_boot"


def test_a_stray_that_was_heard_once_bans_the_true_machine_no_longer_than_it_speaks() -> None:
    """The true sensor was replaced, slowly; meanwhile another machine of its name was believed, and has ended."""
    one = speakers()
    assert admitted(one, of_sensor(boot="true"), 0.0) == ""
    assert admitted(one, of_sensor(boot="stray"), 50.0) == ""
    assert admitted(one, of_sensor(boot="true"), 60.0) == "past_boot"
    end = 50.0 + RETURN * LEAST_SILENCE_S
    for now in range(5):
        assert admitted(one, of_sensor(boot="true"), end + now) == "", "and then for good"
    assert admitted(one, of_sensor(boot="stray"), end + 5.0) == "past_boot"


def test_a_past_boot_may_return_after_an_agent_has_spoken_too() -> None:
    one = speakers()
    for sent, now in ((of_sensor(boot="b1"), 0.0), (of_sensor(boot="b2"), 50.0), (message(0), 60.0)):
        assert admitted(one, sent, now) == ""
    end = 60.0 + RETURN * LEAST_SILENCE_S
    assert [admitted(one, of_sensor(boot="b1"), end + now) for now in range(3)] == ["", "", ""]


def test_only_the_last_boots_are_remembered() -> None:
    one = speakers()
    for number in range(PAST_BOOTS + 3):
        assert admitted(one, of_sensor(boot=f"b{number}"), number * 100.0) == ""
    now = (PAST_BOOTS + 3) * 100.0
    assert admitted(one, of_sensor(boot="b2"), now) == "past_boot"
    assert admitted(one, of_sensor(boot="b1"), now) == ""


def test_where_the_nodes_own_agent_tells_no_sensor_is_needed_until_it_falls_silent() -> None:
    one = speakers()
    assert admitted(one, of_sensor(), 0.0) == ""
    assert admitted(one, message(0), 1.0) == "", "an agent is registered, and comes first"
    assert admitted(one, of_sensor(), 2.0) == "superseded"
    assert admitted(one, of_sensor(), 1.0 + LEAST_SILENCE_S) == ""


def test_where_messages_come_rarely_silence_is_longer() -> None:
    one = speakers()
    one.node_of(of_sensor(boot="b1"), {}, 0.0, every_s=50.0)
    with pytest.raises(ReadingsRefused):
        one.node_of(of_sensor(boot="b2"), {}, 140.0, every_s=50.0)
    one.node_of(of_sensor(boot="b2"), {}, 150.0, every_s=50.0)


def test_nodes_are_forgotten_and_bounded() -> None:
    one = Speakers(lambda _: True)
    for number in range(MOST + 5):
        one.node_of(of_sensor(f"n{number}"), {}, 0.0, every_s=1.0)
    assert len(one._of) == MOST
    one.forget(1e6)
    assert not one._of


def test_without_the_order_of_boots_a_past_one_would_be_believed() -> None:
    """The safeguard switched off: a boot that nobody remembers is one as good as any other."""
    one = speakers()
    for boot, now in (("b1", 0.0), ("b2", 100.0)):
        assert admitted(one, of_sensor(boot=boot), now) == ""
    one._of["n0"].past.clear()
    assert admitted(one, of_sensor(boot="b1"), 200.0) == ""


def desk() -> ReadingsDesk:
    return ReadingsDesk(b"k" * 32, Random(1), term=7, region_of=lambda _: "")


def test_a_sensors_reading_is_one_of_the_node_and_says_who_measured() -> None:
    one = desk()
    sent = decode(encode(of_sensor()), Readings)
    assert one.heard(sent, {}, 1.0).term == 7
    event = one.flush(1.0)
    assert event is not None
    (sample,) = event.samples
    assert (sample.node, sample.source, sample.cpu_millis) == ("n0", "sensor", 1500)


def test_sensors_are_asked_as_rarely_as_there_are_many() -> None:
    one = desk()
    for number in range(1000):
        ack = one.heard(of_sensor(f"n{number}"), {}, 1.0)
    assert ack.every_ms == pytest.approx(1000 * 999 / MESSAGES_PER_S)


def test_readings_that_stand_still_are_left_out_and_named_until_they_move() -> None:
    one, now = desk(), 0.0
    while now < STILL_S:
        one.heard(of_sensor(), {}, now)
        event = one.flush(now)
        assert event is not None
        assert event.samples[0].cpu_millis == 1500
        now += STILL_S / STILL_READINGS / 2
    one.heard(of_sensor(), {}, now)
    event = one.flush(now)
    assert event is not None
    (sample,) = event.samples
    assert (sample.cpu_millis, sample.memory_bytes, sample.disk) == (None, None, None)
    assert sample.missing == ("cpu, memory, disk, network: the same for 60 s; they count again when they change",)
    one.heard(of_sensor(readings=[NodeReading("n0", 0, 1501, 1 << 30)]), {}, now + 1)
    event = one.flush(now + 1)
    assert event is not None
    assert (event.samples[0].cpu_millis, event.samples[0].missing) == (1501, ())


def test_a_reading_without_figures_does_not_stand_still() -> None:
    one = desk()
    for now in range(0, 300, 5):
        one.heard(of_sensor(readings=[NodeReading("n0", 0, missing=["cpu: gone"])]), {}, float(now))
        event = one.flush(float(now))
        assert event is not None
        assert event.samples[0].missing == ("cpu: gone",)
