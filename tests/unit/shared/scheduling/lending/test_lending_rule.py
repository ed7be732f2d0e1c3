"""How much of a node is lent: Koordinator's formula, case by case."""

from __future__ import annotations

import math

import pytest

from shared.model.qos import Qos
from shared.model.resources import CPU, MAX_INT64, MEMORY
from shared.scheduling.lending.rule import LendingRule, PodUse, lent, taken

RULE = LendingRule()


@pytest.mark.parametrize("scale", [1, 100, 10_000])
@pytest.mark.parametrize(
    ("resource", "capacity", "system", "reserved", "pods", "gone", "expected"),
    [
        pytest.param(CPU, 10_000, 500, 1000, [(2000, 4000)], 0, 3000, id="reserved-above-system"),
        pytest.param(CPU, 10_000, 1500, 1000, [(2000, 4000)], 0, 2500, id="system-above-reserved"),
        pytest.param(MEMORY, 10_000, 500, 1000, [(2000, 4000)], 0, 3500, id="memory-65-percent"),
        pytest.param(CPU, 10_000, 0, 0, [(None, 4000)], 0, 2000, id="no-metric-counts-with-its-request"),
        pytest.param(CPU, 10_000, 0, 0, [], 700, 5300, id="gone-still-counts"),
        pytest.param(CPU, 10_000, 0, 0, [(9000, 1000)], 0, 0, id="never-below-0"),
        pytest.param(CPU, 10_000, 0, 0, [(1000, 9000), (2000, 9000)], 0, 3000, id="by-use-not-by-request"),
        pytest.param(CPU, 0, 0, 0, [], 0, 0, id="capacity-unknown"),
    ],
)
def test_koordinators_formula(
    resource: str,
    capacity: int,
    system: int,
    reserved: int,
    pods: list[tuple[int | None, int]],
    gone: int,
    expected: int,
    scale: int,
) -> None:
    uses = [PodUse(Qos.ONLINE, scale * asked, scale * used if used is not None else None) for used, asked in pods]
    of_it = taken(resource, uses, system_used=scale * system, reserved=scale * reserved, gone_used=scale * gone)
    assert lent(resource, scale * capacity, of_it, RULE, age_s=60) == scale * expected


@pytest.mark.parametrize(
    ("qos", "resource", "used", "request_", "counts"),
    [
        (Qos.ONLINE, CPU, 300, 1000, 300),
        (Qos.ONLINE, CPU, 3000, 1000, 3000),
        (Qos.SYSTEM, CPU, 300, 1000, 300),
        (Qos.EXCLUSIVE, CPU, 300, 1000, 1000),
        (Qos.EXCLUSIVE, MEMORY, 300, 1000, 300),
        (Qos.OFFLINE, CPU, 300, 0, 0),
        (Qos.OFFLINE, CPU, None, 0, 0),
        (Qos.OFFLINE, CPU, 300, 200, 200),
        (Qos.OFFLINE, CPU, 100, 200, 200),
        (Qos.OFFLINE, CPU, None, 200, 200),
    ],
)
def test_what_a_pod_takes_by_its_class(qos: Qos, resource: str, used: int | None, request_: int, counts: int) -> None:
    assert taken(resource, [PodUse(qos, request_, used)], system_used=0) == counts


@pytest.mark.parametrize("used", [math.nan, math.inf, -math.inf, -1.0])
def test_a_metric_that_cannot_be_is_none(used: float) -> None:
    assert taken(CPU, [PodUse(Qos.ONLINE, 1000, used)], system_used=0) == 1000


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("field", ["system_used", "gone_used"])
def test_nothing_is_lent_where_the_systems_use_cannot_be(bad: float, field: str) -> None:
    of_it = taken(CPU, [], **({"system_used": 0.0} | {field: bad}))
    assert lent(CPU, 10_000, of_it, RULE, age_s=0) == 0


@pytest.mark.parametrize(
    ("age_s", "some"), [(-3600, True), (0, True), (899, True), (900, False), (90_000, False), (math.nan, False)]
)
def test_after_15_minutes_without_metrics_nothing_is_lent(age_s: float, some: bool) -> None:
    assert (lent(CPU, 10_000, 0, RULE, age_s=age_s) > 0) is some


def test_the_margin_is_kept_back_of_what_could_be_lent() -> None:
    assert lent(CPU, 10_000, 2000, LendingRule(margin_percent=25), age_s=0) == 3000
    assert lent(CPU, 10_000, 2000, LendingRule(cpu_percent=80), age_s=0) == 6000
    assert lent(CPU, 10_001, 2000, RULE, age_s=0) == 4000  # rounded down


def test_no_amount_is_beyond_what_the_api_server_can_hold() -> None:
    assert lent(MEMORY, 10 * MAX_INT64, 0, RULE, age_s=0) == MAX_INT64
