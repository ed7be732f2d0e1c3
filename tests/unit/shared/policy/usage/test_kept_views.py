"""What is kept of nodes is what looking at all of them anew would give, whatever happened to them since."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.node_use import NodeMeasurement
from shared.policy.usage.utilisation import OLD_SAMPLE_S, UtilisationStore
from shared.policy.usage.views import NO_POD, NodeView, PodView, node_view, pod_view, requested_of
from shared.scheduling.state.node_table import PODS_COLUMN, NodeTable

CLASSES = [PodClass((("cpu", cpu), ("memory", 1 << 30)), cpu, 1 << 30, workload=f"w{cpu}") for cpu in (100, 900)]
STEPS = (
    "place", "place", "place", "unplace", "tell", "tell", "untell", "measure", "mask", "delay", "age", "cordon", "join",
    "leave", "forget pods", "learn", "scale",
)  # fmt: skip


class Cluster:
    """A table and a store, to which anything happens that can happen to them."""

    def __init__(self) -> None:
        self.table, self.store, self.now_s = NodeTable(2), UtilisationStore(), 0.0
        self.told: list[str] = []
        for number in range(6):
            self.join(f"n{number}")

    def join(self, name: str, *, closed: bool = False, cpu: int = 4000) -> None:
        self.table.upsert(Node(name=name, unschedulable=closed, allocatable={"cpu": cpu, "memory": 1 << 33, "pods": 9}))

    def step(self, what: str, number: int) -> None:
        names = sorted(self.table.row_of)
        name = names[number % len(names)] if names else "n0"
        pod_class, row = CLASSES[number % 2], self.table.row_of.get(name)
        self.now_s += 1.0
        self.store.advance(self.now_s)
        if what in ("place", "unplace") and row is not None:
            self.table.add_usage(row, pod_class, (), sign=1 if what == "place" else -1)
        elif what == "tell":
            self.told.append(f"p{self.now_s}")
            requested = requested_of(pod_class)
            self.store.bound(self.told[-1], name, pod_class.workload, now_s=self.now_s, requested=requested)
        elif what == "untell" and self.told:
            self.store.ended(self.told.pop(number % len(self.told)), now_s=self.now_s)
        elif what in ("measure", "mask"):
            shares = [0.1 * number % 1, 0.2, 0.3, 0.01 * number]
            self.store.measure_some(
                [NodeMeasurement(name, shares, self.now_s, None, unmeasured=3 if what == "mask" else 0)]
            )
        elif what == "delay":
            self.store.delay(name, float(number))
        elif what == "age":
            self.now_s += OLD_SAMPLE_S * number / 40
            self.store.advance(self.now_s)
        elif what in ("cordon", "scale"):
            self.join(name, closed=what == "cordon", cpu=1000 + number)
            self.store.limits(name, np.full(4, 1.0 + number))
        elif what == "join":
            self.join(f"n{number}")
        elif what == "leave" and row is not None:
            self.table.remove(name)
            self.store.forget([name])
        elif what == "forget pods":
            self.store.forget_pods()
        elif what == "learn":
            self.store.usage.teach(self.store.column(pod_class.workload), np.full(4, 0.01 * number), 0.5)

    def anew(self, rows: np.ndarray, pod: PodView) -> NodeView:
        slots = np.array([self.store.nodes.get(self.table.names[row], -1) for row in rows], np.int64)
        return node_view(self.table, rows, slots, pod, self.store)


def assert_same(kept: NodeView, fresh: NodeView) -> None:
    for name in ("parts", "known", "pods", "delay_ms", "scale"):
        np.testing.assert_allclose(getattr(kept.use, name), getattr(fresh.use, name), atol=1e-12, err_msg=name)
    for name in ("requested", "pods", "healthy", "highest"):
        np.testing.assert_allclose(getattr(kept, name), getattr(fresh, name), atol=1e-12, err_msg=name)


steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 12)), min_size=1, max_size=25)


def follow(kept: KeptViews, cluster: Cluster, done: list[tuple[str, int]]) -> None:
    for what, number in done:
        cluster.step(what, number)
        if number % 3:  # some changes come alone, some together
            continue
        rows = cluster.table.live_rows()
        for pod in (NO_POD, pod_view(CLASSES[number % 2], cluster.store)):
            assert_same(kept.of(cluster.table, rows, pod, cluster.store), cluster.anew(rows, pod))


@settings(max_examples=150)
@given(steps)
def test_whatever_changed_is_looked_at_again(done: list[tuple[str, int]]) -> None:
    follow(KeptViews(), Cluster(), [*done, ("age", 3)])


class Ageless(UtilisationStore):
    """Does not say that samples grow old, though it knows."""

    looking = False

    def look(self, slots):
        self.looking = True
        found = super().look(slots)
        self.looking = False
        return found

    def sampled(self, slots):
        return super().sampled(slots) if self.looking else np.isfinite(self._at_s[slots]) & (slots >= 0)


@pytest.mark.parametrize(("blind", "done"), [("table", ("place", 3)), ("store", ("measure", 9)), ("age", ("age", 51))])
def test_the_check_notices_changes_that_are_not_followed(
    blind: str, done: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [("measure", 3)]
    follow(KeptViews(), Cluster(), [*before, done])
    cluster, kept = Cluster(), KeptViews()
    if blind == "age":
        cluster.store = Ageless()
    follow(kept, cluster, before)
    if blind == "table":
        monkeypatch.setattr(NodeTable, "_touch", lambda *_: None)
    elif blind == "store":
        monkeypatch.setattr(UtilisationStore, "touched", lambda _, slots, __: np.zeros(len(slots), np.bool_))
    with pytest.raises(AssertionError):
        follow(kept, cluster, [done])


def test_a_table_of_copies_is_looked_at_as_it_is() -> None:
    cluster, kept = Cluster(), KeptViews()
    follow(kept, cluster, [("tell", 0), ("measure", 3), ("place", 0)])
    rows, pod = np.array([0, 0, 3]), pod_view(CLASSES[0], cluster.store)
    copies = cluster.table.with_copies(rows, np.array([1, 2, 1]), CLASSES[0])
    found = kept.of(copies, np.arange(3), pod, cluster.store)
    assert found.pods.tolist() == pytest.approx(((cluster.table.requested[PODS_COLUMN, rows] + [1, 2, 1]) / 9).tolist())


def test_a_node_that_the_store_never_heard_of_has_nothing_of_anothers() -> None:
    store = UtilisationStore()
    for number in range(64):
        store.delay(f"n{number}", 5.0)
        store.limits(f"n{number}", np.full(4, 3.0))
        store.bound(f"p{number}", f"n{number}", "w", now_s=0.0)
        unknown = store.look(np.array([-1]))
        assert unknown.delay_ms.tolist() == [0.0]
        assert unknown.pods.tolist() == [0]
        assert unknown.scale.tolist() == [[1.0] * 4]
