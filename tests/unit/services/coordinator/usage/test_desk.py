"""Readings of agents at the leader: only of their own node, within a rate, with delays that follow from coordinates."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace

from services.coordinator.agents.views import AgentView
from services.coordinator.core.events import NodesMeasured
from services.coordinator.usage.desk import (
    ELSEWHERE,
    FORGET_S,
    KEY_S,
    MESSAGES_PER_S,
    MOST_AGE_S,
    SILENCE_S,
    SURE,
    UNWANTED_S,
    ReadingsDesk,
    ReadingsRefused,
)
from services.coordinator.usage.measured import GONE_S
from shared.errors import WireError
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.model.cluster_events import Listed, ObjectChanged
from shared.wire.bounds import MAX_COUNT
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Readings
from shared.wire.readings import MAX_TARGETS, NodeReading, ProbePeer, Standing, TargetLatency
from shared.wire.records import AgentRecord

SECRET = b"k" * 32
REGIONS = {"n0": "north", "n1": "north", "n2": "south"}


def desk() -> ReadingsDesk:
    return ReadingsDesk(SECRET, Random(1), term=7, region_of=lambda node: REGIONS.get(node, ""))


def agents(count: int = 3) -> dict[str, AgentView]:
    return {
        f"a{number}": AgentView(
            AgentRecord(
                id=f"a{number}", url=f"http://10.0.0.{number + 1}:8701", incarnation=f"i{number}", node=f"n{number}"
            ),
            1,
        )
        for number in range(count)
    }


def message(number: int = 0, **changes: object) -> Readings:
    fields: dict[str, object] = {
        "agent": f"a{number}", "incarnation": f"i{number}",
        "readings": [NodeReading(f"n{number}", 200, 1500, 1 << 30, 0.25, -1.0, missing=["network: no speed"])],
        "standing": Standing([10.0 * number, 0.0, 0.0], 0.5, 0.1),
        "probed_at": ProbePeer(f"10.0.0.{number + 1}", 8703),
    }  # fmt: skip
    return Readings(VERSION, 1, 0, 7, **{**fields, **changes})  # type: ignore[arg-type]


def test_what_came_within_a_second_is_one_event_with_its_age() -> None:
    one = desk()
    for number in range(3):
        one.heard(message(number), agents(), 10.0)
    one.heard(message(0), agents(), 10.4)
    event = one.flush(10.5)
    assert event is not None
    assert [(sample.node, round(sample.age_s, 3)) for sample in event.samples] == [
        ("n0", 0.3),
        ("n1", 0.7),
        ("n2", 0.7),
    ]
    sample = event.samples[0]
    assert (sample.cpu_millis, sample.memory_bytes, sample.disk, sample.network) == (1500, 1 << 30, 0.25, None)
    assert sample.missing == ("network: no speed",)
    assert sample.delay_us == 16_000, "the median of 11 and 21 ms"
    assert one.flush(11.5) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"agent": "nobody"}, "not_ready"),
        ({"incarnation": "another"}, "not_ready"),
        ({"readings": [NodeReading("n1", 0)]}, "forbidden"),
    ],
)
def test_an_agent_speaks_of_its_own_node_alone(changes: dict[str, object], code: str) -> None:
    one = desk()
    with pytest.raises(ReadingsRefused) as refused:
        one.heard(message(0, **changes), agents(), 1.0)
    assert refused.value.code == code
    assert one.flush(2.0) is None


def test_without_the_check_an_agent_could_speak_of_anothers_node() -> None:
    """The safeguard switched off: a registration that names the other node lets the same message pass."""
    known = {"a0": AgentView(AgentRecord(id="a0", url="http://a", incarnation="i0", node="n1"), 1)}
    one = desk()
    one.heard(message(0, readings=[NodeReading("n1", 0, 4000)]), known, 1.0)
    event = one.flush(1.0)
    assert event is not None
    assert event.samples[0].node == "n1"


def test_an_agent_of_many_nodes_has_no_node_to_speak_of() -> None:
    partition = {"a0": AgentView(AgentRecord(id="a0", url="http://a", incarnation="i0"), 1)}
    with pytest.raises(ReadingsRefused):
        desk().heard(message(0), partition, 1.0)


def test_the_answer_says_how_often_whom_to_probe_and_what() -> None:
    one = desk()
    one.changed([ObjectChanged("latencytargets", "shop", LatencyTarget("shop", "shop.example", 443))])
    one.changed([ObjectChanged("latencytargets", "south", LatencyTarget("south", region="south"))])
    one.heard(message(1), agents(), 1.0)
    ack = one.heard(message(0), agents(), 1.0)
    assert (len(ack.keys), ack.term, ack.every_ms) == (2, 7, 1000)
    assert ack.peers == [ProbePeer("10.0.0.2", 8703)]
    assert [target.name for target in ack.targets] == ["shop"]
    assert one.heard(message(0, probed_at=None), agents(), 1.0).keys == [], "who answers no probes needs no key"
    idle = desk().heard(message(0), agents(), 1.0, wanted=False)
    assert idle.every_ms == UNWANTED_S * 1000


def test_a_key_of_probes_lasts_a_minute_and_the_next_is_told_beforehand() -> None:
    one = desk()
    early, late, next_one, later = (
        one.heard(message(0), agents(), at_s).keys for at_s in (0.0, KEY_S - 1, KEY_S, 3 * KEY_S)
    )
    assert early == late
    assert early[0] != early[1] == next_one[0]
    assert not set(early) & set(later)
    assert ReadingsDesk(b"o" * 32, Random(1), term=8, region_of=str).heard(message(0), agents(), 0.0).keys != early


def test_where_agents_hear_rarely_a_key_lasts_until_they_have_heard_twice() -> None:
    many, one = agents(10_000), desk()
    every_s = one.heard(message(0), many, 0.0).every_ms / 1000
    assert every_s > KEY_S
    keys = [one.heard(message(0), many, number * every_s).keys for number in range(4)]
    assert all(set(before) & set(after) for before, after in pairwise(keys))


def test_agents_have_the_same_keys_while_their_number_changes() -> None:
    one, now_s = desk(), 1e6
    told = [one.heard(message(0), agents(count), now_s).keys for count in (4000, 4001, 4100, 3999, 2000)]
    assert all(keys == told[0] for keys in told)


def test_a_key_is_never_made_again_when_keys_last_longer() -> None:
    """What was recorded under it would be good once more."""
    one, early = desk(), 8 * KEY_S
    before = one.heard(message(0), agents(), early).keys
    one.heard(message(0), agents(4000), early)
    after = one.heard(message(0), agents(4000), early * 2).keys
    assert not set(before) & set(after)


def test_targets_are_known_when_they_are_listed() -> None:
    one = desk()
    one.changed([ObjectChanged("latencytargets", "shop", LatencyTarget("shop", "shop.example", 443))])
    assert not one.listed
    one.changed([Listed("latencytargets", served=False)])
    assert not one.listed, "a server that refuses the list for a moment has not said that there are none"
    one.changed([Listed("latencytargets")])
    assert one.listed


def test_the_targets_that_are_tried_are_those_that_agents_are_told_of() -> None:
    one = desk()
    one.changed(ObjectChanged("latencytargets", f"t{number}", LatencyTarget(f"t{number}", "h", 1))
                for number in range(MAX_TARGETS + 1))  # fmt: skip
    assert set(one.tried) == {target.name for target in one.heard(message(0), agents(), 1.0).targets}
    assert len(one.tried) == MAX_TARGETS


def test_nobody_is_sent_to_probe_an_address_that_is_not_its_agents() -> None:
    one = desk()
    ack = one.heard(message(1, probed_at=ProbePeer("10.9.9.9", 53)), agents(), 1.0)
    assert (ack.keys, ack.peers, one.misled) == ([], [], 1)
    assert one.heard(message(0), agents(), 1.0).peers == []
    event = one.flush(1.0)
    assert event is not None
    assert ELSEWHERE in event.samples[0].missing


def test_without_the_comparison_others_would_be_sent_there() -> None:
    """The safeguard switched off: a name is not compared, since the leader resolves none."""
    known = agents()
    named = replace(known["a1"].record, url="http://agent-1:8701")
    known["a1"] = AgentView(named, 1)
    one = desk()
    one.heard(message(1, probed_at=ProbePeer("10.9.9.9", 53)), known, 1.0)
    assert one.heard(message(0), known, 1.0).peers == [ProbePeer("10.9.9.9", 53)]


def test_all_agents_together_send_no_more_than_a_rate() -> None:
    ack = desk().heard(message(0), agents(1000), 1.0)
    assert 1000 / (ack.every_ms / 1000) <= MESSAGES_PER_S


def test_latencies_are_told_of_targets_that_are_there_and_regions_follow_from_coordinates() -> None:
    one = desk()
    one.changed([ObjectChanged("latencytargets", "shop", LatencyTarget("shop", "shop.example", 443))])
    one.changed([ObjectChanged("latencytargets", "south", LatencyTarget("south", region="south"))])
    told = [TargetLatency("shop", 9000, 50, 5), TargetLatency("removed", 1, 1, 5), TargetLatency("none", 0, 0, 0, 3)]
    one.heard(message(2), agents(), 1.0)
    one.heard(message(0, latencies=told), agents(), 1.0)
    event = one.flush(1.0)
    assert event is not None
    sample = event.samples[1]
    assert sample.latencies == {"shop": (9000, 50), "south": (21_000, 0)}
    assert "latency: none did not answer 3 times in a row" in sample.missing


@pytest.mark.parametrize(
    "standing", [None, Standing([1.0], 0.5, 0.1), Standing([0.0] * 3, 0.5, SURE + 0.1)], ids=["none", "odd", "unsure"]
)
def test_a_node_that_does_not_know_where_it_stands_has_no_delay(standing: Standing | None) -> None:
    one = desk()
    one.heard(message(1), agents(), 1.0)
    one.heard(message(0, standing=standing), agents(), 1.0)
    event = one.flush(1.0)
    assert event is not None
    assert [sample.delay_us for sample in event.samples if sample.node == "n0"] == [None]


def test_where_agents_fell_silent_an_empty_event_comes_now_and_then() -> None:
    one = desk()
    one.heard(message(0), agents(), 10.0)
    assert one.flush(10.0) is not None
    assert one.flush(20.0) is None
    assert one.flush(10.0 + SILENCE_S) == NodesMeasured(())
    assert one.flush(11.0 + SILENCE_S) is None
    assert desk().flush(1000.0) is None, "nobody was ever heard"


def test_events_go_on_when_all_agents_are_silent_for_good_so_that_what_they_told_is_forgotten() -> None:
    one = desk()
    one.heard(message(0), agents(), 10.0)
    one.flush(10.0)
    events = [one.flush(10.0 + second) for second in range(1, int(GONE_S) + 2 * int(SILENCE_S))]
    assert GONE_S > FORGET_S
    assert events[int(GONE_S) :].count(NodesMeasured(())) >= 1


def test_a_reading_of_an_age_that_no_offer_can_tell_is_not_taken() -> None:
    one = desk()
    one.heard(message(0, readings=[NodeReading("n0", MAX_COUNT, 1500)]), agents(), 1.0)
    one.heard(message(1, readings=[NodeReading("n1", round(MOST_AGE_S * 1000), 1500)]), agents(), 1.0)
    event = one.flush(1.0)
    assert event is not None
    assert [sample.node for sample in event.samples] == ["n1"]


def test_no_more_targets_are_told_of_a_node_than_an_offer_has_room_for() -> None:
    one = desk()
    for number in range(MAX_TARGETS // 2):
        one.changed([ObjectChanged("latencytargets", f"r{number}", LatencyTarget(f"r{number}", region="south"))])
    for number in range(MAX_TARGETS):
        one.changed([ObjectChanged("latencytargets", f"t{number}", LatencyTarget(f"t{number}", "host", 443))])
    one.heard(message(2), agents(), 1.0)
    told = [TargetLatency(f"t{number}", 9000, 50, 5) for number in range(MAX_TARGETS)]
    ack = one.heard(message(0, latencies=told), agents(), 1.0)
    event = one.flush(1.0)
    assert event is not None
    assert event.samples[1].latencies is not None
    assert len(event.samples[1].latencies) == MAX_TARGETS
    assert {target.name for target in ack.targets} <= event.samples[1].latencies.keys()


def test_the_regions_of_nodes_are_looked_up_once_for_all_samples() -> None:
    """With 1,000 nodes and a few regions, once per sample and target would be seconds of the leader's loop."""
    asked: list[str] = []

    def region_of(node: str) -> str:
        asked.append(node)
        return "south"

    one = ReadingsDesk(SECRET, Random(1), term=7, region_of=region_of)
    for region in ("north", "south", "west"):
        one.changed([ObjectChanged("latencytargets", region, LatencyTarget(region, region=region))])
    for number in range(100):
        one.heard(message(number), agents(100), 1.0)
    event = one.flush(1.0)
    assert event is not None
    assert all(sample.latencies is not None and sample.latencies.keys() == {"south"} for sample in event.samples)
    assert len(asked) <= 100


@pytest.mark.parametrize("field", ["disk", "network", "standing"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_reading_that_is_no_number_is_no_message(field: str, value: float) -> None:
    """Nothing of it is taken: an agent that tells NaN of one part is broken in the others too."""
    changes: dict[str, object] = (
        {"standing": Standing([value, 0.0, 0.0], 0.5, 0.1)}
        if field == "standing"
        else {"readings": [NodeReading("n0", 200, **{field: value})]}
    )
    with pytest.raises(WireError):
        decode(encode(message(0, **changes)), Readings)
