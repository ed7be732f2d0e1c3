"""What decides a run is what a checkpoint is held against: an option that is off must not make another run of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.learner.deepsets import settings as sets
from lab.learner.marl import settings as agents
from lab.learner.training import dqn_run
from lab.learner.training.checkpoint import settings_digest

ON_CLUSTER = agents.settings_on("marl-dqn", 1000, None, nodes=4, cluster="sha256:c", algorithm="")


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        pytest.param(agents.settings_for("marl-dqn", 1000), "ed1c093e", id="marl-dqn"),
        pytest.param(agents.settings_for("marl-dqn-published", 1000), "6044eff1", id="marl-dqn-published"),
        pytest.param(agents.settings_for("single-dqn", 1000), "c98c26e9", id="single-dqn"),
        pytest.param(agents.settings_for("marl-dqn-per-node", 1000), "50fa24f4", id="marl-dqn-per-node"),
        pytest.param(ON_CLUSTER, "b7d1eec3", id="marl-dqn on a cluster"),
        pytest.param(sets.settings_for("ee", 1000), "8b52b601", id="ee"),
        pytest.param(sets.settings_for("el", 1000), "c447b25e", id="el"),
        pytest.param(sets.settings_for("lb", 1000), "68c4bd8e", id="lb"),
    ],
)
def test_a_run_that_was_stopped_by_a_release_before_goes_on(settings: dqn_run.DqnRunSettings, digest: str) -> None:
    """A new setting belongs in ``LATER``; one that changes what is learned by default needs a word in the changelog."""
    assert settings_digest(settings.as_json())[:8] == digest


def test_an_option_that_is_off_is_not_in_the_digest_and_one_that_is_on_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(ON_CLUSTER, per="pool", values=("large",))
    assert own.as_json().keys() - ON_CLUSTER.as_json().keys() == {"per", "values"}
    monkeypatch.setattr(dqn_run, "LATER", ())  # switched off, the checker sees it
    assert settings_digest(ON_CLUSTER.as_json())[:8] != "b7d1eec3"
