"""A candidate is killed after each step of its life; whoever comes next must lead within a bound.

Patroni's quorum tests restart from every interrupted prefix; here a prefix also has two tails: what the dead
process had sent is lost, or still arrives.
"""

from __future__ import annotations

import pytest

from shared.election.events import StopElection
from tests.unit.shared.election.election_world import Node, World, key_value

STEPS = 14
"""Read, grant, claim (each arrives, then is answered), two renewals, resigning."""


def live(world: World, node: Node, steps: int) -> None:
    """One candidate's life up to ``steps`` half-steps; a half-step is an arrival, an answer or the next second."""
    for step in range(steps):
        if step == 11:
            node.handle(StopElection())
        pending = [message for message in world.wire if message.node is node]
        if not pending:
            world.advance(1.0)
        elif pending[0].reply is None:
            world.arrive(pending[0])
        else:
            world.answer(pending[0])


def killed(steps: int, *, still_arrives: bool) -> tuple[World, Node]:
    world = World()
    node = world.add("a")
    live(world, node, steps)
    for message in list(world.wire):
        if still_arrives and message.reply is None:
            world.arrive(message)
        world.wire.remove(message)
    world.nodes.remove(node)
    return world, node


@pytest.mark.parametrize("still_arrives", [False, True], ids=["lost", "arrives"])
@pytest.mark.parametrize("steps", range(STEPS))
def test_a_restart_in_the_same_place_leads_at_once(steps, still_arrives):
    world, _ = killed(steps, still_arrives=still_arrives)
    successor = Node(world, "a", incarnation=1)
    world.nodes.append(successor)
    world.settle()
    assert successor.is_valid()
    assert key_value(world).create_revision == successor.state.term


@pytest.mark.parametrize("still_arrives", [False, True], ids=["lost", "arrives"])
@pytest.mark.parametrize("steps", range(STEPS))
def test_another_candidate_leads_within_the_ttl(steps, still_arrives):
    world, _ = killed(steps, still_arrives=still_arrives)
    successor = world.add("b")
    world.settle()
    world.run(world.settings.lease_ttl_s + 0.2)
    assert successor.is_valid()


@pytest.mark.parametrize("steps", range(STEPS))
def test_terms_grow_over_any_interruption(steps):
    world, node = killed(steps, still_arrives=True)
    successor = Node(world, "a", incarnation=1)
    world.nodes.append(successor)
    world.settle()
    assert all(successor.state.term > heard.term for heard in node.heard)
