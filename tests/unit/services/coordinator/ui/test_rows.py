"""Rows as the dashboard's lists show them: names on one line and short, what is alike once, troubles told as such."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.services.coordinator.ui.javascript import run

SHORT = "const { shared, shortened } = await ui('names.js'); return names.map((name) => shortened(name, shared(names)))"
EKS = [f"ip-10-0-{a}-{b}.eu-west-1.compute.internal" for a in (1, 12) for b in range(40)]
GKE = [f"gke-prod-pool-{p}-4f3e2a1b-{n:04x}" for p in ("a100", "general") for n in range(40)]


def test_what_all_names_share_is_left_out_and_they_stay_apart() -> None:
    for names, first in ((EKS, "…1-0…"), (GKE, "…a100-4f3e2a1b-0000")):
        found = run(SHORT, names=names)
        assert found[0] == first
        assert len(set(found)) == len(names)


@pytest.mark.parametrize(
    "names", [["node-0001", "node-0002"], ["ip-10-0-1-2.eu-west-1.compute.internal"], ["a" * 40, "b" * 40], []]
)
def test_names_that_are_short_alone_or_unlike_stay_whole(names: list[str]) -> None:
    assert run(SHORT, names=names) == names


def test_one_odd_name_stays_whole_and_keeps_the_others_no_longer() -> None:
    found = run(SHORT, names=["control-plane-of-the-cluster", *EKS])
    assert found[0] == "control-plane-of-the-cluster"
    assert found[1] == "…1-0…"


def test_a_name_that_is_all_shared_parts_is_not_left_empty() -> None:
    names = ["worker-pool-one-", "worker-pool-one-x1", "worker-pool-one-x2", "worker-pool-one-x3", "worker-pool-one-x4"]
    assert all(text.strip("…") for text in run(SHORT, names=names))


# --- alike ----------------------------------------------------------------------------------------------------------

FOLD = """
    const { folded } = await ui('listing.js');
    const join = (items) => ({ ...items[0], oldest: Math.max(...items.map((one) => one.age)) });
    const rows = folded(items, { alike: (one) => one.class, join }, new Set(open));
    return rows.map((one) => [one.name, one.oldest ?? one.age, one.folded?.items.length ?? 1]);
"""


def test_what_is_alike_is_one_row_where_the_first_of_it_stood_until_it_is_opened() -> None:
    items = [{"name": f"p{n}", "class": "b" if n == 1 else "a", "age": n} for n in range(20)]
    assert run(FOLD, items=items, open=[]) == [["p0", 19, 19], ["p1", 1, 1]]
    assert run(FOLD, items=items, open=["a"]) == [[f"p{n}", n, 1] for n in range(20)]


# --- troubles -------------------------------------------------------------------------------------------------------


def scaler(**more: Any) -> dict[str, Any]:
    return {"trouble": "", "foreign": {}, "go": "counts", "at": "2026-01-01T00:00:00Z", "services": [], **more}


def service(**more: Any) -> dict[str, Any]:
    return {"name": "front", "bad": [], "pending": 0, "held": "", **more}


TROUBLES = """
    const { troubles } = await ui('autoscaler_panel.js');
    return troubles(one, Date.parse('2026-01-01T00:00:00Z') + 1000 * age);
"""


@pytest.mark.parametrize(
    ("one", "age_s", "words"),
    [
        (scaler(trouble="failed: no weights"), 0, ["failed: no weights"]),
        (scaler(foreign={"front": "keda"}), 0, ["front is set by keda"]),
        (scaler(go="void"), 0, ["the go is void: something has changed since it was given"]),
        (scaler(go="none"), 0, ["nobody gave a go: nothing is written"]),
        (scaler(), 3600, ["no decision for 60 min: is the autoscaler running?"]),
        (scaler(at=""), 0, ["it has not been decided upon yet"]),
        (scaler(services=[service(bad=["cpu: it is 90 s old"])]), 0, ["front: cpu: it is 90 s old"]),
        (scaler(services=[service(pending=3)]), 0, ["front: 3 replicas without a node"]),
    ],
)
def test_the_column_trouble_tells_every_trouble(one: dict[str, Any], age_s: float, words: list[str]) -> None:
    assert run(TROUBLES, one=one, age=age_s) == words


def test_what_was_asked_for_is_no_trouble() -> None:
    for one in (scaler(), scaler(go=""), scaler(services=[service(held="Canary: not in the 10 %")])):
        assert run(TROUBLES, one=one, age=0) == []


@pytest.mark.parametrize(
    ("status", "again"), [(0, True), (429, True), (503, True), (404, False), (403, False), (409, False)]
)
def test_only_a_refusal_of_the_moment_is_asked_again(status: int, again: bool) -> None:
    script = """
        const [{ passes }, { ApiError }] = [await ui('answer.js'), await ui('api.js')];
        return passes(new ApiError(status, "code", "words"));
    """
    assert run(script, status=status) is again


# --- devices --------------------------------------------------------------------------------------------------------


def test_devices_that_claims_are_given_are_among_a_nodes_resources_by_driver() -> None:
    script = """
        const { withDevices, share, inResourceOrder, isExtended } = await ui('resources.js');
        const found = withDevices(node);
        const names = inResourceOrder(Object.keys(found.allocatable).filter(isExtended));
        return [names, names.map((name) => share(found, name)), node];
    """
    pools = [{"driver": "gpu.x", "devices": 8, "allocated": 2}, {"driver": "gpu.x", "devices": 2, "allocated": 2}]
    node = {"allocatable": {"cpu_millis": 1, "x/fpga": 2}, "requested": {"x/fpga": 1}, "devices": pools}
    assert run(script, node=node) == [["gpu.x", "x/fpga"], [0.4, 0.5], node]
    plain = {"allocatable": {"cpu_millis": 1}, "requested": {}}
    assert run(script, node=plain)[:2] == [[], []]
