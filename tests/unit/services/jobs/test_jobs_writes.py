"""Writes that were refused, and what is forgotten with what it was about."""

from __future__ import annotations

from msgspec.structs import replace

from services.jobs.core import events as ev
from tests.unit.services.jobs.jobs_world import a_job, conditions, running


def test_a_refused_worker_is_told_until_it_is_not_wanted_any_more():
    world = running()
    world.put_job(replace(world.jobs["default/a"], requested=3))
    while not any(getattr(write, "name", "") == "a-worker-2" for _, write in world.sent):
        world.deliver()
        others = [at for at, (_, write) in enumerate(world.sent) if getattr(write, "name", "") != "a-worker-2"]
        if others:
            world.arrive(others[0])
        world.now += 1
        world.turn(ev.Tick())
    at = next(at for at, (_, write) in enumerate(world.sent) if getattr(write, "name", "") == "a-worker-2")
    _, write = world.sent.pop(at)
    world.turn(ev.WriteAnswered(write.write, ev.WriteOutcome.REFUSED, "exceeded quota: gpus"))
    while world.sent:
        world.arrive()
    world.deliver()
    assert conditions(world)["Ready"] == ("True", "WriteRefused")
    assert "exceeded quota" in world.status().conditions[0].message
    world.put_job(replace(world.jobs["default/a"], requested=2))
    world.now += 5
    world.settle()
    assert conditions(world)["Ready"] == ("True", "Running")
    assert world.core.state.writes.waits == {}


def test_what_is_known_of_pods_and_writes_goes_with_them():
    world = running()
    world.change_pod("a-worker-1", report='{"steps": 7}')
    world.settle()
    seen = world.core.state.jobs["default/a"]
    assert len(seen.read_annotations) == 1
    world.remove_pod("a-worker-1")
    world.deliver()
    assert seen.read_annotations == {}
    (write,) = [write for _, write in world.sent if getattr(write, "name", "") == "a-worker-1"]
    world.turn(ev.JobGone("default/a"))
    world.turn(ev.WriteAnswered(write.write, ev.WriteOutcome.REFUSED, "the namespace is being terminated"))
    assert world.core.state.writes.waits == {}


def test_a_refusal_is_told_on_the_job_that_it_is_about_alone():
    world = running()
    world.put_job(a_job("a-b", requested=3))
    world.settle()
    world.core.state.writes.failed(("Pod", "default", "a-b-worker-3"), world.now, "exceeded quota")
    world.turn(ev.JobSeen(world.jobs["default/a"]), ev.JobSeen(world.jobs["default/a-b"]))
    world.settle(rounds=2)
    assert conditions(world)["Ready"] == ("True", "Running")
    assert world.status("default/a-b").conditions[0].reason == "WriteRefused"
