"""A gang on nodes of two shards: one binder lends its room, the other commits all of it, and a loan ends by facts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.binder.core.events import IntentsListed
from services.binder.core.instructions import Bind, Commit, ListIntents, LookUp, ReadPod
from services.binder.core.loans import READS_AT_ONCE, Loans
from services.binder.core.state import BinderCoreSettings
from shared.ports import CreateRevisionIs, ModRevisionIs
from shared.wire.messages import Loan, Outcome, Plan
from tests.builders import make_node, make_pod
from tests.unit.services.binder.ablations import without_waiting_for_what_was_given_up
from tests.unit.services.binder.binder_checks import check_all, outcome
from tests.unit.services.binder.binder_world import KEYS, Binder, World, make_world

HOME_NODE, LENT_NODE = "n2", "n5"
"""Of shard 0, whose binder commits, and of shard 1, whose binder lends."""


def two_shards(*, settings: BinderCoreSettings | None = None) -> tuple[World, Binder, Binder]:
    """A pod fills a node."""
    world = make_world(nodes=7, pods=4, node_cpu="1", settings=settings)
    world.divide("0", "1")
    return world, world.start_binder("0"), world.start_binder("1")


def ask(world: World, lender: Binder, name: str) -> int:
    """Ask for room for a pod; the request's number."""
    return world.send(lender, replace(world.plan((name, LENT_NODE)), lend=True))


def lend(world: World, lender: Binder, name: str = "p1") -> Loan:
    request = ask(world, lender, name)
    world.run(lender, Commit)
    assert outcome(lender, request).outcome == Outcome.LENT
    [loan] = lender.answers[request].loans
    return loan


def on_loan(world: World, *placements: tuple[str, str], loans: list[Loan]) -> Plan:
    """A plan of one gang, all of which must stand."""
    return replace(world.gang(*placements, at_least=len(placements)), loans=loans)


def spanning(world: World, lender: Binder) -> Plan:
    """p0 on the home's node, p1 on the lender's."""
    return on_loan(world, ("p0", HOME_NODE), ("p1", LENT_NODE), loans=[lend(world, lender)])


def takes(world: World, lender: Binder) -> int:
    """What becomes of another pod for the lent node."""
    request = world.send(lender, world.plan(("p2", LENT_NODE)))
    world.settle(lender)
    return outcome(lender, request).outcome


def outcomes(binder: Binder, request: int) -> set[int]:
    return {result.outcome for result in binder.answers[request].results}


def test_a_gang_on_nodes_of_two_shards_is_one_intent_and_is_bound() -> None:
    world, home, lender = two_shards()
    request = world.send(home, spanning(world, lender))
    world.run(home, Commit)
    assert len(world.intents()) == 1
    world.settle(home)
    world.settle(lender)
    assert outcomes(home, request) == {Outcome.BOUND}
    assert (world.node_of("p0"), world.node_of("p1")) == (HOME_NODE, LENT_NODE)
    assert not len(lender.core.loans)
    assert check_all(world, home) == check_all(world, lender) == []


def test_the_transaction_on_a_loan_compares_the_lenders_leader_and_fence() -> None:
    world, home, lender = two_shards()
    world.send(home, spanning(world, lender))
    commit = next(effect for effect in home.effects if isinstance(effect, Commit))
    assert CreateRevisionIs(KEYS.binder_leader("1"), lender.term) in commit.compares
    assert ModRevisionIs(KEYS.binder_fence("1"), world.fence("1")) in commit.compares


def test_what_is_lent_is_nobody_elses() -> None:
    world, _, lender = two_shards()
    lend(world, lender)
    assert takes(world, lender) == Outcome.CONFLICT


def test_a_lender_that_died_before_the_commit_has_lent_nothing() -> None:
    world, home, lender = two_shards()
    request = world.send(home, spanning(world, lender))
    world.crash(lender)
    successor = world.start_binder("1")
    world.settle(home)
    assert not world.intents()
    assert outcomes(home, request) == {Outcome.CONFLICT}
    assert takes(world, successor) == Outcome.BOUND
    assert check_all(world) == []


def test_the_successor_of_a_lender_counts_what_was_committed_on_its_loan() -> None:
    world, home, lender = two_shards()
    world.send(home, spanning(world, lender))
    world.run(home, Commit)
    world.crash(lender)
    successor = world.start_binder("1")
    assert takes(world, successor) == Outcome.CONFLICT
    world.settle(home)
    assert check_all(world) == []


def test_a_loan_that_is_not_used_is_taken_back_and_a_commit_on_it_comes_too_late() -> None:
    world, home, lender = two_shards()
    plan = spanning(world, lender)
    world.pass_time(lender, 2.1)
    world.run(lender, Commit)  # its fence is moved
    world.run(lender, ListIntents)
    world.run(lender, ReadPod)
    assert not len(lender.core.loans)
    assert takes(world, lender) == Outcome.BOUND
    request = world.send(home, plan)
    world.settle(home)
    assert outcomes(home, request) == {Outcome.CONFLICT}
    assert check_all(world) == []


def test_loans_that_end_together_are_read_some_at_a_time() -> None:
    world = World()
    world.kube.add_node(make_node(LENT_NODE).allocatable(cpu="100"))
    names = [f"p{number}" for number in range(3 * READS_AT_ONCE)]
    for name in names:
        world.kube.add_pod(make_pod(name).cpu("1"))
    world.divide("0", "1")
    lender = world.start_binder("1")
    world.send(lender, replace(world.plan(*((name, LENT_NODE) for name in names)), lend=True))
    world.run(lender, Commit)
    assert len(lender.core.loans) == len(names)
    world.pass_time(lender, 2.1)
    world.run(lender, Commit)
    world.run(lender, ListIntents)
    most = 0
    while reads := sum(isinstance(effect, ReadPod) for effect in lender.effects):
        most = max(most, reads)
        world.run(lender, ReadPod)
    assert (most, len(lender.core.loans)) == (READS_AT_ONCE, 0)


def test_a_pod_that_went_while_it_was_to_be_lent_is_not_lent_to_who_asks_late() -> None:
    world, _, lender = two_shards()
    late = replace(world.plan(("p1", LENT_NODE)), lend=True)
    ask(world, lender, "p1")
    world.kube.remove_pod("p1")
    world.watch(lender)
    request = world.send(lender, late)
    world.settle(lender)
    world.pass_time(lender, 0.3)
    world.settle(lender)
    assert outcome(lender, request).outcome == Outcome.GONE
    assert not len(lender.core.loans)


def test_a_commit_that_a_lender_made_impossible_is_not_tried_again() -> None:
    world, home, lender = two_shards()
    plan = spanning(world, lender)
    world.crash(lender)
    world.start_binder("1")
    world.send(home, plan)
    world.run(home, Commit)
    world.run(home, LookUp)
    assert not any(isinstance(effect, Commit) and effect.units for effect in home.effects)


def test_room_stays_lent_as_long_as_an_intent_names_the_pod() -> None:
    world, home, lender = two_shards()
    world.send(home, spanning(world, lender))
    world.run(home, Commit)
    for _ in range(3):
        world.pass_time(lender, 3.0)
        world.settle(lender)
    assert len(lender.core.loans) == 1
    assert takes(world, lender) == Outcome.CONFLICT


def test_a_loan_in_use_costs_other_pods_no_list_of_the_intents() -> None:
    """Its Binding hangs, for a webhook or a volume; others are committed meanwhile, thousands a second."""
    world, home, lender = two_shards()
    world.send(home, spanning(world, lender))
    world.run(home, Commit)
    world.pass_time(lender, 2.1)
    world.settle(lender)
    world.send(lender, world.plan(("p2", "n6")))
    world.run(lender, Commit)
    assert len(lender.core.loans) == 1
    assert not any(isinstance(effect, ListIntents) for effect in lender.effects)


def told_an_old_list(world: World, home: Binder, lender: Binder) -> None:
    """Between a list and the move of the lender's fence the home commits; then the list comes."""
    plan = spanning(world, lender)
    before = IntentsListed(world.stored(), world.fence("1"), world.etcd.list_prefix(KEYS.intents_prefix).revision)
    world.send(home, plan)
    world.run(home, Commit)
    world.pass_time(lender, 2.1)
    world.run(lender, Commit)
    world.tell(lender, before)


def test_a_list_from_before_the_fence_was_moved_does_not_end_a_loan() -> None:
    world, home, lender = two_shards()
    told_an_old_list(world, home, lender)
    assert not any(isinstance(effect, ReadPod) for effect in lender.effects)
    assert len(lender.core.loans) == 1


def test_ablation_any_list_ends_a_loan_and_a_node_is_overcommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Loans.listed
    monkeypatch.setattr(Loans, "listed", lambda loans, intents, _: listed(loans, intents, 2**62))
    world, home, lender = two_shards()
    told_an_old_list(world, home, lender)
    world.run(lender, ReadPod)
    world.send(lender, world.plan(("p2", LENT_NODE)))
    world.run(lender, Commit)
    assert any(found.startswith(f"I2: {LENT_NODE}") for found in check_all(world))


def test_a_pod_whose_room_is_asked_for_again_is_found_out_about_at_once() -> None:
    world, _, lender = two_shards()
    lend(world, lender)
    request = ask(world, lender, "p1")
    assert outcome(lender, request).outcome == Outcome.CONFLICT
    for kind in (Commit, ListIntents, ReadPod):
        world.run(lender, kind)
    assert not len(lender.core.loans)
    lend(world, lender)


def test_a_loan_is_for_the_pod_as_it_was() -> None:
    """A pod that changed since may ask for more than its lender has checked."""
    world, home, lender = two_shards()
    plan = spanning(world, lender)
    world.kube.touch_pod("p1")
    world.watch(home)
    request = world.send(home, plan)
    assert outcomes(home, request) == {Outcome.CONFLICT}
    assert not world.intents()


def test_devices_are_those_that_the_lender_picked() -> None:
    world = World()
    world.kube.add_node(make_node(HOME_NODE).allocatable(cpu="1"))
    world.kube.add_node(make_node(LENT_NODE).gpus(2))
    for name in ("a", "b"):
        world.kube.add_pod(make_pod(name).gpu_milli(1000))
    world.divide("0", "1")
    home, lender = world.start_binder("0"), world.start_binder("1")
    first, second = lend(world, lender, "a"), lend(world, lender, "b")
    assert {*first.devices, *second.devices} == {0, 1}
    plan = on_loan(world, ("b", LENT_NODE), ("a", LENT_NODE), loans=[first, second])
    world.send(home, plan)
    world.run(home, Commit)
    [intent] = [intent for intent in world.intents().values() if intent is not None]
    assert {pod.name: list(pod.devices) for pod in intent.pods} == {"a": first.devices, "b": second.devices}


def given_up(world: World, lender: Binder) -> None:
    """p2 was committed to the node and its Binding refused for good: its intent waits to be deleted."""
    world.kube.refuse_with["bind"] = 403
    world.send(lender, world.plan(("p2", LENT_NODE)))
    world.run(lender, Commit)
    world.run(lender, Bind)
    world.kube.refuse_with.clear()
    assert len(world.intents()) == 1


def committed_on_a_loan(world: World, home: Binder, lender: Binder) -> list[str]:
    """What is wrong once the home has committed on what is lent of that node."""
    request = ask(world, lender, "p1")
    if request not in lender.answers:
        world.run(lender, Commit)
    [loan] = lender.answers[request].loans
    world.send(home, on_loan(world, ("p0", HOME_NODE), ("p1", LENT_NODE), loans=[loan]))
    world.run(home, Commit)
    return check_all(world)


def test_room_is_lent_only_once_what_was_given_up_there_cannot_come_any_more() -> None:
    world, home, lender = two_shards()
    given_up(world, lender)
    assert committed_on_a_loan(world, home, lender) == []


def test_ablation_what_is_lent_at_once_overcommits_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting_for_what_was_given_up(monkeypatch)
    world, home, lender = two_shards(settings=BinderCoreSettings())
    given_up(world, lender)
    assert any(found.startswith(f"I2: {LENT_NODE}") for found in committed_on_a_loan(world, home, lender))


def test_a_node_of_another_shard_that_nobody_lent_is_refused() -> None:
    world, home, lender = two_shards()
    plan = on_loan(world, ("p0", LENT_NODE), ("p1", LENT_NODE), loans=[lend(world, lender)])
    assert home.refusals[world.send(home, plan)].code == "wrong_shard"


def test_a_loan_is_good_for_its_pod_on_its_node_alone() -> None:
    world, home, lender = two_shards()
    loan = lend(world, lender)
    for plan in (world.plan(("p0", LENT_NODE)), world.plan(("p1", "n6")), world.plan(("p1", LENT_NODE, ["n6"]))):
        assert home.refusals[world.send(home, replace(plan, loans=[loan]))].code == "wire_invalid"


def test_room_that_is_asked_for_on_another_node_meanwhile_is_not_lent() -> None:
    """The pod is on its way to be lent on one node, when a plan asks for it on another."""
    world, _, lender = two_shards()
    first = ask(world, lender, "p1")
    second = world.send(lender, replace(world.plan(("p1", "n6")), lend=True))
    world.run(lender, Commit)
    assert outcome(lender, first).outcome == Outcome.LENT
    assert outcome(lender, second).outcome == Outcome.CONFLICT
    assert lender.answers[second].loans == []


def to_lend(world: World) -> Plan:
    """As coordinators ask: in a gang that cannot reach its minimum."""
    plan = world.gang(("p1", LENT_NODE), at_least=2)
    return replace(plan, lend=True)


def test_a_plan_that_lends_commits_nothing() -> None:
    world, _, lender = two_shards()
    request = world.send(lender, to_lend(world))
    world.settle(lender)
    assert outcomes(lender, request) == {Outcome.LENT}
    assert not world.intents()
    assert world.node_of("p1") == ""


def test_a_binder_from_before_loans_commits_nothing_of_a_plan_that_lends() -> None:
    """It reads the fields that it knows."""
    world, _, lender = two_shards()
    request = world.send(lender, replace(to_lend(world), lend=False))
    world.settle(lender)
    assert outcomes(lender, request) == {Outcome.CONFLICT}
    assert not world.commitments
    assert world.node_of("p1") == ""


def test_a_lone_pod_is_committed_on_a_loan_too() -> None:
    """A member that comes late, or anew, and finds its home full."""
    world, home, lender = two_shards()
    loan, plan = lend(world, lender), world.plan(("p1", LENT_NODE))
    world.send(home, replace(plan, loans=[loan]))
    world.settle(home)
    assert world.node_of("p1") == LENT_NODE
    assert check_all(world, home) == []


def test_a_transaction_on_a_loan_carries_no_other_new_intent() -> None:
    """A loan that was taken back must not hold up pods that rest on none."""
    world, home, lender = two_shards()
    gang = spanning(world, lender)
    world.send(home, world.plan(("p2", "n0")))
    world.send(home, gang)
    world.send(home, world.plan(("p3", "n1")))
    written: list[list[str]] = []
    while len(written) < 3:
        before = len(world.commitments)
        world.run(home, Commit)
        written.append([entry.intent.group for entry in world.commitments[before:]])
    assert written == [[""], ["podgroup:default/g"], [""]]


def test_a_pod_is_not_lent_while_an_earlier_read_of_it_is_under_way() -> None:
    """Its answer would be taken for one that ends the loan."""
    world, _, lender = two_shards()
    world.kube.add_pod(make_pod("late").cpu("1"))
    request = ask(world, lender, "late")
    world.pass_time(lender, 0.3)
    assert any(isinstance(effect, ReadPod) for effect in lender.effects)
    world.watch(lender)
    assert not any(isinstance(effect, Commit) for effect in lender.effects)
    world.run(lender, ReadPod)
    world.run(lender, Commit)
    assert outcome(lender, request).outcome == Outcome.LENT
