"""The leader's route for readings: what it takes, and from whom."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from services.coordinator.http.peer_routes import Admin
from services.coordinator.usage.desk import ReadingsDesk
from shared.errors import WireError
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import PeerRoute
from shared.runtime.http.refusals import RequestRefused
from shared.wire.codec import decode, encode
from shared.wire.messages import ReadingsAck
from tests.unit.services.coordinator.scene import Scene
from tests.unit.services.coordinator.usage.test_desk import agents, message
from tests.unit.services.coordinator.usage.test_speakers import of_sensor


class Leading:
    """A term that is ours."""

    term = 7
    leader = None


def admin() -> Admin:
    made, core = Admin("c"), Scene(agents=0).core
    core.registry.views.update(agents())
    parts: Any = SimpleNamespace(
        core=core,
        desk=ReadingsDesk(b"k" * 32, Random(1), term=7, region_of=lambda _: ""),
        loans=SimpleNamespace(on=False),
    )
    leading: Any = Leading()
    made.leadership, made.parts = leading, parts
    return made


async def test_an_agents_readings_are_taken_and_answered() -> None:
    made = admin()
    for caller in (Caller("agent", "a0", certified=True), Caller("agent", certified=True), Caller()):
        assert decode(await made.readings(encode(message(0)), caller), ReadingsAck).term == 7
    assert made.parts is not None
    assert made.parts.desk.taken == 3


@pytest.mark.parametrize(
    ("changes", "caller", "code"),
    [
        ({}, Caller("agent", "a1", certified=True), "foreign_agent"),
        ({"incarnation": "other"}, Caller("agent", "a0", certified=True), "not_ready"),
        ({"agent": "a1", "incarnation": "i1"}, Caller("agent", "a1", certified=True), "forbidden"),
    ],
    ids=["another's certificate", "another incarnation", "another's node"],
)
async def test_who_speaks_for_another_is_refused(changes: dict[str, object], caller: Caller, code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        await admin().readings(encode(message(0, **changes)), caller)
    assert refused.value.code == code


async def test_a_standby_takes_none_and_what_is_no_message_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        await Admin("standby").readings(encode(message(0)), Caller())
    assert refused.value.code == "not_leader"
    with pytest.raises(WireError):
        await admin().readings(b"\xc1", Caller())


def test_only_agents_and_sensors_may_call_it() -> None:
    [route] = [route for route in Admin("c").routes() if isinstance(route, PeerRoute)]
    assert (route.path, route.roles) == ("/v1/readings", {"agent", "sensor"})


async def test_a_sensor_is_known_by_its_role_and_sends_what_a_sensor_sends() -> None:
    made = admin()
    assert made.core is not None
    made.core.state.started = True
    for caller in (Caller("sensor", certified=True), Caller("sensor", "n0", certified=True), Caller()):
        await made.readings(encode(of_sensor()), caller)
    for caller, sent, code in (
        (Caller("agent", "n0", certified=True), of_sensor(), "forbidden"),
        (Caller("sensor", certified=True), message(0), "forbidden"),
        (Caller("sensor", "n1", certified=True), of_sensor(), "foreign_agent"),
    ):
        with pytest.raises(RequestRefused) as refused:
            await made.readings(encode(sent), caller)
        assert refused.value.code == code


async def test_a_sensor_is_not_told_that_its_node_is_unknown_before_the_leader_has_listed_them() -> None:
    made = admin()
    assert made.core is not None
    made.core.state.started = False
    with pytest.raises(RequestRefused) as refused:
        await made.readings(encode(of_sensor()), Caller())
    assert refused.value.code == "not_ready"


async def test_a_sensors_probes_come_from_where_it_calls() -> None:
    made = admin()
    assert made.core is not None
    made.core.state.started = True
    for address, answered in (("10.0.0.1", 2), ("10.9.9.9", 0)):
        caller = Caller("sensor", certified=True, address=address)
        ack = decode(await made.readings(encode(of_sensor()), caller), ReadingsAck)
        assert len(ack.keys) == answered
    assert made.parts is not None
    assert made.parts.desk.misled == 1
