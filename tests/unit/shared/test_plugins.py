"""A plug-in that does wrong is told by its name and harms nothing but itself; one that fails to judge admits nobody."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from services.cli.etcd import Leading, MeshView
from services.coordinator.core.events import AgentsChanged
from services.coordinator.core.state import CoreSettings
from services.coordinator.settings import CoordinatorSettings
from shared.election.record import LeaderRecord
from shared.errors import ConfigError
from shared.plugins import BroughtFilter, BroughtPolicy, BroughtScore
from shared.policy import registry
from shared.policy.guard import PlacementGuard
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Supplies, supply
from shared.policy.registry import make_policy
from shared.runtime.process.health import ProcessHealth
from shared.runtime.process.plugins import Plugins, plugins_of
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.feasibility import FeasibilityCache, failure_message
from shared.scheduling.cycle.profile import PluginSet, with_plugins
from shared.scheduling.framework import Code
from shared.scheduling.state.cache import ClusterCache
from shared.wire.records import AgentRecord, MemberRecord
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

POD = make_pod().cpu("1").pod().pod_class


def cluster(count: int = 3) -> ClusterCache:
    cache = ClusterCache()
    for number in range(count):
        cache.upsert_node(make_node(f"n{number}").label(rack=f"r{number}").node())
    return cache


class Rack:
    api_version = "v1"
    message = "node(s) are in another rack"
    static = True

    def takes(self, nodes, pod):
        return nodes.label_in("rack", ["r1"])


class Raises(Rack):
    def takes(self, nodes, pod):
        raise KeyError("rack")


class Misshapen(Rack):
    def takes(self, nodes, pod):
        return np.ones(len(nodes) + 1, np.bool_)


class Indices(Rack):
    def takes(self, nodes, pod):
        return np.zeros(len(nodes), np.int64)


class ReadsAmountsThoughStatic(Rack):
    def takes(self, nodes, pod):
        return nodes.free("cpu") > 0


class FewPods:
    api_version = "v1"
    message = "node(s) have a pod"

    def takes(self, nodes, pod):
        return nodes.requested("pods") == 0


def judged(plugin: Any, cache: ClusterCache, reports: list[tuple[str, str]] | None = None) -> FeasibilityCache:
    told = [] if reports is None else reports
    brought = BroughtFilter("rack", plugin, lambda name, text: told.append((name, text)))
    return FeasibilityCache(cache.table, profile=with_plugins((brought,), ()))


# --- filters --------------------------------------------------------------------------------------------------------


def test_a_filter_passes_the_nodes_it_takes_and_gives_its_reason_for_the_others() -> None:
    cache = cluster()
    feasibility = judged(Rack(), cache)
    assert np.flatnonzero(feasibility.of(POD).mask).tolist() == [1]
    diagnosis = feasibility.diagnosis(POD)
    assert failure_message(diagnosis) == "0/3 nodes are available: 2 node(s) are in another rack."
    assert diagnosis.plugins == {"rack"}
    rejection = check_placement(feasibility, POD, "n0")
    assert rejection is not None
    assert (rejection.plugin, rejection.code) == ("rack", Code.UNRESOLVABLE)


@pytest.mark.parametrize("plugin", [Raises(), Misshapen(), Indices(), ReadsAmountsThoughStatic()], ids=type)
def test_a_filter_that_fails_admits_no_node_and_says_so(plugin: Any) -> None:
    cache, reports = cluster(), list[tuple[str, str]]()
    feasibility = judged(plugin, cache, reports)
    assert not feasibility.of(POD).mask.any()
    assert failure_message(feasibility.diagnosis(POD)) == (
        "0/3 nodes are available: 3 node(s) not judged, filter rack failed."
    )
    assert {name for name, _ in reports} == {"rack"}
    assert check_placement(feasibility, POD, "n1") is not None


def test_ablation_without_the_filter_every_node_is_admitted() -> None:
    assert FeasibilityCache(cluster().table).of(POD).mask.sum() == 3


def test_a_filter_that_reads_accounting_is_asked_again_and_counts_for_one_node_too() -> None:
    cache = cluster()
    feasibility = judged(FewPods(), cache)
    assert feasibility.of(POD).mask.all()
    cache.assume("u", "n2", POD, now=0.0)
    assert feasibility.of(POD).mask.tolist() == [True, True, False]
    rejection = check_placement(feasibility, POD, "n2")
    assert rejection is not None
    assert (rejection.code, rejection.reasons) == (Code.UNSCHEDULABLE, ("node(s) have a pod",))
    assert check_placement(feasibility, POD, "n1") is None


def test_rows_of_nodes_that_are_gone_are_not_shown_to_a_filter() -> None:
    seen: list[list[str]] = []

    class Watching(FewPods):
        def takes(self, nodes, pod):
            seen.append(nodes.names)
            return np.ones(len(nodes), np.bool_)

    cache = cluster()
    feasibility = judged(Watching(), cache)
    feasibility.of(POD)
    cache.remove_node("n1")
    assert feasibility.of(POD).mask.tolist() == [True, False, True]
    assert all("" not in names for names in seen)


# --- scores and policies --------------------------------------------------------------------------------------------


class ByRack:
    api_version = "v1"
    weight = 5

    def score(self, nodes, pod):
        return np.array([{"r0": -7.0, "r1": 40.9}.get(rack, 1e9) for rack in nodes.label("rack")])


class Nan(ByRack):
    def score(self, nodes, pod):
        return np.full(len(nodes), np.nan)


def totals(scores: tuple[Any, ...], cache: ClusterCache) -> list[float]:
    policy = KubeDefault()
    supply(policy, Supplies(scores=scores))
    return policy.decide(Observation(cache.table, POD, np.arange(3)), Random(1)).score.tolist()


def test_a_score_is_put_within_its_bounds_weighed_and_added() -> None:
    cache = cluster()
    plain = totals((), cache)
    ranked = totals((BroughtScore("by-rack", ByRack(), print),), cache)
    assert [with_it - without for with_it, without in zip(ranked, plain, strict=True)] == [0.0, 200.0, 500.0]


def test_a_score_that_fails_counts_nothing_from_then_on() -> None:
    cache, reports = cluster(), list[tuple[str, str]]()
    score = BroughtScore("nan", Nan(), lambda *told: reports.append(told))
    assert totals((score,), cache) == totals((), cache)
    score._plugin = ByRack()
    assert totals((score,), cache) == totals((), cache)
    assert reports == [
        ("nan", "score nan failed and counts nothing until a restart: it answered NaN or an infinite number")
    ]


def test_a_policy_that_fails_is_replaced_by_the_heuristic() -> None:
    class Broken:
        api_version = "v1"
        version = 1

        def rank(self, nodes, pod, draw):
            raise RuntimeError

    cache = cluster()
    guard = PlacementGuard(BroughtPolicy("broken", Broken(), 1))
    _, fallen = guard.decide(Observation(cache.table, POD, np.arange(3)), Random(1))
    assert fallen


# --- loading --------------------------------------------------------------------------------------------------------

CODE = """
import numpy as np
class Filter:
    api_version = "v1"
    message = "node(s) are not nice"
    def takes(self, nodes, pod):
        return np.ones(len(nodes), np.bool_)
class Score:
    api_version = "v1"
    weight = 1
    def score(self, nodes, pod):
        return np.zeros(len(nodes), np.int64)
class OldFilter(Filter):
    api_version = "v0"
class OldScore(Score):
    api_version = "v0"
class Heavy(Score):
    weight = 1000
class Mute(Filter):
    message = ""
class Policy:
    api_version = "v1"
    version = 3
    row_local = True
    def rank(self, nodes, pod, draw):
        return np.zeros(len(nodes))
class Undeclared(Policy):
    row_local = False
class Normalised(Policy):
    def rank(self, nodes, pod, draw):
        free = nodes.free("cpu")
        return free / free.max()
class Raises(Undeclared):
    def rank(self, nodes, pod, draw):
        raise KeyError("zone")
"""
ENTRIES = """
[conclave.filters]
nice = brought_code:Filter
old-filter = brought_code:OldFilter
mute = brought_code:Mute
absent = no_such_module:Filter
twice = brought_code:Filter
Bad_Name = brought_code:Filter
[conclave.scores]
even = brought_code:Score
old-score = brought_code:OldScore
heavy = brought_code:Heavy
gone = no_such_module:Score
twice = brought_code:Score
[conclave.policies]
zero = brought_code:Policy
random = brought_code:Policy
undeclared = brought_code:Undeclared
normalised = brought_code:Normalised
raises = brought_code:Raises
missing = no_such_module:Policy
"""


@pytest.fixture
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    info = tmp_path / "brought-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "brought_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    plugins_of.cache_clear()
    monkeypatch.setattr(registry, "LEFT_OUT", {})
    before = dict(registry.HEURISTICS)
    yield
    registry.HEURISTICS.clear()
    registry.HEURISTICS.update(before)
    sys.modules.pop("brought_code", None)
    plugins_of.cache_clear()


@pytest.mark.usefixtures("_package")
def test_what_is_named_is_loaded_in_that_order_with_its_release() -> None:
    plugins = plugins_of(("even", "nice", "zero"))
    assert plugins.titles == ("score even@2.1", "filter nice@2.1", "policy zero@2.1")
    assert plugins.profile.names == ("nice",)
    assert [score.name for score in plugins.profile.scores] == ["even"]
    assert make_policy("zero").version == 3


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere", "plugins: 'nowhere' is not installed here; there is Bad_Name, absent, even"),
        ("old-filter", "plugin old-filter: is written for interface 'v0', this release offers 'v1'"),
        ("absent", r"plugin absent: cannot be imported \(ModuleNotFoundError"),
        ("mute", "plugin mute: message must be one line"),
        ("twice", "plugins: 'twice' is brought 2 times"),
        ("Bad_Name", "plugins: 'Bad_Name' is not 1 to 63 small letters"),
    ],
)
def test_a_filter_that_cannot_be_loaded_keeps_the_service_from_starting(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plugins_of((name,))


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("old-score", "this release offers 'v1'"),
        ("heavy", "weight must be a whole number of 1 to 100"),
        ("gone", "cannot be imported"),
        ("random", "is the name of a policy of ours"),
        ("normalised", "it gives a node 0.209677 among 6 nodes and 0.481481 among 3; agents see some of the nodes"),
    ],
)
def test_a_score_or_policy_that_cannot_be_loaded_is_left_out_alone_and_told(name: str, told: str) -> None:
    plugins = plugins_of((name, "even"))
    assert [score.name for score in plugins.profile.scores] == ["even"]
    assert plugins.titles == ("score even@2.1",)
    standing = ProcessHealth({})
    plugins.follow(standing.note)
    (warning,) = standing.look()
    assert warning.startswith(f"plugin {name}: ")
    assert told in warning
    assert warning.endswith("it is left out")


@pytest.mark.usefixtures("_package")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("normalised", "it gives a node 0.209677 among 6 nodes and 0.481481 among 3; agents see some of the nodes"),
        ("raises", "it cannot be tried out: KeyError: 'zone'; agents see some of the nodes"),
        ("missing", "cannot be imported (ModuleNotFoundError: No module named 'no_such_module')"),
    ],
)
def test_a_service_that_is_to_place_by_a_policy_that_was_left_out_says_in_one_line_why_it_does_not_start(
    name: str, told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        CoordinatorSettings(plugins=(name,), policy=name)
    text = str(refused.value)
    assert text.startswith(f"policy: {name!r} was left out: plugin {name}: {told}")
    assert text.endswith("; correct it, or choose another policy")
    assert "\n" not in text
    with pytest.raises(ConfigError, match="policy: 'nowhere' is not known; choose one of"):
        make_policy("nowhere")


def test_what_goes_wrong_later_is_told_once_and_by_the_process() -> None:
    plugins, standing = Plugins(), ProcessHealth({})
    plugins.follow(standing.note)
    for _ in range(3):
        plugins.report("rack", "filter rack failed")
    assert standing.look() == ("filter rack failed",)


# --- who has which --------------------------------------------------------------------------------------------------


def with_filter() -> PluginSet:
    return with_plugins((BroughtFilter("rack", Rack(), print),), ())


def test_an_agent_with_other_filters_gets_no_nodes_until_it_has_ours() -> None:
    made = Scene(agents=2, settings=CoreSettings(profile=with_filter()))
    for number in range(4):
        made.add_node(make_node(f"n{number}").label(rack="r1").node())
    ours = made.records["agent-1"]
    made.records["agent-1"] = AgentRecord(id="agent-1", url=ours.url, incarnation=ours.incarnation)
    made.begin()
    made.run()
    sizes = made.core.registry.ownership.sizes
    assert (sizes.get("agent-0"), sizes.get("agent-1", 0)) == (4, 0)
    made.add_pod(make_pod("p").cpu("1").pod())
    made.run()
    assert len(made.bindings) == 1
    made.records["agent-1"] = ours
    made.deliver(AgentsChanged(tuple(made.records.values())))
    made.run()
    assert made.core.registry.ownership.sizes["agent-1"] == 2


def test_status_tells_who_has_other_plugins_than_the_leader() -> None:
    leader = LeaderRecord(identity="c", incarnation="1")
    ours = ("filter rack@1.0", "score even@1.0")
    processes = {
        "coordinator/c": MemberRecord(id="c", url="", incarnation="1", plugins=ours),
        "binder/b": MemberRecord(id="b", url="", incarnation="1", plugins=("filter rack@1.1", "score even@1.0")),
    }
    agents = {
        "same": AgentRecord(id="same", url="", incarnation="1", plugins=tuple(reversed(ours))),
        "bare": AgentRecord(id="bare", url="", incarnation="1"),
    }
    told = MeshView(1, Leading(leader, 1, 1), agents=agents, processes=processes).to_json()["warnings"]
    remedy = "give every service the same setting and install the same releases"
    theirs = "the coordinator filter rack@1.0, score even@1.0"
    assert told == [
        f"agent bare: has the plugins none, {theirs}: the filters differ, so it gets no nodes; {remedy}",
        f"binder b: has the plugins filter rack@1.1, score even@1.0, {theirs}: they may rank differently; {remedy}",
    ]
