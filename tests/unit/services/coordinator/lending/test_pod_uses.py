"""What pods use, and how old that is by our own clock."""

from __future__ import annotations

import pytest

from services.coordinator.lending.pod_uses import STALE_S, PodUses
from shared.kube.nodes.pod_metrics import PodMetric

WALL_S, NOW_S = 1_000_000.0, 50.0


def taken(*said_s: float) -> PodUses:
    """One pod, told of at ``said_s`` each time, a second after the other."""
    uses = PodUses()
    for number, at_s in enumerate(said_s):
        uses.take(PodMetric("shop/web", at_s, 100 * (number + 1), 1), wall_s=WALL_S + number, now_s=NOW_S + number)
    return uses


@pytest.mark.parametrize("apart_s", [0.0, 3600.0, 4e9])
def test_a_measurement_from_the_future_is_new_once(apart_s: float) -> None:
    uses = taken(WALL_S + apart_s, WALL_S + apart_s)
    assert uses.get("shop/web", NOW_S + STALE_S - 1) is not None
    assert uses.get("shop/web", NOW_S + STALE_S) is None


def test_a_measurement_of_the_past_is_as_old_as_it_says() -> None:
    uses = taken(WALL_S - 100)
    found = uses.get("shop/web", NOW_S)
    assert found is not None
    assert found.at_s == NOW_S - 100
    assert uses.get("shop/web", NOW_S + STALE_S - 100) is None


def test_a_newer_one_counts() -> None:
    found = taken(WALL_S, WALL_S + 1).get("shop/web", NOW_S + 1)
    assert found is not None
    assert found.amounts == (200, 1)


def test_what_the_source_does_not_name_any_more_is_forgotten() -> None:
    uses = taken(WALL_S)
    uses.keep({"shop/web"})
    assert len(uses) == 1
    uses.keep(set())
    assert len(uses) == 0
    assert uses.answered
