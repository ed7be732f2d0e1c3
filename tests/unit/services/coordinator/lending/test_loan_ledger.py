"""What is written of what nodes lend, and when."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.lending.ledger import LoanLedger
from shared.scheduling.lending.rule import LendingRule
from tests.unit.services.coordinator.lending.scene import CPU, GB, MEMORY, RULE, LendingScene, pod


def test_small_changes_are_written_after_a_while_and_great_ones_at_once() -> None:
    scene = LendingScene()
    scene.play(320)
    assert scene.lent[0] == 4000
    began_s = scene.now_s
    assert [work.amounts for work in scene.play(RULE.rewrite_s + 20, cpu=2100)] == [(3900, 45 * GB)]
    assert scene.now_s - began_s > RULE.rewrite_s
    assert [work.amounts for work in scene.play(10, cpu=2600)] == [(3400, 45 * GB)]


def test_nothing_is_written_again_while_it_is_as_it_should_be() -> None:
    scene = LendingScene()
    scene.play(320)
    assert scene.play(3600) == []


def test_a_value_that_somebody_changed_is_written_again() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.show((0, 0))
    assert [work.amounts for work in scene.play(20)] == [(4000, 45 * GB)]


def test_a_new_leader_goes_on_with_what_it_finds() -> None:
    scene = LendingScene()
    scene.show((3500, 40 * GB))
    assert scene.play(RULE.window_s - 20) == []
    assert [(work.amounts, work.certain) for work in scene.play(60)] == [((4000, 45 * GB), False)]


def test_a_new_leader_lowers_what_is_too_much_at_once() -> None:
    scene = LendingScene()
    scene.show((9000, 90 * GB))
    (work,) = scene.play(10)
    assert work.amounts == (4000, 45 * GB)


def test_a_new_leader_without_metrics_leaves_it_for_15_minutes() -> None:
    scene = LendingScene()
    scene.show((3500, 40 * GB))
    scene.look()
    scene.now_s += RULE.degrade_s - 1
    assert scene.look() is None
    scene.now_s += 2
    work = scene.look()
    assert work is not None
    assert work.amounts is None


def test_a_value_that_we_found_is_not_certainly_ours() -> None:
    scene = LendingScene()
    scene.show((9000, 90 * GB))
    (first,) = scene.play(10)
    (second,) = scene.play(10, cpu=4000)
    assert (first.certain, second.certain) == (False, True)


def test_a_node_of_anothers_is_left_alone_until_its_value_is_gone() -> None:
    scene = LendingScene()
    scene.show((9000, 90 * GB))
    scene.play(10)
    scene.show((9000, 90 * GB))
    scene.ledger.owned_by("n", "koord-manager", scene.now_s)
    assert scene.play(400) == []
    assert scene.shown.by == "koord-manager"
    assert scene.shown.why == "koord-manager writes it; we leave it alone"
    scene.show(None)
    assert [work.amounts for work in scene.play(20)] == [(4000, 45 * GB)]


def test_a_node_that_lends_under_other_names_too_is_asked_about_and_left() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.node = replace(scene.node, allocatable={**scene.node.allocatable, "example.com/batch-cpu": 5000})
    (work,) = scene.play(10)
    assert (work.amounts, work.certain) == ((4000, 45 * GB), False)
    scene.ledger.owned_by("n", "their-agent", scene.now_s)
    assert scene.play(400) == []


def test_other_names_that_nobody_lends_under_are_asked_about_once_until_they_change() -> None:
    """As a kubelet leaves them at 0, when the lender is gone."""
    scene = LendingScene()
    scene.play(320)
    scene.node = replace(scene.node, allocatable={**scene.node.allocatable, "example.com/batch-cpu": 0})
    assert [work.certain for work in scene.play(600)] == [False]
    (work,) = scene.play(10, cpu=5000)
    assert work.certain
    scene.node = replace(scene.node, allocatable={**scene.node.allocatable, "example.com/batch-cpu": 7})
    assert [work.certain for work in scene.play(100, cpu=5000)] == [False]
    assert [work.certain for work in scene.play(3600, cpu=5000)] == [False]


def test_where_we_lend_nothing_other_names_bring_no_0() -> None:
    """When metrics have come back: who still runs on what was lent would have to leave."""
    scene = LendingScene()
    scene.play(320)
    scene.now_s += RULE.degrade_s + 1
    scene.look()
    scene.node = replace(scene.node, allocatable={**scene.node.allocatable, "example.com/batch-cpu": 0})
    assert scene.play(RULE.window_s - 20) == []
    assert [(work.amounts, work.certain) for work in scene.play(60)] == [((4000, 45 * GB), False)]


def held_through_an_outage(*, batch_cpu: int) -> LendingScene:
    """A job holds so much of what was lent; metrics have been gone for so long that it was taken away."""
    scene = LendingScene()
    scene.play(320)
    scene.pods = [pod("job", qos="BE", batch_cpu=batch_cpu)]
    scene.play(20)
    scene.now_s += RULE.degrade_s + 1
    work = scene.look()
    assert work is not None
    assert work.amounts is None
    return scene


@pytest.mark.parametrize(("online", "written"), [(9000, 0), (5500, 500), (2000, 3000)])
def test_who_still_runs_on_what_was_taken_away_is_told_at_once_what_there_is(online: int, written: int) -> None:
    """When metrics have come back; nobody else comes before the window is full."""
    scene = held_through_an_outage(batch_cpu=3000)
    (work,) = scene.play(RULE.window_s - 20, cpu=online)
    assert work.amounts == (written, 0)


def test_who_still_runs_though_lending_was_off_is_told_at_once_what_there_is() -> None:
    scene = LendingScene()
    scene.pods = [pod("job", qos="BE", batch_cpu=3000)]
    scene.show((3000, 0))
    scene.play(320)
    scene.ledger.tune(RULE, on=False)
    scene.play(20)
    scene.ledger.tune(RULE, on=True)
    assert [work.amounts for work in scene.play(20, cpu=9000)] == [(0, 0)]


def test_a_resource_that_the_node_does_not_name_and_pods_hold_is_written_beside_one_that_it_names() -> None:
    scene = LendingScene()
    scene.pods = [pod("job", qos="BE", batch_cpu=3000)]
    scene.play(320)
    scene.node = replace(
        scene.node, allocatable={name: amount for name, amount in scene.node.allocatable.items() if name != CPU}
    )
    assert [work.amounts for work in scene.play(20, cpu=9000)] == [(0, scene.lent[1])]


def test_while_lending_is_off_a_node_of_anothers_is_asked_about_once() -> None:
    scene = LendingScene(on=False)
    scene.show((9000, 90 * GB))
    work = scene.ledger.due(scene.node, scene.now_s)
    assert work is not None
    assert not work.certain
    scene.ledger.owned_by("n", "koord-manager", scene.now_s)
    scene.now_s += 1e6
    assert scene.ledger.due(scene.node, scene.now_s) is None


def test_where_nothing_is_lent_and_nothing_said_nothing_is_written() -> None:
    scene = LendingScene()
    assert scene.play(400, cpu=9000, memory=90 * GB) == []


def test_what_was_lent_is_taken_away_once_when_lending_is_switched_off() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.ledger.tune(RULE, on=False)
    scene.now_s += 20
    assert [work.amounts for work in (scene.look(), scene.look()) if work is not None] == [None]
    assert scene.lent == (0, 0)
    assert scene.ledger.shown(scene.node) is None


def test_a_value_that_stays_when_ours_was_taken_away_is_anothers() -> None:
    scene = LendingScene(on=False)
    scene.show((9000, 90 * GB))
    work = scene.ledger.due(scene.node, scene.now_s)
    assert work is not None
    assert work.amounts is None
    scene.ledger.settled("n", scene.now_s, ours=False)
    scene.ledger.owned_by("n", "koord-manager", scene.now_s)
    scene.now_s += 600
    assert scene.ledger.due(scene.node, scene.now_s) is None


def test_while_it_is_off_nodes_that_say_nothing_cost_nothing() -> None:
    scene = LendingScene(on=False)
    assert scene.ledger.due(scene.node, scene.now_s) is None
    assert scene.ledger.shown(scene.node) is None


def test_lending_that_is_switched_on_again_begins_with_an_empty_window() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.ledger.tune(RULE, on=False)
    scene.play(20)
    scene.ledger.tune(RULE, on=True)
    assert scene.play(RULE.window_s - 20) == []


def test_a_longer_window_is_to_be_seen_first() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.ledger.tune(LendingRule(window_s=600), on=True)
    assert scene.play(580, cpu=1000) == []
    scene.play(60, cpu=1000)
    assert scene.lent[0] == 5000


def test_a_write_is_not_repeated_before_the_watch_may_have_shown_it() -> None:
    scene = LendingScene()
    scene.watches = False
    assert len(scene.play(310)) == 1
    assert scene.play(4, every_s=1) == []
    assert len(scene.play(2, every_s=1)) == 1


def test_the_sums_are_over_nodes_that_are_ours() -> None:
    scene = LendingScene()
    scene.play(330)
    scene.ledger.tally()
    assert scene.ledger.figures == {
        "cpu_millis": 4000, "memory_bytes": 45 * GB, "lending": 1, "foreign": 0, "doubted": 0, "degraded": 0
    }  # fmt: skip
    scene.ledger.owned_by("n", "koord-manager", scene.now_s)
    scene.ledger.tally()
    assert scene.ledger.figures["foreign"] == 1
    assert "cpu_millis" not in scene.ledger.figures
    scene.ledger.forget({})
    scene.ledger.tally()
    assert not any(scene.ledger.figures.values())


def test_nothing_is_summed_any_more_once_lending_is_off() -> None:
    scene = LendingScene()
    scene.play(330)
    scene.play(20, cpu=-1)
    scene.ledger.tally()
    assert scene.ledger.figures["doubted"] == scene.ledger.figures["lending"] == 1
    scene.ledger.tune(RULE, on=False)
    for _ in range(2):
        scene.now_s += 20
        work = scene.ledger.due(scene.node, scene.now_s)
        if work is not None:
            scene.ledger.settled("n", scene.now_s, ours=False)
            scene.show(None)
    scene.ledger.tally()
    assert not any(scene.ledger.figures.values())


def test_names_follow_the_domain() -> None:
    assert LoanLedger(RULE, on=True).names == (CPU, MEMORY)
    assert LoanLedger(RULE, on=True, domain="example.com").names == (
        "example.com/batch-cpu",
        "example.com/batch-memory",
    )


def test_a_measurement_from_before_a_pod_is_not_held_against_it() -> None:
    scene = LendingScene()
    scene.play(320, cpu=0, memory=0)
    assert scene.lent[0] == 6000
    scene.pods = [pod("web", cpu="3")]
    for _ in range(7):
        scene.now_s += 15
        scene.look()
        assert (scene.shown.doubts, scene.lent[0]) == ([], 3000)


def test_a_pod_that_is_measured_later_than_its_node_is_not_held_against_it() -> None:
    scene = LendingScene()
    scene.play(320, cpu=0, memory=0)
    scene.now_s += 15
    scene.pods, scene.uses = [pod("web", cpu="3")], {"default/web": (3000, GB)}
    scene.look()
    assert (scene.shown.doubts, scene.lent[0]) == ([], 3000)


def test_a_node_that_uses_nothing_while_a_pod_is_there_is_not_believed() -> None:
    scene = LendingScene()
    scene.play(320, cpu=0, memory=0)
    scene.pods = [pod("web", cpu="3")]
    scene.look()
    scene.play(10, cpu=0, memory=0)
    assert len(scene.shown.doubts) == 2


def test_what_another_lends_under_its_own_domain_is_shown_with_its_amounts() -> None:
    scene = LendingScene()
    theirs = {"koordinator.sh/batch-cpu": 9000, "koordinator.sh/batch-memory": 7 * GB}
    scene.node = replace(scene.node, allocatable={**scene.node.allocatable, **theirs})
    scene.play(10)
    scene.ledger.owned_by("n", "koord-manager", scene.now_s)
    assert (scene.shown.cpu_millis, scene.shown.memory_bytes) == (9000, 7 * GB)
