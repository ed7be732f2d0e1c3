"""Weights of an object's own: named by their digest, and no others than those."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.autoscaler.io.weights import PolicyFiles
from shared.autoscaling.approval import digest_of, weights_of
from shared.autoscaling.networks import karma
from shared.errors import ConfigError
from shared.policy.weights import digest, shipped_beside

DATA = Path(karma.__file__).with_name("karma.npz").read_bytes()
NAME = digest(DATA)


@pytest.fixture
def files(tmp_path: Path) -> PolicyFiles:
    (tmp_path / f"{NAME}.npz").write_bytes(DATA)
    return PolicyFiles(tmp_path)


def test_an_object_gets_the_weights_that_it_names_and_is_approved_with_them(files: PolicyFiles):
    for named in (NAME, f"sha256:{NAME}"):
        policy = files.make("karma", {"weights": named, "binding": "soft"})
        assert weights_of(policy) == NAME
        assert digest_of({}, weights_of(policy)) != digest_of({}, "")


def test_without_a_name_it_gets_what_is_shipped():
    assert weights_of(PolicyFiles(None).make("karma", {})) == shipped_beside(karma.__file__, "karma").sha256
    assert PolicyFiles(None).make("hpa", {"target": 60}).name == "hpa"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"weights": "latest"}, "is no sha256"),
        ({"weights": 7}, "is no sha256"),
        ({"weights": f"../{NAME}"}, "is no sha256"),
        ({"weights": "0" * 64}, "No such file"),
        ({"weights": NAME, "colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(files: PolicyFiles, settings: dict[str, object], why: str):
    with pytest.raises(ConfigError, match=why):
        files.make("karma", settings)


def test_a_file_under_a_name_that_is_not_its_own_is_refused(files: PolicyFiles, tmp_path: Path):
    other = "1" * 64
    (tmp_path / f"{other}.npz").write_bytes(DATA)
    with pytest.raises(ConfigError, match="digest is"):
        files.make("karma", {"weights": other})


def test_a_policy_that_was_not_learned_takes_no_weights_and_a_service_without_a_folder_none(files: PolicyFiles):
    with pytest.raises(ConfigError, match="belong to policy 'karma'"):
        files.make("hpa", {"weights": NAME})
    with pytest.raises(ConfigError, match="--weights-dir"):
        PolicyFiles(None).make("karma", {"weights": NAME})
