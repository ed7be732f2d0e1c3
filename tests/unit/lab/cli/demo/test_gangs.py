"""The demo's gangs, and what their tenants' shares say."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from lab.audit.log import LogEntry
from lab.cli.demo.gangs import QUEUE, TENANTS, Shares, gangs, unfair
from lab.cli.demo.workload import load_workload
from shared.errors import ConfigError


def test_tenants_have_work_of_the_same_kind_in_proportion_to_their_weights():
    groups, members = gangs(Random(0), count=240)
    tenant = Counter(group["metadata"]["labels"][QUEUE] for group in groups)
    racked = Counter(g["metadata"]["labels"][QUEUE] for g in groups if "schedulingConstraints" in g["spec"])
    assert tenant == {"research": 160, "product": 80}
    assert racked == {"research": 40, "product": 20}
    assert len(members) == sum(group["spec"]["schedulingPolicy"]["gang"]["minCount"] for group in groups)


def entry(number: int, verb: str, tenant: str, at_s: float, *, node: str = "") -> LogEntry:
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    if node:
        spec["nodeName"] = node
    meta = {"name": f"p{number}", "uid": f"u{number}", "labels": {QUEUE: tenant}}
    return LogEntry(1, at_s, verb, "Pod", "default", f"p{number}", "", {"metadata": meta, "spec": spec})


def shares(research: int, product: int) -> dict[str, Any]:
    """So many pods of each run, one after the other, while both have one more waiting."""
    found = Shares(TENANTS)
    for number, tenant in enumerate(TENANTS):
        found.feed(entry(-number, "create", tenant, 0.0))
    number = 0
    for tenant, count in (("research", research), ("product", product)):
        for _ in range(count):
            number += 1
            found.feed(entry(number, "create", tenant, 0.0))
            found.feed(entry(number, "bind", tenant, 0.0, node="n"))
    found.feed(entry(number + 1, "create", "product", 10.0))
    return found.figures()


def test_a_share_that_is_off_by_more_than_two_points_is_a_problem_after_a_thousand_units():
    assert unfair(shares(690, 345)) == []
    [one, two] = unfair(shares(600, 500))
    assert one == "share of research is 54.5% after 1100 units, must be 66.7% within 2 points"
    assert two.startswith("share of product is 45.5%")


def test_of_fewer_units_shares_decide_nothing():
    assert unfair(shares(6, 5)) == []


@pytest.mark.parametrize("given", [{"many": 4}, {"largest": 4}])
def test_how_many_gangs_is_refused_of_a_workload_without_any(given):
    with pytest.raises(ConfigError, match="has no gangs; add --workload gangs"):
        load_workload("uniform", seed=0, nodes=None, trace_dir=None, **given)
