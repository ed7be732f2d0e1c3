"""Never two valid leaders: any delays, losses, pauses, restarts and clocks within the bound.

And the two safeguards this rests on, each seen to be needed: validity counted from the send, and the rate bound.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from shared.election.elector import Elector, ElectorState
from shared.election.events import LeaderEnded, Renew, Renewed, Start, StopElection
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from tests.unit.shared.election.election_world import World

BOUND = LeaseSettings().clock_rate_bound
rates = st.floats(1 - BOUND, 1 + BOUND)
offsets = st.floats(-1e6, 1e6)


class OneLeader(RuleBasedStateMachine):
    """Every step ends in ``World.check``: at most one valid leader, terms grow, Elected and Lost alternate."""

    @initialize(etcd_rate=rates, clocks=st.lists(st.tuples(rates, offsets, st.booleans()), min_size=2, max_size=3))
    def begin(self, etcd_rate, clocks):
        self.world = World(etcd_rate=etcd_rate)
        for number, (rate, offset, yields) in enumerate(clocks):
            self.world.add(f"n{number}", rate=rate, offset=offset, yields=yields)

    @rule(seconds=st.floats(0.01, 3.0))
    def time_passes(self, seconds):
        self.world.advance(seconds)

    @rule(seconds=st.floats(0.1, 2.0))
    def all_goes_well(self, seconds):
        self.world.run(seconds, *[node for node in self.world.nodes if not node.paused], step_s=0.1)

    @precondition(lambda self: any(message.reply is None for message in self.world.wire))
    @rule(data=st.data())
    def a_request_arrives(self, data):
        waiting = [message for message in self.world.wire if message.reply is None]
        self.world.arrive(data.draw(st.sampled_from(waiting)))
        self.world.check()

    @precondition(lambda self: any(message.reply is not None for message in self.world.wire))
    @rule(data=st.data())
    def an_answer_arrives(self, data):
        waiting = [message for message in self.world.wire if message.reply is not None]
        self.world.answer(data.draw(st.sampled_from(waiting)))

    @precondition(lambda self: self.world.wire)
    @rule(data=st.data(), arrives_later=st.booleans())
    def a_request_times_out(self, data, arrives_later):
        self.world.time_out(data.draw(st.sampled_from(self.world.wire)), arrives_later=arrives_later)

    @rule(data=st.data())
    def a_watch_delivers(self, data):
        self.world.watch(data.draw(st.sampled_from(self.world.nodes)))

    @rule(data=st.data())
    def a_candidate_is_paused_or_resumed(self, data):
        node = data.draw(st.sampled_from(self.world.nodes))
        node.paused = not node.paused

    @rule(data=st.data(), alive=st.booleans())
    def a_service_hangs_or_recovers(self, data, alive):
        data.draw(st.sampled_from(self.world.nodes)).main_alive = alive

    @rule(data=st.data())
    def a_candidate_restarts(self, data):
        data.draw(st.sampled_from(self.world.nodes)).boot()
        self.world.check()

    @rule(data=st.data())
    def a_candidate_dies_and_is_missed(self, data):
        """It is started again at once; others hear of its end, perhaps while they follow somebody else."""
        dead = data.draw(st.sampled_from(self.world.nodes))
        term = dead.state.term
        dead.boot()
        for node in self.world.nodes if term else ():
            if node is not dead and not node.paused:
                node.handle(LeaderEnded(term))
        self.world.check()

    @rule(data=st.data())
    def a_candidate_resigns(self, data):
        data.draw(st.sampled_from(self.world.nodes)).handle(StopElection())
        self.world.check()

    @rule()
    def etcd_restarts(self):
        self.world.etcd.restart()


OneLeader.TestCase.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNeverTwoValidLeaders = OneLeader.TestCase


def slow_renewal(world: World) -> None:
    """The leader's renewal reaches etcd at once, its answer takes 1.3 s; then the leader is cut off."""
    leader, follower = world.add("a"), world.add("b")
    world.settle()
    while not any(isinstance(message.request, Renew) for message in world.wire):
        world.advance(0.05)
        world.settle(follower)
    (renewal,) = [message for message in world.wire if isinstance(message.request, Renew)]
    world.arrive(renewal)
    for _ in range(26):
        world.advance(0.05)
        world.settle(follower)
    world.answer(renewal)
    leader.paused = True
    for _ in range(100):
        world.advance(0.05)
        world.settle(follower)
    assert follower.is_valid()


def test_a_slow_answer_does_not_lengthen_validity():
    slow_renewal(World())


def test_validity_counted_from_the_reply_makes_two_leaders():
    """Ablation of I2."""
    with pytest.raises(AssertionError, match="two valid leaders"):
        slow_renewal(World(count_from_reply=True))


def cut_off(world: World, rate: float) -> None:
    """A leader whose clock runs at ``rate`` is cut off right after a renewal."""
    leader, follower = world.add("a", rate=rate), world.add("b")
    world.settle()
    world.run(2.0)
    leader.paused = True
    world.run(8, follower)


def test_a_slow_clock_within_the_bound_is_safe():
    cut_off(World(etcd_rate=1 + BOUND), rate=1 - BOUND)


def test_a_clock_far_outside_the_bound_makes_two_leaders():
    """Ablation: the margin is what keeps I1, not luck. (The term still fences in etcd.)"""
    with pytest.raises(AssertionError, match="two valid leaders"):
        cut_off(World(), rate=0.5)


def test_an_answer_to_something_else_leaves_the_request_open() -> None:
    elector = Elector(LeaseSettings(), LeaderRecord(identity="a", incarnation="a1"))
    reading, asked = elector.step(ElectorState(), Start(), 0.0)
    other = Renewed(reading.request, 3.0, 0.0)
    assert asked
    assert elector.step(reading, other, 0.1) == (reading, [])
