"""The queue: order, backoff, parking and waking; no pod in two places, none forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.queue import SWEPT_AT_ONCE, PodQueue
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
        ready = queue.order.next_ready_at()
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


def parked(*plugins: str) -> PodQueue:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.park("uid-a", plugins, now=0.0)
    return queue


def test_a_parked_pod_sleeps_until_it_is_woken() -> None:
    queue = parked("NodeAffinity")
    assert queue.count()[Place.UNSCHEDULABLE] == 1
    assert queue.pop(1, now=200.0) == []
    assert queue.wake("uid-a", 200.0, ClusterEvent.NODE_LABELS)
    assert not queue.wake("uid-a", 200.0, ClusterEvent.NODE_LABELS)
    assert names(queue.pop(1, now=200.0)) == ["a"]


def test_a_pod_that_an_event_helped_does_not_wait_for_the_end_of_its_backoff_unless_others_are_before_it() -> None:
    queue = parked("NodeResourcesFit")
    queue.wake("uid-a", 0.1, ClusterEvent.POD_DELETED)
    assert queue.count()[Place.BACKOFF] == 1
    queue.add(make_pod("b").pod(), now=0.2)
    assert names(queue.pop(1, now=0.2)) == ["b"]
    assert queue.has_active()
    assert names(queue.pop(1, now=0.2)) == ["a"]
    assert not queue.has_active()


def test_a_pod_of_higher_priority_leaves_its_backoff_before_others_that_are_active() -> None:
    queue = queue_of()
    queue.add(make_pod("high").priority(5).pod(), now=0.0)
    queue.pop(1, now=0.0)
    queue.park("uid-high", {"NodeResourcesFit"}, now=0.0)
    queue.add(make_pod("low").pod(), now=0.1)
    queue.wake("uid-high", 0.1, ClusterEvent.POD_DELETED)
    assert names(queue.pop(2, now=0.2)) == ["high", "low"]


def test_a_pod_woken_for_a_failure_of_our_own_waits_for_the_end_of_its_backoff() -> None:
    """Nothing helped it: to try at once would only spin."""
    queue = parked("NodeResourcesFit")
    queue.wake("uid-a", 0.1)
    assert not queue.has_active()
    assert queue.pop(1, now=0.5) == []
    assert names(queue.pop(1, now=1.0)) == ["a"]


def test_a_pod_that_waits_for_others_under_way_has_no_failed_attempt_and_no_backoff() -> None:
    queue = queue_of("a")
    queue.pop(1, now=0.0)
    queue.hold("uid-a", {"PodTopologySpread"}, now=0.0)
    assert queue.count()[Place.UNSCHEDULABLE] == 1
    queue.wake("uid-a", 0.01, ClusterEvent.POD_ADDED)
    assert queue.count()[Place.ACTIVE] == 1
    assert names(queue.pop(1, now=0.01)) == ["a"]
    assert queue.entries["uid-a"].attempts == 0


def test_the_sweep_wakes_whatever_has_slept_for_five_minutes_and_so_many_at_once() -> None:
    count = SWEPT_AT_ONCE + 1
    queue = queue_of(*(f"p{number}" for number in range(count)))
    for pod in queue.pop(count, now=0.0):
        queue.park(pod.uid, {"NodeAffinity"}, now=0.0)
    assert not queue.sweep(now=299.0)
    assert not queue.has_active()
    assert queue.sweep(now=300.0)
    assert queue.count()[Place.ACTIVE] == SWEPT_AT_ONCE
    assert not queue.sweep(now=300.0)
    assert queue.count()[Place.ACTIVE] == count


def test_an_update_keeps_the_place_unless_the_class_changed() -> None:
    queue = parked("NodeResourcesFit")
    queue.add(make_pod("a").set(labels={"x": "y"}).pod(), now=1.0)
    assert queue.count()[Place.UNSCHEDULABLE] == 1
    assert queue.waiting.group_of("uid-a") is not None
    queue.add(make_pod("a").cpu("1").pod(), now=1.0)
    assert queue.count()[Place.ACTIVE] == 1
    assert not len(queue.waiting)


def test_labels_that_a_rejecting_rule_reads_make_a_parked_pod_active() -> None:
    queue = parked("PodTopologySpread")
    queue.add(make_pod("a").set(labels={"x": "y"}).pod(), now=1.0)
    assert queue.count()[Place.ACTIVE] == 1


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

    @rule(pod=pods, event=st.sampled_from(list(ClusterEvent)))
    def wake(self, pod: str, event: ClusterEvent) -> None:
        self.queue.wake(f"uid-{pod}", self.now, event)

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def each_pending_pod_is_in_one_place(self) -> None:
        assert self.queue.entries.keys() == self.pending
        assert list(self.queue.validate()) == []
        places = {uid: entry.place for uid, entry in self.queue.entries.items()}
        assert {uid for uid, place in places.items() if place is Place.IN_FLIGHT} == self.flying

    def teardown(self) -> None:
        for uid in self.flying:
            self.queue.retry(uid, self.now)
        self.now += 301
        self.queue.sweep(self.now)
        self.now += 11
        assert {pod.uid for pod in self.queue.pop(100, self.now)} == self.pending


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
