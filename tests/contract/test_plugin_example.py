"""The example package of docs/examples/plugin, installed as a user would, in every place where it has a say."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent.settings import AgentSettings
from services.binder.core.state import BinderCoreSettings, BinderState
from services.binder.cycle.check import check_node
from services.binder.settings import BinderSettings
from services.coordinator.core.state import CoreSettings
from services.coordinator.inspect.explain import explain
from services.coordinator.settings import CoordinatorSettings
from shared.policy import registry
from shared.runtime.agent.policies import PolicyLoader
from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.settings import load
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.scene import Scene

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "plugin"
NAMES = ("example-headroom", "example-tier", "example-fullest")


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    source, target = tmp_path_factory.mktemp("plugin") / "source", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)
    # what pip does in the end, by the commands that every setuptools has: pip itself would need wheel
    build = "import setuptools; setuptools.setup()"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, "-q", "build", "--build-lib", str(target), "egg_info",
         "--egg-base", str(target)],
        check=True, cwd=source, timeout=PATIENCE_S,
    )  # fmt: skip
    before = dict(registry.HEURISTICS)
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    plugins_of.cache_clear()
    yield
    sys.path.remove(str(target))
    sys.modules.pop("conclave_example_plugins", None)
    plugins_of.cache_clear()
    registry.HEURISTICS.clear()
    registry.HEURISTICS.update(before)


def profile() -> PluginSet:
    return plugins_of(NAMES).profile


def scene(*, policy: str = "kube-default") -> Scene:
    """``roomy`` has to keep half of its 8 GiB free; ``gold`` is of the better tier and has 2 GiB."""
    made = Scene(agents=2, policy=policy, settings=CoreSettings(profile=profile()))
    headroom = {"example.com/headroom": "50"}
    made.add_node(make_node("roomy").allocatable(cpu="8", memory="8Gi", pods="110").label(**headroom).node())
    tier = {"example.com/tier": "gold"}
    made.add_node(make_node("gold").allocatable(cpu="8", memory="2Gi", pods="110").label(**tier).node())
    made.begin()
    made.run()
    return made


def test_an_installed_package_alone_changes_nothing() -> None:
    plugins = plugins_of(())
    assert plugins.profile is DEFAULT
    assert plugins.titles == ()
    assert not set(NAMES) & {*registry.HEURISTICS, *registry.LEARNED}


def test_agents_coordinators_and_binders_take_the_same_setting() -> None:
    wanted = {"plugins": ",".join(NAMES)}
    for settings in (load(kind, flags=wanted) for kind in (AgentSettings, CoordinatorSettings, BinderSettings)):
        plugins = plugins_of(settings.plugins)
        assert plugins.titles == (
            "filter example-headroom@1.0", "score example-tier@1.0", "policy example-fullest@1.0"
        )  # fmt: skip
        assert plugins.wrong == {}
    assert load(CoordinatorSettings, flags=wanted).core().profile.names == ("example-headroom",)
    assert load(BinderSettings, flags=wanted).binder_core().profile.names == ("example-headroom",)


def test_the_filter_keeps_its_rule_on_the_way_of_a_pod() -> None:
    made = scene()
    for number in range(8):
        made.add_pod(make_pod(f"p{number}").cpu("100m").memory("1Gi").pod())
        made.run()
    placed = [node for _, node in made.bindings]
    assert placed.count("roomy") == 4
    assert placed.count("gold") == 2
    waiting = next(pod for pod in made.pods.values() if not pod.node_name)
    answer = explain(made.core, waiting, {}, made.now)
    reasons = {group["plugin"]: group for group in answer["nodes"]["groups"]}
    assert reasons["example-headroom"]["reasons"] == ("node(s) would lose their memory headroom",)
    assert reasons["example-headroom"]["nodes"][0]["name"] == "roomy"
    assert answer["queue"]["rejected_by"] == ["NodeResourcesFit", "example-headroom"]


def test_a_pod_that_the_filter_refused_goes_on_when_the_node_changes() -> None:
    made = scene()
    made.add_pod(make_pod("big").cpu("1").memory("6Gi").pod())
    made.run()
    assert made.bindings == []
    made.add_node(make_node("roomy").allocatable(cpu="8", memory="8Gi", pods="110").label(x="y").node())
    made.run()
    assert made.bindings == [("uid-big", "roomy")]


def test_the_score_counts_with_its_weight_in_the_decision_and_in_its_explanation() -> None:
    made = scene()
    made.add_pod(make_pod("small").cpu("100m").memory("64Mi").pod())
    made.run()
    assert made.bindings == [("uid-small", "gold")]
    pending = make_pod("other").cpu("100m").memory("64Mi").pod()
    made.pods[pending.uid] = pending
    nodes = explain(made.core, pending, {}, made.now)["nodes"]
    assert {one["name"]: one["scores"]["example-tier"] for one in nodes["candidates"]} == {"gold": 200, "roomy": 0}
    assert nodes["score_rules"]["example-tier"] == {"weight": 2, "most": 200}


async def test_the_policy_decides_once_the_pointer_names_it() -> None:
    made = scene()

    async def no_weights(sha256: str) -> bytes | None:
        raise AssertionError(sha256)

    for agent in made.agents.values():
        pointer = PolicyPointer(active=PolicyRef("example-fullest", 1), number=1)
        assert await PolicyLoader(agent.lanes, no_weights).take_over(pointer)
        assert agent.lanes.active.ref.title == "example-fullest@1"
    made.add_pod(make_pod("first").cpu("2").memory("64Mi").pod())
    made.run()
    ((_, first),) = made.bindings
    for number in range(3):
        made.add_pod(make_pod(f"p{number}").cpu("100m").memory("64Mi").pod())
        made.run()
    assert {node for _, node in made.bindings} == {first}
    assert all(not agent.policy_fallbacks for agent in made.agents.values())


def test_the_binder_refuses_what_the_filter_refuses() -> None:
    state = BinderState(1, BinderCoreSettings(profile=profile()))
    labels = {"example.com/headroom": "50"}
    state.cluster.upsert_node(make_node("roomy").allocatable(cpu="8", memory="8Gi", pods="110").label(**labels).node())
    assert check_node(state, make_pod("fits").cpu("1").memory("4Gi").pod(), "roomy") is None
    rejection = check_node(state, make_pod("big").cpu("1").memory("5Gi").pod(), "roomy")
    assert rejection is not None
    assert rejection.plugin == "example-headroom"
