"""``conclave train POLICY --cluster CAPTURE``: every learned placement policy, by every algorithm, with curves and a
card; never worse than the shipped weights on the days held back; what was stopped goes on as if it had not been."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from lab.learner.__main__ import main
from lab.learner.deepsets import settings as sets
from lab.learner.deepsets import training as sets_training
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.marl import settings as agents
from lab.learner.marl import training as agents_training
from lab.learner.marl.ippo import IppoRun
from lab.learner.marl.training import MarlRun
from lab.learner.training import captured
from lab.learner.training.runner import ALGORITHMS
from lab.worlds.placement.captured_cluster import CapturedCluster, cluster_of
from shared.policy.marl.class_networks import split
from shared.policy.marl.policy import MarlDqn
from shared.policy.registry import load_policy
from shared.policy.weights import ClassNetworks, decode, digest, encode, shipped
from tests.captures import make_capture, with_gpus
from twin.model.capture import Capture
from twin.model.capture import encode as written

torch.set_num_threads(1)
SETS = ("ee", "el", "lb")


@pytest.fixture(scope="module")
def cluster() -> CapturedCluster:
    return cluster_of(make_capture(pods=150), "c")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations of two short episodes."""
    for module in (sets_training, agents_training):
        monkeypatch.setattr(module, "VALIDATED", 2)
        monkeypatch.setattr(module, "ARRIVALS", 12)
    monkeypatch.setattr(agents_training, "LEAST_OF_CLASS", 1)


def sets_run(policy: str, algorithm: Any, cluster: CapturedCluster, steps: int = 700) -> DeepSetsRun | PpoRun:
    settings = sets.settings_on(policy, 1000, None, cluster="sha256:c", algorithm=algorithm)
    settings = replace(settings, decisions=steps, learning_starts=100, validate_every=300)
    return (DeepSetsRun if settings.ppo is None else PpoRun)(settings, None, cluster)


def agents_run(algorithm: Any, cluster: CapturedCluster, rounds: int = 2) -> MarlRun | IppoRun:
    settings = agents.settings_on(
        "marl-dqn", 1000, rounds, nodes=cluster.nodes, cluster="sha256:c", algorithm=algorithm
    )
    settings = replace(settings, episodes_per_round=2, updates_per_round=10, validate_every=1)
    if algorithm == "ppo":
        return IppoRun(settings, None, None, cluster)
    return MarlRun(settings, None, cluster)


@pytest.mark.parametrize("algorithm", ["", *ALGORITHMS])
@pytest.mark.parametrize("policy", [*SETS, "marl-dqn"])
def test_by_each_algorithm_a_policy_is_learned_and_is_never_worse_than_the_shipped_one(
    cluster: CapturedCluster, policy: str, algorithm: str
) -> None:
    run = agents_run(algorithm, cluster) if policy == "marl-dqn" else sets_run(policy, algorithm, cluster)
    reports = list(run.run())
    assert run.finished
    assert reports[0].step == 0
    assert reports[0].validated
    file = run.weights(version=9)
    data = encode(file)
    load_policy(policy, data=data, sha256=digest(data))  # of its shape, whatever it learned by
    ours = dict(shipped(policy).arrays)
    if isinstance(run, DeepSetsRun | PpoRun):
        assert run.validated(dict(file.arrays)) == run.best_regret <= run.validated(ours)
    else:
        found, before = (run.ground.imbalance(one, run._workers) for one in (dict(file.arrays), ours))
        assert found == run.best_imbalance <= before


@pytest.mark.parametrize("algorithm", ["", "dqn", "distributional"])
def test_what_the_shipped_weights_mean_is_where_learning_begins(cluster: CapturedCluster, algorithm: str) -> None:
    ours = shipped("lb").arrays
    begun = sets_run("lb", algorithm, cluster).best
    assert all(begun[name] == pytest.approx(ours[name], abs=1e-6) for name in ours)
    stack = agents_run(algorithm, cluster)._stack.arrays()
    theirs = shipped("marl-dqn").arrays
    assert all(stack[name] == pytest.approx(theirs[name], abs=1e-6) for name in theirs)


def test_what_they_do_not_mean_begins_from_nothing(cluster: CapturedCluster) -> None:
    ours = shipped("ee").arrays["l0.w"]
    assert not np.allclose(sets_run("ee", "double", cluster).best["l0.w"], ours)
    assert np.allclose(sets_run("ee", "ppo", cluster).best["l0.w"], ours)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda on: sets_run("lb", "", on), id="lb"),
        pytest.param(lambda on: sets_run("ee", "", on, 1_200), id="ee"),
        pytest.param(lambda on: sets_run("lb", "distributional", on), id="lb, distributional"),
        pytest.param(lambda on: agents_run("", on, 3), id="marl-dqn"),
        pytest.param(lambda on: agents_run("ppo", on, 3), id="marl-dqn, ppo"),
    ],
)
@pytest.mark.parametrize("begun", [False, True], ids=["at first", "later"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    cluster: CapturedCluster, make: Callable[[CapturedCluster], Any], begun: bool
) -> None:
    whole, first, resumed = make(cluster), make(cluster), make(cluster)
    for _ in whole.run():
        pass
    steps = first.run()
    for report in steps:
        if bool(report.step) >= begun and report.saveable:
            break
    steps.close()
    resumed.set_state(first.get_state())
    for _ in resumed.run():
        pass
    assert getattr(whole, "stale", 0) == getattr(resumed, "stale", 0)
    ours, theirs = whole.weights(version=1).arrays, resumed.weights(version=1).arrays
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def capture_file(folder: Path, capture: Capture | None = None) -> Path:
    file = folder / "mine.json.gz"
    file.write_bytes(written(capture or make_capture(pods=150)))
    return file


def trained(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["train", *map(str, words)])
    return found.exit_code, found.output


@pytest.mark.parametrize("better", [True, False])
def test_weights_card_and_curves_say_what_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    monkeypatch.setattr(captured, "clearly_better", lambda before, after: better)
    capture = make_capture(pods=150)
    capture.series["n1"]["cpu"][:8] = [None] * 8
    file, out = capture_file(tmp_path, capture), tmp_path / "out"
    code, told = trained("lb", "--cluster", file, "--steps", 1_100, "--out", out)
    assert code == 0, told
    assert "mine.json.gz: node n1: 10% of its cpu or memory was not measured" in told
    card = decode((out / "lb.npz").read_bytes(), policy="lb").card
    trained_on = card.trained if better else card.trained["compared on"]
    data = trained_on["data"]
    assert (data["capture"], data["nodes"], data["pods"]) == ("mine.json.gz", 2, 150)
    assert data["sha256"] == digest(file.read_bytes())
    assert data["missing"] == [
        "node n1: 10% of its cpu or memory was not measured; the rest of the series stands for it"
    ]
    assert trained_on["command"].endswith("--out DIR --cluster mine.json.gz")
    assert card.version == shipped("lb").card.version + 1
    assert any("mine.json.gz" in limit for limit in card.limits) is better
    arrays = decode((out / "lb.npz").read_bytes(), policy="lb").arrays
    said = "lb: nothing clearly better was found; the weights are those of lb@2, as shipped" in told
    assert said is not better
    cost, figures = "s.d. of load on the days held back", card.figures
    before = figures[f"{cost}, shipped weights"]
    if better:
        worth = figures[f"{cost}, by training seed"]["1000"]
        assert worth <= before
    else:
        assert all(np.array_equal(array, arrays[name]) for name, array in shipped("lb").arrays.items())
        assert list(figures) == [f"{cost}, shipped weights"]
        worth = before
    assert f"lb: {cost} {worth:.5f}, shipped {before:.5f}; weights in {out}/lb.npz" in told
    curves = [json.loads(line) for line in (out / "curves-1000.jsonl").read_text().splitlines()]
    assert curves[0]["step"] == 0
    assert sum("validation/cost" in one for one in curves) >= 2
    code, told = trained("lb", "--cluster", file, "--steps", 1_100, "--out", out, "--resume")
    assert code == 0, told
    other = capture_file(tmp_path, make_capture(pods=151))
    code, told = trained("lb", "--cluster", other, "--steps", 1_100, "--out", out, "--resume")
    assert (code, "of a run with other settings" in told) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("jobs-dl2",), "--cluster: jobs-dl2 places no pods"),
        (("hybrid",), "--cluster: hybrid places no pods"),
        (("single-dqn",), "--cluster, --algorithm: single-dqn is made for"),
        (("marl-dqn-published",), "--cluster, --algorithm: marl-dqn-published is reproduced as published"),
        (("lb", "--warm-up", "kube-default"), "--warm-up: with --cluster"),
        (("lb", "--reward", "load"), "--reward: on a captured cluster the shipped goal counts"),
        (("frag", "--algorithm", "dqn"), "--algorithm: frag learns by its own alone"),
        (("frag",), "no node has a GPU, and frag is for GPUs"),
        (("power",), "power: has no weights of its own, it places by those of frag; train frag"),
        (("karma", "--algorithm", "ppo"), "--cluster: karma places no pods"),
    ],
)
def test_what_does_not_go_with_a_cluster_is_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    code, said = trained(*words, "--cluster", capture_file(tmp_path), "--out", tmp_path / "out")
    assert code == 2
    (line,) = said.splitlines()
    assert told in line
    assert not (tmp_path / "out").exists()


def pooled(capture: Capture) -> Capture:
    """Its first node has a label that the second one lacks."""
    first, *others = capture.nodes
    labels = {**(first.metadata.labels or {}), "pool": "large"}
    nodes = [msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, labels=labels)), *others]
    return msgspec.structs.replace(capture, nodes=nodes)


def test_a_class_of_nodes_learns_from_its_own_nodes_alone() -> None:
    """From the shared network on; a class without nodes has no network, and the shared one judges them."""
    cluster = cluster_of(pooled(make_capture(pods=150)), "c")
    settings = agents.settings_on(
        "marl-dqn", 1000, 2, nodes=2, cluster="sha256:c", algorithm="", per="pool", values=("large", "nobody")
    )
    settings = replace(settings, episodes_per_round=2, updates_per_round=10, validate_every=1)
    whole, first, resumed = (MarlRun(settings, None, cluster) for _ in range(3))
    list(whole.run())
    ours, found = shipped("marl-dqn").arrays, split(whole.averaged)
    moved = {
        number: not all(np.allclose(array, ours[name], atol=1e-6) for name, array in arrays.items())
        for number, arrays in found.items()
    }
    assert moved == {0: True, 1: True, 2: False}
    judged = split(whole.judged())
    assert judged.keys() == {0, 1}
    assert all(np.array_equal(array, found[n][name]) for n in judged for name, array in judged[n].items())
    assert not np.allclose(found[0]["l0.w"], found[1]["l0.w"])
    before, after = (whole.ground.imbalance(one, whole._workers) for one in (dict(ours), dict(whole.best)))
    assert after == whole.best_imbalance <= before
    steps = first.run()
    assert [next(steps).step, next(steps).step] == [0, 1]
    steps.close()
    resumed.set_state(first.get_state())
    list(resumed.run())
    assert all(np.array_equal(array, resumed.averaged[name]) for name, array in whole.averaged.items())


def class_run(capture: Capture, *values: str) -> MarlRun:
    """After its end, of a few steps."""
    cluster = cluster_of(capture, "c")
    settings = agents.settings_on(
        "marl-dqn", 1000, 1, nodes=2, cluster="sha256:c", algorithm="", per="pool", values=values
    )
    run = MarlRun(replace(settings, episodes_per_round=1, updates_per_round=3, validate_every=1), None, cluster)
    list(run.run())
    return run


def test_the_shared_network_learns_where_each_node_has_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it has seen the cluster when a node of another class comes."""
    capture = pooled(make_capture(pods=150))
    for node in capture.nodes:
        assert node.metadata.labels is not None
        node.metadata.labels.setdefault("pool", "small")
    shared = split(class_run(capture, "large", "small").averaged)[0]
    ours = shipped("marl-dqn").arrays
    assert not any(np.allclose(array, ours[name], atol=1e-6) for name, array in shared.items())
    monkeypatch.setattr(agents_training, "_for_shared_too", lambda batch: batch)  # switched off, the checker sees it
    shared = split(class_run(capture, "large", "small").averaged)[0]
    assert all(np.array_equal(array, ours[name]) for name, array in shared.items())


def test_a_class_of_too_few_transitions_has_no_network_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run = class_run(pooled(make_capture(pods=150)), "large")
    seen = run.seen_by_class()["large"]
    assert seen == run.replay.size  # one node of the two: one transition a decision
    for least, networks in ((seen, {0, 1}), (seen + 1, {0})):
        monkeypatch.setattr(agents_training, "LEAST_OF_CLASS", least)
        assert split(run.judged()).keys() == networks


@pytest.mark.parametrize("better", [True, False])
def test_one_file_holds_all_networks_where_they_are_clearly_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    monkeypatch.setattr(captured, "clearly_better", lambda before, after: better)
    file, out = capture_file(tmp_path, pooled(make_capture(pods=150))), tmp_path / "out"
    code, told = trained("marl-dqn", "--cluster", file, "--per", "pool", "--steps", 1, "--out", out)
    assert code == 0, told
    data = (out / "marl-dqn.npz").read_bytes()
    policy, card = load_policy("marl-dqn", data=data, sha256=digest(data)), decode(data, policy="marl-dqn").card
    assert isinstance(policy, MarlDqn)
    if better:
        assert card.networks == ClassNetworks("pool", {"large": 1})
        assert card.figures["transitions by pool"]["large"] > 0
        assert "imbalance on the days held back, the shared network for all nodes" in card.figures
        assert any(
            "a value that was not in the capture, are judged by the shared network" in one for one in card.limits
        )
        assert card.trained["command"].endswith("--per pool --cluster mine.json.gz")
    else:
        assert (card.networks, policy.network_named) == (msgspec.UNSET, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("marl-dqn", "--per", "rack"), "--per: no node of mine.json.gz has the label 'rack'; they have kubernetes.io"),
        (("marl-dqn", "--per", "zone"), "--per: all nodes of mine.json.gz have zone=z, one class; leave it out"),
        (("marl-dqn", "--per", "pool", "--algorithm", "ppo"), "--per: by ppo one network is learned"),
        (("marl-dqn", "--per", ""), "--per: is empty; name a label of nodes"),
        (("lb", "--per", "pool"), "--per: lb has one network for all nodes"),
    ],
)
def test_classes_that_cannot_be_learned_are_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    capture = make_capture(pods=150)
    for node in capture.nodes:
        assert node.metadata.labels is not None
        node.metadata.labels["zone"] = "z"
    code, said = trained(*words, "--cluster", capture_file(tmp_path, capture), "--out", tmp_path / "out")
    (line,) = said.splitlines()
    assert (code, told in line) == (2, True), line
    code, said = trained("marl-dqn", "--per", "pool", "--out", tmp_path / "out")
    assert (code, "--per: classes of nodes are learned on a cluster" in said) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("label", "value", "told"),
    [
        ("pool", "two words", "--per: mine.json.gz: value 'two words' is none that a label can have; name one of pool"),
        ("pool", "a\n\x1b[31m", r"--per: mine.json.gz: value 'a\n\x1b[31m' is none that a label can have"),
        ("a b", "x", "--per: mine.json.gz: label 'a b' is no key of a label"),
    ],
)
def test_classes_whose_weights_nobody_would_load_are_refused_before_they_are_learned(
    tmp_path: Path, label: str, value: str, told: str
) -> None:
    capture = make_capture(pods=150)
    assert capture.nodes[0].metadata.labels is not None
    capture.nodes[0].metadata.labels[label] = value
    file = capture_file(tmp_path, capture)
    code, said = trained("marl-dqn", "--cluster", file, "--per", label, "--out", tmp_path / "out")
    (line,) = said.splitlines()
    assert (code, told in line) == (2, True), line
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_capture_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cut.json.gz").write_bytes(written(make_capture())[:200])
    for name, told in (("cut.json.gz", "the file is cut"), ("gone.json.gz", "No such file"), (".", "Is a directory")):
        code, said = trained("lb", "--cluster", tmp_path / name, "--out", tmp_path / "out")
        assert code == 2
        (line,) = said.splitlines()
        assert line.removeprefix("conclave: ").startswith("--cluster: ")
        assert told in line


@pytest.mark.parametrize("better", [True, False])
def test_frag_learns_on_a_clusters_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: bool) -> None:
    from lab.learner.frag import trainer, training

    monkeypatch.setattr(captured, "clearly_better", lambda before, after: better)
    monkeypatch.setattr(training, "VALIDATE_EVERY", 2)
    monkeypatch.setattr(trainer, "CLUSTER_EPISODES", 2)
    monkeypatch.setattr(trainer, "CLUSTER_UPDATES", 50)
    file = capture_file(tmp_path, with_gpus(make_capture(pods=150)))
    out = tmp_path / "out"
    code, told = trained("frag", "--cluster", file, "--steps", 2, "--out", out)
    assert code == 0, told
    card = decode((out / "frag.npz").read_bytes(), policy="frag").card
    if not better:
        assert card.trained["compared on"]["data"]["capture"] == "mine.json.gz"
        (before,) = card.figures.values()
        assert f"frag: {trainer.COST} {before:.5f}, shipped {before:.5f}; weights in {out}/frag.npz" in told
        return
    assert card.trained["data"]["capture"] == "mine.json.gz"
    assert (
        card.figures["validation before prices, mean gain over FGD in points"]
        >= (card.figures["validation before prices, gain of the shipped weights"])
    )
