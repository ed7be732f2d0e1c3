"""``conclave evaluate --weights``: other weights than the shipped ones are measured, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lab.suites import deepsets, thesis
from lab.suites.suites import SuiteInput
from services.cli.__main__ import run
from services.cli.inputs import read_weights
from shared.errors import ConfigError
from shared.policy.weights import MAX_BYTES, WeightsFile, encode, shipped, shipped_bytes
from tests.marl_weights import weights as hand_made
from tests.small_trace import node_list, pod_list


@pytest.fixture
def terrible(tmp_path):
    """marl-dqn that takes the most loaded node."""
    file = tmp_path / "terrible.npz"
    file.write_bytes(encode(hand_made("terrible")))
    return file


def negated(policy, folder):
    """A file of weights that prefer what the shipped ones of this policy avoid."""
    own = shipped(policy)
    file = folder / f"{policy}.npz"
    file.write_bytes(encode(WeightsFile({name: -array for name, array in own.arrays.items()}, own.card)))
    return file


def test_weights_are_told_apart_by_their_cards_not_by_their_names(terrible, tmp_path):
    (tmp_path / "x").write_bytes(shipped_bytes("lb"))
    found = read_weights([terrible, tmp_path / "x"])
    assert {name: file.card.policy for name, file in found.items()} == {"marl-dqn": "marl-dqn", "lb": "lb"}
    assert found["lb"].sha256 == shipped("lb").sha256


def test_the_thesis_suite_measures_the_given_weights_and_tells_their_digest(terrible):
    given = read_weights([terrible])
    asked = SuiteInput((42,), "", ("marl-dqn",))
    plain = thesis.run_suite(asked, conditions=thesis.CONDITIONS[:1])
    other = thesis.run_suite(replace(asked, weights=given), conditions=thesis.CONDITIONS[:1])
    worse, better = (result.policies["marl-dqn"]["uniform/imbalance"].mean for result in (other, plain))
    assert worse > 2 * better
    assert other.card_digests == {"marl-dqn": given["marl-dqn"].sha256}
    assert plain.card_digests == {"marl-dqn": shipped("marl-dqn").sha256}


def test_the_deepsets_suite_measures_the_given_weights_and_ships_the_others(tmp_path):
    given = read_weights([negated("lb", tmp_path)])
    asked, planned = SuiteInput((42,), ""), deepsets.experiments((3,), share=0.01)
    plain = deepsets.run_suite(asked, planned=planned)
    other = deepsets.run_suite(replace(asked, weights=given), planned=planned)
    assert other.card_digests == {"ee": shipped("ee").sha256, "lb": given["lb"].sha256, "el": shipped("el").sha256}
    assert other.policies["lb"] != plain.policies["lb"]
    assert all(other.policies[name] == plain.policies[name] for name in ("ee", "el"))


def test_a_trace_is_placed_by_the_given_weights(tmp_path, capsys):
    weights = negated("frag", tmp_path)
    (tmp_path / "pods.csv").write_text(pod_list())
    (tmp_path / "nodes.csv").write_text(node_list(24))
    asked = ["evaluate", "--trace", str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv")]
    asked += ["--policy", "frag", "--seeds", "42", "--json", str(tmp_path / "out.json"), "--quiet", "--no-rehearsal"]
    assert run(asked) == 0
    plain = json.loads((tmp_path / "out.json").read_text())
    assert run([*asked, "--weights", str(weights)]) == 0
    other = json.loads((tmp_path / "out.json").read_text())
    assert plain["card_digests"] == {"frag": shipped("frag").sha256}
    assert other["card_digests"] == {"frag": read_weights([weights])["frag"].sha256}
    assert other["policies"] != plain["policies"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--suite", "deepsets"], "of 'marl-dqn', which is not measured here"),
        (["--suite", "thesis", "--policies", "kube-default"], "of 'marl-dqn', which is not measured here"),
        (["--behaviour", "lb"], "--behaviour watches what is shipped"),
    ],
)
def test_weights_that_nobody_would_use_are_refused(terrible, capsys, asked, told):
    assert run(["evaluate", *asked, "--seeds", "42", "--weights", str(terrible)]) == 2
    assert told in capsys.readouterr().err


def test_two_files_of_one_policy_are_refused(terrible, tmp_path):
    again = tmp_path / "again.npz"
    again.write_bytes(shipped_bytes("marl-dqn"))
    with pytest.raises(ConfigError, match=r"again\.npz and another are of marl-dqn both"):
        read_weights([terrible, again])


@pytest.mark.parametrize("data", [b"", b"PK no archive", bytes(MAX_BYTES + 1)])
def test_a_file_that_holds_no_weights_is_refused_by_name(tmp_path, data):
    (tmp_path / "odd.npz").write_bytes(data)
    with pytest.raises(ConfigError, match=r"odd\.npz: "):
        read_weights([tmp_path / "odd.npz"])


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"--weights: .*gone\.npz: No such file"):
        read_weights([tmp_path / "gone.npz"])
