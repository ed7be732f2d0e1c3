"""The queue: order, backoff, parking and waking; no pod in two places, none forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.scheduling.queue import ClusterEvent, Place, PodQueue
from tests.builders import make_pod


def queue_of(*names: str) -> PodQueue:
    queue = PodQueue()
    for name in names:
        queue.add(make_pod(name).pod(), now=0.0)
    return queue


def names(pods) -> list[str]:
    return [pod.name for pod in pods]


def test_priority_comes_first_then_arrival() -> None:
    queue = queue_of("a", "b")
    queue.add(make_pod("urgent").priority(10).pod(), now=1.0)
    assert names(queue.pop(10, now=1.0)) == ["urgent", "a", "b"]


def test_backoff_doubles_from_one_second_to_ten() -> None:
    queue, now, waits = queue_of("a"), 0.0, []
    for _ in range(6):
        assert names(queue.pop(1, now)) == ["a"]
        queue.retry("uid-a", now)
        ready = queue.next_ready_at()
        assert ready is not None
        waits.append(ready - now)
        assert queue.pop(1, ready - 0.001) == []
        now = ready
    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_lost_race_is_no_failure() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.retry("uid-a", now=0.0, failed=False)
    assert names(queue.pop(1, now=0.0)) == ["a"]


def test_a_parked_pod_sleeps_until_an_event_that_can_help_it() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", {"NodeAffinity"}, now=0.0)
    assert queue.wake(ClusterEvent.POD_DELETED, now=5.0) == 0
    assert queue.count()[Place.UNSCHEDULABLE] == 1
    assert queue.wake(ClusterEvent.NODE_LABELS, now=5.0) == 1
    assert names(queue.pop(1, now=5.0)) == ["a"]


def test_a_pod_woken_while_its_backoff_runs_waits_for_the_end_of_it() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", {"NodeResourcesFit"}, now=0.0)
    queue.wake(ClusterEvent.POD_DELETED, now=0.1)
    assert queue.pop(1, now=0.5) == []
    assert names(queue.pop(1, now=1.0)) == ["a"]


def test_an_event_during_the_flight_is_not_lost() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.wake(ClusterEvent.NODE_ADDED, now=0.1)
    queue.park("uid-a", {"NodeResourcesFit"}, now=0.2)
    assert queue.count()[Place.BACKOFF] == 1


def test_an_event_during_the_flight_that_cannot_help_lets_it_sleep() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.wake(ClusterEvent.NODE_LABELS, now=0.1)
    queue.park("uid-a", {"NodeResourcesFit"}, now=0.2)
    assert queue.count()[Place.UNSCHEDULABLE] == 1


def test_a_pod_that_an_event_did_not_help_waits_for_what_rejects_it_now() -> None:
    """A node is labelled as the pod wants it while it is full; room appears later."""
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", {"NodeAffinity"}, now=0.0)
    assert queue.wake(ClusterEvent.NODE_LABELS, 20.0, lambda _: frozenset({"NodeResourcesFit"})) == 0
    assert queue.wake(ClusterEvent.NODE_TAINTS, 20.5, lambda _: frozenset()) == 0
    assert queue.wake(ClusterEvent.POD_DELETED, 21.0, lambda _: frozenset()) == 1
    assert names(queue.pop(1, now=21.0)) == ["a"]


def test_a_node_that_came_closed_wakes_who_waits_for_room_when_it_opens() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", {"NodeResourcesFit"}, now=0.0)
    assert queue.wake(ClusterEvent.NODE_ADDED, 20.0, lambda _: frozenset({"TaintToleration"})) == 0
    assert queue.wake(ClusterEvent.NODE_TAINTS, 21.0, lambda _: frozenset()) == 1
    assert names(queue.pop(1, now=21.0)) == ["a"]


def test_a_pod_that_waits_for_others_under_way_has_no_failed_attempt_and_no_backoff() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.hold("uid-a", {"PodTopologySpread"}, now=0.0)
    assert queue.count()[Place.UNSCHEDULABLE] == 1
    assert queue.wake(ClusterEvent.POD_ADDED, now=0.01) == 1
    assert names(queue.pop(1, now=0.01)) == ["a"]
    assert queue.entries["uid-a"].attempts == 0


def test_an_event_in_flight_makes_a_pod_that_would_wait_for_others_active_at_once() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.wake(ClusterEvent.POD_ADDED, now=0.01)
    queue.hold("uid-a", {"PodTopologySpread"}, now=0.02)
    assert names(queue.pop(1, now=0.02)) == ["a"]


def test_more_events_than_are_remembered_count_as_one_that_may_help() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    for _ in range(600):
        queue.wake(ClusterEvent.NODE_LABELS, now=0.1)
    queue.park("uid-a", {"NodeResourcesFit"}, now=0.2)
    assert queue.count()[Place.BACKOFF] == 1


def test_the_sweep_wakes_whatever_has_slept_for_five_minutes() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", {"NodeAffinity"}, now=0.0)
    assert queue.sweep(now=299.0) == 0
    assert queue.sweep(now=300.0) == 1
    assert names(queue.pop(1, now=300.0)) == ["a"]


def test_an_update_keeps_the_place_unless_the_class_changed() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", {"NodeResourcesFit"}, now=0.0)
    queue.add(make_pod("a").set(labels={"x": "y"}).pod(), now=1.0)
    assert queue.count()[Place.UNSCHEDULABLE] == 1
    queue.add(make_pod("a").cpu("1").pod(), now=1.0)
    assert queue.count()[Place.ACTIVE] == 1
    assert queue.wake(ClusterEvent.POD_DELETED, now=1.0) == 0


class QueueMachine(RuleBasedStateMachine):
    """Every pending pod is in exactly one place and comes out again in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.now, self.pending, self.flying = PodQueue(), 0.0, set(), set()

    pods = st.sampled_from([f"p{i}" for i in range(5)])

    @rule(pod=pods, priority=st.integers(0, 2))
    def add(self, pod: str, priority: int) -> None:
        self.queue.add(make_pod(pod).priority(priority).pod(), self.now)
        self.pending.add(f"uid-{pod}")

    @rule(pod=pods)
    def remove(self, pod: str) -> None:
        self.queue.remove(f"uid-{pod}")
        self.pending.discard(f"uid-{pod}")
        self.flying.discard(f"uid-{pod}")

    @rule(count=st.integers(1, 3))
    def pop(self, count: int) -> None:
        for pod in self.queue.pop(count, self.now):
            assert pod.uid in self.pending
            assert pod.uid not in self.flying
            self.flying.add(pod.uid)

    @rule(failed=st.booleans(), data=st.data())
    def give_back(self, failed: bool, data) -> None:
        if self.flying:
            uid = data.draw(st.sampled_from(sorted(self.flying)))
            self.queue.retry(uid, self.now, failed=failed)
            self.flying.discard(uid)

    @rule(plugin=st.sampled_from(["NodeResourcesFit", "NodeAffinity"]), data=st.data())
    def park(self, plugin: str, data) -> None:
        if self.flying:
            uid = data.draw(st.sampled_from(sorted(self.flying)))
            self.queue.park(uid, {plugin}, self.now)
            self.flying.discard(uid)

    @rule(event=st.sampled_from(list(ClusterEvent)))
    def wake(self, event: ClusterEvent) -> None:
        self.queue.wake(event, self.now)

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def each_pending_pod_is_in_one_place(self) -> None:
        assert self.queue.entries.keys() == self.pending
        assert sum(self.queue.count().values()) == len(self.pending)
        in_flight = {uid for uid, entry in self.queue.entries.items() if entry.place is Place.IN_FLIGHT}
        assert in_flight == self.flying

    def teardown(self) -> None:
        for uid in self.flying:
            self.queue.retry(uid, self.now)
        self.now += 301
        self.queue.sweep(self.now)
        self.now += 11
        assert {pod.uid for pod in self.queue.pop(100, self.now)} == self.pending


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
