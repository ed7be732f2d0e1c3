"""Members near each other: one domain for all, the tightest first, and late members join their group."""

from __future__ import annotations

from msgspec.structs import replace

from shared.scheduling.groups.placing import allowed_rows
from shared.scheduling.groups.topology import domains
from tests.unit.shared.scheduling.groups.gangs import attempt, cluster, gang, member, members, stand

RACKS = (
    ("a0", {"cpu": 4000}, {"rack": "a"}),
    ("a1", {"cpu": 4000}, {"rack": "a"}),
    ("b0", {"cpu": 2000}, {"rack": "b"}),
    ("b1", {"cpu": 2000}, {"rack": "b"}),
    ("loose", {"cpu": 64000}, {}),
)


def test_all_members_go_to_one_domain_and_the_tightest_that_holds_them_is_taken() -> None:
    found = attempt(cluster(*RACKS), gang(4, "rack"), members(4, 1000))
    assert found.reached
    assert (found.domain, set(found.nodes.values())) == ("b", {"b0", "b1"})
    found = attempt(cluster(*RACKS), gang(5, "rack"), members(5, 1000))
    assert (found.domain, set(found.nodes.values()) <= {"a0", "a1"}) == ("a", True)


def test_a_domain_that_is_fuller_already_is_tighter() -> None:
    state = cluster(*((f"{rack}{i}", {"cpu": 4000}, {"rack": rack}) for rack in "ab" for i in range(2)))
    stand(state, member("other", 2000, group=""), "b1")
    assert attempt(state, gang(2, "rack"), members(2, 1000)).domain == "b"


def test_nodes_without_the_label_are_in_no_domain() -> None:
    found = attempt(cluster(*RACKS), gang(9, "rack"), members(9, 1000))
    assert not found.reached
    assert found.domain == "a"
    assert found.rejected["m8"].reasons == {
        "Insufficient cpu": 2, "node(s) were outside the topology domain of the pod group": 3,
    }  # fmt: skip
    found = attempt(cluster(("n", {"cpu": 9000}, {})), gang(1, "rack"), members(1, 1000))
    assert (found.reached, found.nodes) == (False, {})


def test_where_no_domain_holds_the_minimum_a_preference_is_given_up_and_a_demand_is_not() -> None:
    assert not attempt(cluster(*RACKS), gang(9, "rack"), members(9, 1000)).reached
    found = attempt(cluster(*RACKS), gang(9, "rack", required=False), members(9, 1000))
    assert (found.reached, found.domain) == (True, "")


def test_with_a_preference_members_beyond_the_domain_go_elsewhere() -> None:
    state = cluster(("a0", {"cpu": 2000}, {"rack": "a"}), ("loose", {"cpu": 9000}, {}))
    found = attempt(state, gang(2, "rack", required=False), members(3, 1000))
    assert (found.domain, list(found.nodes.values())) == ("a", ["a0", "a0", "loose"])


def test_late_members_and_replacements_join_the_domain_of_those_that_run() -> None:
    state = cluster(*RACKS)
    bound = [stand(state, member("old", 1000), "a1")]
    found = attempt(state, gang(2, "rack"), members(1, 1000), bound)
    assert (found.domain, found.nodes["m0"][0]) == ("a", "a")
    state.remove_node("a1")  # its member is gone with it; another still runs in the rack
    bound = [stand(state, member("left", 1000), "a0")]
    found = attempt(state, gang(2, "rack"), [member("again", 1000)], bound)
    assert found.nodes == {"again": "a0"}


def test_members_that_are_assumed_decide_the_domain_too() -> None:
    state = cluster(*RACKS)
    pod = member("old", 1000)
    state.assume(pod, "a1", 0.0)
    assert attempt(state, gang(2, "rack"), members(1, 1000), [pod]).domain == "a"


def test_members_that_run_in_two_domains_leave_no_domain_for_others() -> None:
    state = cluster(*RACKS)
    bound = [stand(state, member("x", 1000), "a1"), stand(state, member("y", 1000), "b1")]
    assert not attempt(state, gang(3, "rack"), members(1, 1000), bound).nodes
    assert attempt(state, gang(3, "rack", required=False), members(1, 1000), bound).reached


def test_unequal_members_are_reordered_within_a_domain_too() -> None:
    state = cluster(("a0", {"cpu": 3000}, {"rack": "a"}), ("b0", {"cpu": 1000}, {"rack": "b"}))
    pods = [member("large", 3000), member("s0", 1500), member("s1", 1500)]
    found = attempt(state, gang(2, "rack"), pods)
    assert (found.reached, found.domain, set(found.nodes)) == (True, "a", {"s0", "s1"})


def test_the_nodes_of_a_chosen_domain_can_be_asked_for() -> None:
    state = cluster(*RACKS)
    group = gang(1, "rack")
    mask = allowed_rows(state, group, "b")
    assert mask is not None
    assert {state.table.names[row] for row in mask.nonzero()[0]} == {"b0", "b1"}
    gone = allowed_rows(state, group, "nowhere")
    assert gone is not None
    assert not gone.any()
    assert allowed_rows(state, replace(group, topology=None), "") is None
    assert domains(state, "rack").values == ("a", "b")
    assert domains(state, "no-such-label").values == ()
