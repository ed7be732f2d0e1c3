"""The leader's route for readings: what it takes, and from whom."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from services.coordinator.http.peer_routes import Admin
from services.coordinator.usage.desk import ReadingsDesk
from shared.errors import WireError
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import PeerRoute
from shared.runtime.http.refusals import Refused
from shared.wire.codec import decode, encode
from shared.wire.messages import ReadingsAck
from tests.unit.services.coordinator.scene import Scene
from tests.unit.services.coordinator.usage.test_desk import agents, message


class Leading:
    """A term that is ours."""

    term = 7
    leader = None


def admin() -> Admin:
    made = Admin("c")
    leading: Any = Leading()
    made.leadership = leading
    made.core = Scene(agents=0).core
    made.core.registry.views.update(agents())
    made.desk = ReadingsDesk(b"k" * 32, Random(1), term=7, region_of=lambda _: "")
    return made


async def test_an_agents_readings_are_taken_and_answered() -> None:
    made = admin()
    for caller in (Caller("agent", "a0", certified=True), Caller("agent", certified=True), Caller()):
        assert decode(await made.readings(encode(message(0)), caller), ReadingsAck).term == 7
    assert made.desk is not None
    assert made.desk.taken == 3


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
    with pytest.raises(Refused) as refused:
        await admin().readings(encode(message(0, **changes)), caller)
    assert refused.value.code == code


async def test_a_standby_takes_none_and_what_is_no_message_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        await Admin("standby").readings(encode(message(0)), Caller())
    assert refused.value.code == "not_leader"
    with pytest.raises(WireError):
        await admin().readings(b"\xc1", Caller())


def test_only_agents_may_call_it() -> None:
    [route] = [route for route in Admin("c").routes() if isinstance(route, PeerRoute)]
    assert (route.path, route.roles) == ("/v1/readings", {"agent"})
