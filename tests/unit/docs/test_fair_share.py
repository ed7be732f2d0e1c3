"""Every table of the page on fair share is what the scheduler's own code computes."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from shared.model.units.queue import Queue, QueueStrategy, ReclaimUpTo
from shared.scheduling.queues.history import decayed
from shared.scheduling.queues.nodes import Charge, WaitingUnit
from shared.scheduling.queues.reclaim.search import reclaim
from shared.scheduling.queues.share import ShareClaim, borrowed_share, dominant_share, fair_shares
from shared.scheduling.queues.tree import QueueTree
from tests.unit.shared.scheduling.queues.queue_trees import Pool

PAGE = (Path(__file__).parents[3] / "docs" / "fair-share.md").read_text()
PAPER = {"cpu": 9, "memory": 18}
TASKS = {"A": {"cpu": 1, "memory": 4}, "B": {"cpu": 3, "memory": 1}}


def table(mark: str) -> list[list[str]]:
    """Cells of the rows of the table below ``<!-- mark -->``."""
    text = PAGE.partition(f"<!-- {mark} -->")[2].lstrip()
    rows = text.partition("\n\n")[0].splitlines()[2:]
    assert rows, f"there is no table {mark}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def amounts(text: str) -> dict[str, Fraction]:
    """``cpu 3, gpu 7`` or ``a 10/3, b 2``."""
    return {name: Fraction(value) for name, value in re.findall(r"(\w+) ([\d/]+)", text)}


def whole(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in amounts(text).items()}


def tree_of(*queues: Queue, **capacity: int) -> QueueTree:
    tree = QueueTree()
    tree.set_capacity(capacity)
    for queue in queues:
        tree.put_queue(queue)
    return tree


def test_drf_goes_in_the_papers_order_with_its_shares() -> None:
    tree = tree_of(Queue("A"), Queue("B"), **PAPER)
    for number in range(18):
        name = "BA"[number % 2]
        asked = tuple(sorted(TASKS[name].items()))
        tree.add(WaitingUnit(f"{name}{number}", "ns", name, 0, number, asked))
    used = {"A": {"cpu": 0, "memory": 0}, "B": {"cpu": 0, "memory": 0}}
    for step, goes, a_uses, a_share, b_uses, b_share in table("drf"):
        unit = tree.front()
        assert unit is not None
        tree.take(unit)
        assert unit.label == goes, f"step {step}"
        used[goes] = {name: used[goes][name] + amount for name, amount in TASKS[goes].items()}
        for name, told, share in (("A", a_uses, a_share), ("B", b_uses, b_share)):
            assert told == f"{used[name]['cpu']} CPU, {used[name]['memory']} GB"
            assert Fraction(share) == dominant_share(used[name], PAPER)
    assert used["A"]["cpu"] + used["B"]["cpu"] == PAPER["cpu"]


@pytest.mark.parametrize("row", table("borrowed"))
def test_the_share_of_the_borrowed(row: list[str]) -> None:
    used, guaranteed, lendable, weight, share = row
    assert borrowed_share(whole(used), whole(guaranteed), whole(lendable), Fraction(weight)) == Fraction(share)


@pytest.mark.parametrize("row", table("shares"))
def test_fair_shares(row: list[str]) -> None:
    total, guaranteed, weights, asks, shares = row
    names = whole(guaranteed)
    claims = {name: ShareClaim(names[name], amounts(weights)[name], whole(asks)[name]) for name in names}
    assert fair_shares(int(total), claims) == amounts(shares)


@pytest.mark.parametrize("row", table("lending"))
def test_what_is_not_lent_nobody_takes(row: list[str]) -> None:
    total, guaranteed, lent, most = map(int, row)
    tree = tree_of(Queue("a", guaranteed={"cpu": guaranteed}, lending={"cpu": lent}), Queue("b"), cpu=total)
    for number in range(total):
        tree.add(WaitingUnit(f"b{number}", "ns", "b", 0, number, (("cpu", 1),)))
    went = 0
    while (unit := tree.front()) is not None and went < total:
        tree.take(unit)
        went += 1
    assert went == most


@pytest.mark.parametrize("row", table("s2"))
def test_s2(row: list[str]) -> None:
    used, sizes, asked, evicted, _ = row
    fair = Queue("ours", "top", reclaim=True, reclaim_up_to=ReclaimUpTo.FAIR_SHARE)
    tree = tree_of(Queue("top", strategy=QueueStrategy.FAIR), fair, Queue("theirs", "top"), cpu=12)
    if int(used):
        tree.charge(Charge("x", "ns", "ours", (("cpu", int(used)),), "x", since=0.0))
    for number, size in enumerate(sizes.split(", ")):
        tree.charge(Charge(f"y{number}", "ns", "theirs", (("cpu", int(size)),), f"y{number}", since=float(number)))
    unit = WaitingUnit("w", "ns", "ours", 0, 1, (("cpu", int(asked)),))
    tree.add(unit)

    blocked = tree.blocked(unit.line, unit.amounts) if tree.structure else None
    found = reclaim(tree, unit, 1e6, room=Pool(tree, unit.amounts), waited_s=1e9, blocked=blocked)
    assert len(found.uids) == int(evicted)


@pytest.mark.parametrize("row", table("history"))
def test_past_use_is_halved(row: list[str]) -> None:
    used, ago, counts = map(int, row)
    assert decayed({"cpu": used}, ago * 3600.0, 3600.0)["cpu"] == counts


@pytest.mark.parametrize("row", table("named"))
def test_what_no_sibling_is_guaranteed_is_not_borrowed(row: list[str]) -> None:
    of_a, of_b, counts = row
    queues = Queue("top", strategy=QueueStrategy.FAIR), Queue("a", "top", guaranteed=whole(of_a))
    tree = tree_of(*queues, Queue("b", "top", guaranteed=whole(of_b)), cpu=10, gpu=10, pods=10)
    assert sorted(tree.structure.nodes["top"].totals) == counts.split(", ")
