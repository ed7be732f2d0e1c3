"""Without the lab or the twin the mesh's commands work; what needs them is listed, and says what to install."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from services.cli import houses
from services.cli.__main__ import run
from services.cli.app import LAB, OPERATE, OTHERS, Commands, conclave
from services.cli.local.options import wants_learner
from services.cli.twin import LAB as OF_TWIN
from services.cli.twin import twin
from shared.errors import ConfigError


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Takes houses away; commands that were loaded before are loaded anew."""
    found = importlib.util.find_spec

    def take(*gone: str) -> None:
        def find(name: str, package: str | None = None) -> Any:
            return None if name.partition(".")[0] in gone else found(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", find)
        monkeypatch.setattr(conclave, "commands", Commands(OPERATE | OTHERS))
        monkeypatch.setattr(twin, "commands", dict(Commands(OF_TWIN)) | {"serve": twin.commands["serve"]})

    return take


@pytest.mark.parametrize("name", sorted(LAB))
def test_a_command_of_the_lab_names_the_wheel_to_install(name, without, capsys) -> None:
    without("lab")
    assert run([name, "--whatever", "x"]) == 2
    assert capsys.readouterr().err == (
        f"conclave: {name}: conclave-lab is not installed; install it beside conclave: pip install conclave-lab\n"
    )


@pytest.mark.parametrize(
    ("arguments", "wheel"),
    [
        (["twin", "capture", "--out", "x"], "conclave-lab"),
        (["twin", "serve"], "conclave-twin"),
        (["autoscale", "design", "x"], "conclave-lab"),
        (["run", "learner"], "conclave-lab"),
    ],
)
def test_so_does_what_other_groups_have_of_it(arguments, wheel, without, capsys, monkeypatch) -> None:
    import services.cli.autoscale.command as autoscale

    monkeypatch.setattr(autoscale.autoscale, "commands", Commands(autoscale.SUBCOMMANDS))
    without("lab", "twin")
    assert run(arguments) == 2
    assert f"pip install {wheel}\n" in capsys.readouterr().err


def test_the_list_of_commands_says_which_are_missing(without, capsys) -> None:
    without("lab")
    assert run(["--help"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert {name for name, line in lines.items() if "conclave-lab" in line} == set(LAB)
    assert houses.WHEELS["lab"] not in lines["status"]


def test_a_learner_is_refused_without_the_lab_and_left_out_where_nobody_asked(without) -> None:
    without("lab")
    with pytest.raises(ConfigError, match="--learner: conclave-lab is not installed"):
        wants_learner("marl-dqn", True)
    assert not wants_learner("marl-dqn", None)
