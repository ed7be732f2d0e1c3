"""The elector's rules, one test each, in virtual time."""

from __future__ import annotations

import pytest

from shared.election.elector import MOST_YIELD_S, Elector, ElectorPhase, ElectorState
from shared.election.events import (
    ClaimKey,
    Elected,
    ElectionTick,
    Failed,
    Granted,
    GrantLease,
    KeySeen,
    LeaderEnded,
    LeaderRead,
    ReadLeader,
    RemoveLeftover,
    Renew,
    Renewed,
    Revoke,
    Start,
    StopElection,
    StopLeading,
)
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from shared.ports import KeyValue
from tests.unit.shared.election.election_world import KEY, World, key_value


def led_world(*, followers: int = 1, **options):
    world = World(**options)
    leader = world.add("a")
    world.settle()
    others = [world.add(f"b{number}") for number in range(followers)]
    world.settle()
    assert leader.is_valid()
    return world, leader, *others


# --- campaigning ------------------------------------------------------------------------------------------------


def test_a_lone_candidate_leads_with_the_create_revision_as_term():
    world, leader, _ = led_world()
    assert leader.heard == [Elected(key_value(world).create_revision)]
    assert leader.state.term == key_value(world).create_revision


def test_the_first_steps_are_read_grant_claim():
    elector = Elector(LeaseSettings(), LeaderRecord(identity="a", incarnation="1"))
    state, out = elector.step(ElectorState(), Start(), 10.0)
    assert out == [ReadLeader(1)]
    state, out = elector.step(state, LeaderRead(1, None, 7), 10.1)
    assert out == [GrantLease(2, 3)]
    state, out = elector.step(state, Granted(2, 99, 3.0, 10.2), 10.3)
    assert out == [ClaimKey(3, 99, elector.value)]
    assert not state.is_valid(10.3)


def test_a_follower_knows_leader_and_term_and_holds_no_lease():
    _world, leader, follower = led_world()
    assert follower.state.phase is ElectorPhase.FOLLOWING
    assert follower.state.leader.term == leader.state.term
    assert follower.state.leader.value == leader.elector.value
    assert follower.state.lease_id == 0


def test_a_follower_campaigns_the_moment_its_watch_says_the_key_is_gone():
    world, leader, follower = led_world()
    leader.paused = True
    world.etcd.revoke_lease(leader.state.lease_id)
    world.watch(follower)
    assert follower.state.phase is ElectorPhase.GRANTING
    leader.handle(StopElection())
    world.settle()
    assert follower.is_valid()


def test_a_follower_with_a_dead_watch_still_finds_out():
    world, leader, follower = led_world()
    leader.handle(StopElection())
    world.wire.clear()
    world.etcd.revoke_lease(leader.state.lease_id)
    follower.watched_up_to = 10**6
    world.run(world.settings.observe_every_s + 1, follower, step_s=0.5)
    assert follower.is_valid()


def test_an_old_watch_event_does_not_depose():
    _world, leader, _ = led_world()
    leader.handle(KeySeen(KeyValue(KEY, b"", 0, leader.state.term - 1), deleted=True))
    assert leader.is_valid()


def test_a_read_that_the_watch_overtook_is_read_again():
    elector = Elector(LeaseSettings(), LeaderRecord(identity="a", incarnation="1"))
    state, _ = elector.step(ElectorState(), Start(), 0.0)
    state, _ = elector.step(state, KeySeen(KeyValue(KEY, b"{}", 9, 9)), 0.0)
    state, out = elector.step(state, LeaderRead(1, None, 8), 0.1)
    assert out == [ReadLeader(2)]


def test_a_hung_service_does_not_campaign():
    world, leader, follower = led_world()
    follower.main_alive = False
    world.advance(0.1)
    leader.handle(StopElection())
    world.settle(leader)
    world.run(5, follower)
    assert not follower.is_valid()
    follower.main_alive = True
    world.run(1, follower)
    assert follower.is_valid()


# --- renewing and losing ----------------------------------------------------------------------------------------


def test_a_leader_that_renews_keeps_one_term():
    world, leader, _ = led_world()
    world.run(60)
    assert leader.is_valid()
    assert len(leader.heard) == 1


def test_a_leader_renews_once_per_interval_only():
    world, _leader, _ = led_world()
    sent = 0
    for _ in range(100):
        world.advance(0.1)
        sent += sum(isinstance(message.request, Renew) for message in world.wire)
        world.settle()
    assert 9 <= sent <= 10


def test_a_failed_renewal_is_tried_again_before_validity_ends():
    world, leader, _ = led_world()
    failed = 0
    while failed < 2:
        world.advance(0.05)
        for message in [message for message in world.wire if isinstance(message.request, Renew)]:
            world.time_out(message, arrives_later=False)
            failed += 1
    world.run(1)
    assert leader.is_valid()
    assert len(leader.heard) == 1


def test_validity_ends_by_the_clock_without_any_event():
    world, leader, _ = led_world()
    sent_at = leader.state.sent_at
    assert leader.state.is_valid(sent_at + world.settings.renew_deadline_s - 0.001)
    assert not leader.state.is_valid(sent_at + world.settings.renew_deadline_s)


def test_a_leader_cut_from_etcd_is_lost_before_its_successor_leads():
    world, leader, follower = led_world()
    world.run(2.0)
    cut_at = world.true_s
    while not follower.is_valid():
        world.advance(0.01)
        world.settle(follower)
        world.check()
        assert world.true_s - cut_at < 5
    assert leader.heard[-1].reason == "validity_over"


def test_a_renewal_answered_with_no_ttl_loses_at_once():
    world, leader, _ = led_world()
    world.etcd.revoke_lease(leader.state.lease_id)
    world.advance(1.0)
    (message,) = [message for message in world.wire if isinstance(message.request, Renew)]
    world.arrive(message)
    world.answer(message)
    assert leader.heard[-1] == StopLeading(leader.heard[0].term, "lease_expired")


def test_a_deleted_key_deposes_and_the_next_term_is_greater():
    world, leader, follower = led_world()
    first = leader.state.term
    world.etcd.revoke_lease(leader.state.lease_id)
    world.watch(leader)
    assert leader.heard[-1] == StopLeading(first, "deposed")
    world.settle()
    assert max(leader.state.term, follower.state.term) > first


def test_a_hung_service_loses_its_leadership():
    world, leader, follower = led_world()
    leader.main_alive = False
    world.run(4)
    assert not leader.is_valid()
    assert follower.is_valid()


def test_a_late_answer_to_an_earlier_request_changes_nothing():
    _world, leader, _ = led_world()
    before = leader.state
    leader.handle(Renewed(leader.state.request - 1, 3.0, leader.now + 100))
    leader.handle(Failed(leader.state.request + 5, unknown=True))
    assert leader.state == before


def test_a_paused_leader_wakes_up_invalid_and_says_so_first():
    world, leader, follower = led_world()
    leader.paused = True
    world.run(6, follower)
    assert follower.is_valid()
    assert not leader.is_valid()
    leader.paused = False
    leader.handle(ElectionTick())
    assert leader.heard[-1].reason == "validity_over"
    world.run(2)
    assert follower.is_valid()


# --- unknown outcomes -------------------------------------------------------------------------------------------


def claim_in_flight():
    world = World()
    node = world.add("a")
    while not any(isinstance(message.request, ClaimKey) for message in world.wire):
        for message in list(world.wire):
            world.arrive(message)
            world.answer(message)
    return world, node, world.wire[0]


def test_a_claim_that_won_without_its_answer_is_found_by_reading():
    world, node, message = claim_in_flight()
    world.arrive(message)
    world.time_out(message, arrives_later=False)
    assert node.state.phase is ElectorPhase.READING
    world.settle()
    assert node.heard == [Elected(key_value(world).create_revision)]


def test_a_claim_that_arrives_after_it_was_given_up_cannot_win():
    world, node, message = claim_in_flight()
    world.time_out(message, arrives_later=True)
    world.wire.remove(message)
    world.settle()
    term = node.state.term
    world.arrive(message)
    assert key_value(world).create_revision == term
    assert node.is_valid()


def test_a_claim_answered_after_its_validity_is_not_taken():
    world, node, message = claim_in_flight()
    world.arrive(message)
    world.true_s += 2.5
    world.answer(message)
    assert node.heard == []
    assert node.state.phase is ElectorPhase.LEAVING


# --- leftovers and resigning ------------------------------------------------------------------------------------


def test_a_restarted_leader_removes_its_own_leftover_at_once():
    world, leader = led_world(followers=0)
    first = leader.state.term
    leader.boot()
    world.settle()
    assert leader.is_valid()
    assert leader.state.term > first


def test_the_leftover_is_removed_only_under_its_own_term():
    world, leader = led_world(followers=0)
    stale_term = leader.state.term
    leader.boot()
    world.arrive(world.wire[0])
    world.answer(world.wire[0])
    (message,) = world.wire
    assert message.request == RemoveLeftover(message.request.request, stale_term)
    # Meanwhile the lease ended and another candidate won.
    world.etcd.revoke_lease(world.etcd.get(KEY).lease_id)
    other = world.add("b")
    world.settle(other)
    world.settle()
    assert other.is_valid()
    assert not leader.is_valid()


def test_where_others_stand_by_a_restarted_leader_clears_its_leftover_and_lets_them_lead():
    world, leader, follower = led_world()
    leader.yields = True
    leader.boot()
    world.settle(leader)  # before the other one's watch has told it anything
    assert key_value(world) is None
    assert leader.state.phase is ElectorPhase.FOLLOWING
    world.settle()
    assert follower.is_valid()
    assert leader.state.leader.term == follower.state.term


def test_a_leftover_that_nobody_takes_is_the_restarted_leaders_after_a_leases_time():
    world, leader, follower = led_world()
    follower.paused = True
    leader.yields = True
    leader.boot()
    world.settle(leader)
    world.run(world.settings.lease_ttl_s - 0.1, leader)
    assert not leader.is_valid()
    world.run(0.3, leader)
    assert leader.is_valid()


def test_who_let_another_one_lead_campaigns_at_once_when_that_one_goes():
    world, leader, follower = led_world()
    leader.yields = True
    leader.boot()
    world.settle()
    follower.handle(StopElection())
    world.settle()
    assert leader.is_valid()


def test_a_leader_whose_process_has_ended_is_followed_without_waiting_for_its_lease():
    world, leader, follower = led_world()
    leader.paused = True
    world.nodes.remove(leader)
    follower.handle(LeaderEnded(follower.state.leader.term))
    world.settle()
    assert follower.is_valid()


def test_the_end_of_a_leader_is_acted_on_after_a_read_that_was_on_its_way():
    world, leader, follower = led_world()
    world.nodes.remove(leader)
    while follower.state.phase is not ElectorPhase.READING:
        world.advance(0.1)
        world.settle(leader)
    follower.handle(LeaderEnded(leader.state.term))
    assert key_value(world) is not None
    world.settle(follower)
    assert follower.is_valid()


@pytest.mark.parametrize("arrives_later", [False, True])
def test_the_end_of_a_leader_is_acted_on_again_where_etcd_did_not_answer(arrives_later):
    world, leader, follower = led_world()
    world.nodes.remove(leader)
    follower.handle(LeaderEnded(leader.state.term))
    (removal,) = [message for message in world.wire if message.node is follower]
    assert isinstance(removal.request, RemoveLeftover)
    world.time_out(removal, arrives_later=arrives_later)
    world.run(2 * world.settings.retry_s, follower)
    assert follower.is_valid()


def test_a_removal_that_etcd_refuses_is_not_tried_for_ever():
    world, leader, follower = led_world()
    follower.handle(LeaderEnded(leader.state.term))
    (removal,) = world.wire
    world.wire.clear()
    follower.handle(Failed(removal.request.request, unknown=False))
    world.run(2 * world.settings.retry_s)
    assert follower.state.phase is ElectorPhase.FOLLOWING
    assert leader.is_valid()


def test_with_long_leases_too_a_leftover_that_nobody_takes_is_soon_the_restarted_leaders():
    world, leader, follower = led_world(settings=LeaseSettings.for_ttl(600))
    follower.paused = True
    leader.yields = True
    leader.boot()
    world.settle(leader)
    world.run(MOST_YIELD_S + 0.2, leader)
    assert leader.is_valid()


def test_the_end_of_an_earlier_leader_removes_nobodys_key():
    world, leader, follower = led_world()
    term = leader.state.term
    for late in (term - 1, term + 1):
        follower.handle(LeaderEnded(late))
        world.settle()
    leader.handle(LeaderEnded(term))
    world.settle()
    assert leader.is_valid()
    assert key_value(world).create_revision == term


def test_a_leader_that_is_wrongly_said_to_have_ended_hears_that_it_is_deposed():
    world, leader, follower = led_world()
    world.nodes.remove(leader)  # I1 leaves this to the term: until it hears of it, it is valid by its clock too
    follower.handle(LeaderEnded(leader.state.term))
    world.settle()
    assert follower.is_valid()
    world.watch(leader)
    assert leader.heard[-1] == StopLeading(leader.heard[0].term, "deposed")


def test_the_key_of_another_identity_is_not_removed_by_a_restart():
    world, leader, follower = led_world()
    for _ in range(3):
        follower.boot()
        world.settle()
    assert leader.is_valid()
    assert len(leader.heard) == 1


def test_two_processes_with_one_identity_do_not_depose_each_other_for_ever():
    world, first = led_world(followers=0)
    # The one case that I1 leaves to the term: until it hears of the change, the first one is valid by its clock too.
    world.nodes.remove(first)
    second = world.add("a", incarnation=5)
    world.settle(second)
    world.watch(first)
    world.nodes.append(first)
    changes = len(first.heard) + len(second.heard)
    first.handle(ElectionTick())
    world.settle()
    world.run(30)
    assert len(first.heard) + len(second.heard) <= changes + 2


def test_resigning_lets_a_successor_lead_without_waiting_for_the_ttl():
    world, leader, follower = led_world()
    at = world.true_s
    leader.handle(StopElection())
    assert leader.heard[-1].reason == "resigned"
    assert not leader.is_valid()
    world.settle()
    assert follower.is_valid()
    assert world.true_s == at
    assert leader.state.phase is ElectorPhase.STOPPED


def test_resigning_says_lost_before_the_lease_is_revoked():
    _world, leader, _ = led_world()
    state, out = leader.elector.step(leader.state, StopElection(), leader.now)
    assert [type(instruction) for instruction in out] == [StopLeading, Revoke]
    assert not state.is_valid(leader.now)


@pytest.mark.parametrize("steps", range(6))
def test_stopping_ends_from_every_phase_and_leaves_no_key(steps):
    world = World()
    node = world.add("a")
    for _ in range(steps):
        for message in list(world.wire):
            world.arrive(message)
            world.answer(message)
        if not world.wire:
            world.advance(1.0)
    node.handle(StopElection())
    world.settle()
    assert node.state.phase is ElectorPhase.STOPPED
    assert key_value(world) is None


def test_a_stopped_elector_ignores_everything():
    world, leader, _ = led_world()
    leader.handle(StopElection())
    world.settle()
    before = leader.state
    leader.handle(Start())
    leader.handle(ElectionTick())
    assert leader.state is before


# --- what must hold between two steps ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("elector-term", ElectorState(ElectorPhase.LEADING, lease_id=1, valid_until=9.0, wake_at=1.0)),
        ("elector-term", ElectorState(ElectorPhase.FOLLOWING, term=7, wake_at=1.0)),
        ("elector-lease", ElectorState(ElectorPhase.LEADING, term=7, wake_at=1.0)),
        ("elector-lease", ElectorState(ElectorPhase.FOLLOWING, lease_id=1, wake_at=1.0)),
        ("elector-validity", ElectorState(ElectorPhase.LEAVING, valid_until=9.0, lease_id=1, in_flight=True)),
        ("elector-goes-on", ElectorState(ElectorPhase.READING)),
        ("elector-goes-on", ElectorState(ElectorPhase.CLAIMING, wake_at=1.0, lease_id=1)),
    ],
)
def test_what_is_broken_in_an_elector_is_named(name, state):
    assert list(ElectorState().validate()) == []
    assert name in {problem.partition(":")[0] for problem in state.validate()}
