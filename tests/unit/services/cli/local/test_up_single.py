"""``conclave up --single``: what it implies, and what it refuses with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from services.cli.local import up as command
from shared.errors import ConfigError


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The counts that ``up`` goes by, given its flags."""

    def counts(*flags: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        @click.command(params=command.up.params)
        def stand_in(**given: Any) -> None:
            if given["single"]:
                command.of_single(given)
            found.update(given)

        result = CliRunner().invoke(stand_in, ["--kubeconfig", str(tmp_path), *flags], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return {name: found[name] for name in ("coordinators", "agents", "binders", "shards")}

    return counts


def test_it_implies_no_agents_and_one_binder_in_each_process(parsed: Any) -> None:
    assert parsed("--single") == {"coordinators": 2, "agents": 0, "binders": 1, "shards": 1}
    assert parsed("--single", "--coordinators", "1", "--agents", "0", "--binders", "1")["coordinators"] == 1
    assert parsed() == {"coordinators": 2, "agents": 2, "binders": 2, "shards": 1}


@pytest.mark.parametrize(("flag", "count"), [("agents", 2), ("binders", 2), ("shards", 2)])
def test_other_counts_are_refused_by_name_with_what_to_do(parsed: Any, flag: str, count: int) -> None:
    with pytest.raises(ConfigError, match=rf"--{flag}: --single has \d, not {count}; leave --{flag} out"):
        parsed("--single", f"--{flag}", str(count))
