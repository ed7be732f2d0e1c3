"""Batches of intents: their limits, what may not share one, and transactions that come late."""

from __future__ import annotations

import pytest

from services.binder.core.events import LookedUp, StoredIntent
from services.binder.core.instructions import Bind, Commit, LookUp, ReadPod
from services.binder.cycle.commit import MAX_OPS, MAX_SENDS, Committer
from shared.ports import MAX_TXN_OPS, DeleteKey, Put
from shared.wire.keys import Keys
from shared.wire.messages import Outcome
from shared.wire.records import Intent, IntentPod
from tests.builders import make_pod
from tests.unit.services.binder.ablations import without_creations, without_marking
from tests.unit.services.binder.binder_checks import check_all, check_i4
from tests.unit.services.binder.binder_world import World, make_world


def intent(uid: str, *, coordinator_term: int = 7, plan_id: int = 1) -> Intent:
    pod = IntentPod(uid=uid, ns="default", name=uid, rv="1", node="n")
    return Intent(plan_id=plan_id, coordinator_term=coordinator_term, unit=1, pods=(pod,), term=3)


def make_committer() -> Committer:
    return Committer(Keys(), shard="0", term=3, linger_s=0.05)


def commit(committer: Committer, now: float = 0.0) -> Commit:
    made = committer.next_commit(now)
    assert made is not None
    return made


def test_a_batch_stays_within_etcds_limits_whatever_waits() -> None:
    committer = make_committer()
    for number in range(300):
        committer.put(f"new-{number}", intent(f"new-{number}"))
        committer.adopt(f"old-{number}", 5)
        committer.clear(f"old-{number}", 0.0)
        committer.adopt(f"again-{number}", 5)
        committer.renew(f"again-{number}", intent(f"again-{number}"))
    batches = 0
    while (made := committer.next_commit(1.0)) is not None:
        assert len(made.ops) <= MAX_OPS
        assert len(made.compares) <= MAX_TXN_OPS
        assert len({op.key for op in made.ops}) == len(made.ops)
        committer.succeeded(made.batch, 9, 1.0)
        batches += 1
    assert batches == -(-900 // MAX_OPS)


def test_deletes_and_what_must_be_absent_stay_within_etcds_limits_together() -> None:
    committer = make_committer()
    for number in range(60):
        committer.put(f"lost-{number}", intent(f"lost-{number}"))
    made = commit(committer)
    for number in range(60):
        committer.clear(f"lost-{number}", 0.0)
    committer.failed(LookedUp(made.batch, 3, 7, {}), 0.0)
    for number in range(300):
        committer.adopt(f"old-{number}", 5)
        committer.clear(f"old-{number}", 0.0)
    made = commit(committer, 1.0)
    assert len(made.compares) <= MAX_TXN_OPS


def test_what_is_lent_is_told_though_more_is_committed_without_end() -> None:
    """Each transaction is full of new intents, and what ended before waits to be deleted."""
    committer = make_committer()
    ended: list[str] = []
    for number in range(20):
        for new in range(200):
            committer.put(f"{number}-{new}", intent(f"{number}-{new}"))
        if number == 10:
            committer.fence.pass_by("lent")
        made = commit(committer)
        done = committer.succeeded(made.batch, 9 + number, 0.0)
        if "lent" in done:
            break
        for key in ended:
            committer.clear(key, 0.0)
        ended = list(done)
    assert "lent" in done


def test_only_one_transaction_is_in_flight() -> None:
    committer = make_committer()
    committer.put("a", intent("a"))
    commit(committer)
    committer.put("b", intent("b"))
    assert committer.next_commit(1.0) is None


def test_plans_of_two_coordinators_do_not_share_a_transaction() -> None:
    committer = make_committer()
    committer.put("a", intent("a", coordinator_term=7))
    committer.put("b", intent("b", coordinator_term=8))
    first = commit(committer)
    assert [op.key for op in first.ops] == [Keys().intent("a")]
    committer.succeeded(first.batch, 9, 0.0)
    assert [op.key for op in commit(committer).ops] == [Keys().intent("b")]


def test_a_clear_alone_waits_a_moment_for_company() -> None:
    committer = make_committer()
    committer.adopt("a", 5)
    committer.clear("a", 10.0)
    assert committer.next_commit(10.0) is None
    assert committer.wake_at() == pytest.approx(10.05)
    assert commit(committer, 10.06).ops == (DeleteKey(Keys().intent("a")),)


def test_a_key_that_is_being_deleted_is_put_with_the_next_transaction() -> None:
    committer = make_committer()
    committer.adopt("a", 5)
    committer.clear("a", 0.0)
    committer.put("a", intent("a"))
    first = commit(committer, 1.0)
    assert first.ops == (DeleteKey(Keys().intent("a")),)
    committer.succeeded(first.batch, 9, 1.0)
    assert isinstance(commit(committer, 1.0).ops[0], Put)


def test_a_unit_settled_while_its_first_transaction_is_in_flight_is_deleted_afterwards() -> None:
    committer = make_committer()
    committer.put("a", intent("a"))
    first = commit(committer)
    committer.clear("a", 0.0)
    committer.succeeded(first.batch, 9, 0.0)
    assert commit(committer, 1.0).ops == (DeleteKey(Keys().intent("a")),)


def test_a_unit_settled_before_it_was_sent_needs_no_transaction() -> None:
    committer = make_committer()
    committer.put("a", intent("a"))
    committer.clear("a", 0.0)
    assert committer.next_commit(1.0) is None


def test_an_intent_etcd_does_not_take_is_given_up_after_some_tries() -> None:
    committer = make_committer()
    committer.put("a", intent("a"))
    for attempt in range(MAX_SENDS):
        made = commit(committer, float(attempt))
        diagnosis = committer.failed(LookedUp(made.batch, 3, 7, {}), float(attempt))
        assert diagnosis is not None
    assert diagnosis.exhausted == ["a"]
    assert committer.next_commit(99.0) is None


def test_another_intent_under_the_key_is_foreign() -> None:
    committer = make_committer()
    committer.put("a", intent("a"))
    made = commit(committer)
    other = StoredIntent(intent("a", plan_id=99), 5)
    diagnosis = committer.failed(LookedUp(made.batch, 3, 7, {"a": other}), 0.0)
    assert diagnosis is not None
    assert diagnosis.foreign == {"a": other}


def test_an_answer_to_another_batch_changes_nothing() -> None:
    committer = make_committer()
    committer.put("a", intent("a"))
    made = commit(committer)
    assert committer.succeeded(made.batch + 1, 9, 0.0) == {}
    assert committer.failed(LookedUp(made.batch + 1, 3, 7, {}), 0.0) is None
    assert committer.sent is not None


# --- transactions that come late ------------------------------------------------------------------------------------


def late_renewal() -> World:
    """A renewal gets no answer, is made again, the pod is bound and cleared; then the first one arrives."""
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.kube.touch_pod("p0")
    world.run(binder, Bind)
    world.run(binder, ReadPod)
    world.run(binder, Commit, fault="late")
    world.run(binder, LookUp)
    world.settle(binder)
    world.lead_coordinator()
    world.carry_out(world.late.pop())
    return world


def test_a_late_renewal_does_not_bring_back_a_deleted_intent() -> None:
    world = late_renewal()
    assert world.intents() == {}
    assert check_all(world) == []


def test_ablation_without_comparing_the_creation_a_late_renewal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    without_creations(monkeypatch)
    world = late_renewal()
    assert check_i4(world.commitments) != []


def late_delete() -> tuple[World, int]:
    """A delete gets no answer and is made again, the pod is planned anew; then the first delete arrives."""
    world = make_world()
    binder = world.start_binder()
    world.kube.refuse_with["bind"] = 403
    world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.pass_time(binder, 0.1)
    world.run(binder, Commit, fault="late")
    world.settle(binder)
    world.kube.refuse_with.clear()
    request = world.send(binder, world.plan(("p0", "n1")))
    world.run(binder, Commit)
    world.carry_out(world.late.pop())
    intents = len(world.intents())
    world.settle(binder)
    assert binder.answers[request].results[0].outcome == Outcome.BOUND
    return world, intents


def test_a_late_delete_does_not_remove_a_newer_intent() -> None:
    assert late_delete()[1] == 1


def test_ablation_without_comparing_the_creation_a_late_delete_does(monkeypatch: pytest.MonkeyPatch) -> None:
    without_creations(monkeypatch)
    assert late_delete()[1] == 0


# --- marking ----------------------------------------------------------------------------------------------------------


def zombie_after_withdrawal() -> World:
    """An intent on a cordoned node is withdrawn, its room given away; then the dead leader's Binding comes."""
    world = make_world(nodes=1, pods=1, node_cpu="1")
    old = world.start_binder()
    world.send(old, world.plan(("p0", "n0")))
    world.run(old, Commit)
    world.crash(old)
    world.kube.change_node("n0", unschedulable=True)
    new = world.start_binder()
    world.kube.change_node("n0", unschedulable=False)
    world.kube.add_pod(make_pod("p1").cpu("1"))
    world.watch(new)
    world.send(new, world.plan(("p1", "n0")))
    world.settle(new)
    for effect in world.late:
        world.carry_out(effect)
    return world


def test_a_withdrawn_units_late_binding_finds_the_pod_marked() -> None:
    world = zombie_after_withdrawal()
    assert (world.node_of("p0"), world.node_of("p1")) == ("", "n0")
    assert check_all(world) == []


def test_ablation_without_marking_the_late_binding_overcommits_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    without_marking(monkeypatch)
    world = zombie_after_withdrawal()
    assert any(violation.startswith("I2") for violation in check_all(world))


# --- intents that were given up while they may still come ------------------------------------------------------------


def give_up(committer: Committer, count: int) -> None:
    """So many intents are sent without an answer, not found, and given up."""
    for number in range(count):
        committer.put(f"ghost-{number}", intent(f"ghost-{number}"))
    while (made := committer.next_commit(1.0)) is not None:
        for number in range(count):
            committer.clear(f"ghost-{number}", 1.0)
        committer.failed(LookedUp(made.batch, 3, 7, {}), 1.0)


def test_what_was_given_up_is_compared_to_be_absent_within_etcds_limits() -> None:
    committer = make_committer()
    give_up(committer, 100)
    for number in range(200):
        committer.put(f"new-{number}", intent(f"new-{number}"))
    compared: set[str] = set()
    written: list[str] = []
    while (made := committer.next_commit(1.0)) is not None:
        assert len(made.compares) <= MAX_TXN_OPS
        compared |= {compare.key for compare in made.compares}
        written += [op.key for op in made.ops if "new" in op.key]
        assert not written or sum("ghost" in key for key in compared) == 100, "all of them before the first new one"
        committer.succeeded(made.batch, 9, 1.0)
    assert len(written) == 200


def test_what_was_given_up_and_comes_after_all_is_deleted() -> None:
    committer = make_committer()
    give_up(committer, 1)
    committer.put("new", intent("new"))
    made = commit(committer, 1.0)
    assert committer.failed(LookedUp(made.batch, 3, 7, {"ghost-0": StoredIntent(intent("ghost-0"), 8)}), 1.0)
    assert [op.key for op in commit(committer, 1.0).ops if isinstance(op, DeleteKey)] == [Keys().intent("ghost-0")]


def test_a_gang_waits_until_the_intents_of_its_pods_are_deleted() -> None:
    committer = make_committer()
    for number in range(200):
        committer.adopt(f"old-{number}", 5)
        committer.clear(f"old-{number}", 0.0)
    pods = tuple(IntentPod(uid=f"old-{number}", ns="d", name="p", rv="1", node="n") for number in (0, 199))
    committer.put("gang:7-1", Intent(plan_id=1, coordinator_term=7, unit=1, pods=pods, group="g", min_count=2))
    deleted: set[str] = set()
    while (made := committer.next_commit(1.0)) is not None:
        deleted |= {op.key for op in made.ops if isinstance(op, DeleteKey)}
        if any(isinstance(op, Put) for op in made.ops):
            assert {Keys().intent("old-0"), Keys().intent("old-199")} <= deleted
        committer.succeeded(made.batch, 9, 1.0)
    assert committer.holds("gang:7-1")


def test_a_lone_pod_waits_until_its_gangs_intent_is_deleted_or_rewritten() -> None:
    committer = make_committer()
    for number in range(200):
        committer.adopt(f"old-{number}", 5)
        committer.clear(f"old-{number}", 0.0)
    committer.adopt("gang:7-1", 5)
    committer.clear("gang:7-1", 0.0, first=True)
    committer.put("a", intent("a"))
    first = commit(committer, 1.0)
    assert DeleteKey(Keys().intent("gang:7-1")) in first.ops
    assert any(isinstance(op, Put) for op in first.ops)
