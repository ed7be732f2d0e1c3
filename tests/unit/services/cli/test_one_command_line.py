"""``-o``, ``-n`` and ``--context`` mean the same in every command; errors begin alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from services.cli.__main__ import run
from services.cli.app import conclave
from services.cli.server.contexts import Contexts
from services.cli.server.forward import _refusal
from services.cli.server.target import Flags, ThroughKubectl, resolve
from shared.errors import ConfigError
from tests.patience import PATIENCE_S

OF_BATCH = {"conclave explain", "conclave autoscale hpa"}
"""With --batch their -o is a file, in the format of conformance runs."""


def commands(of: click.Command, here: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(of, click.Group):
        for name in of.list_commands(here):
            found = of.get_command(here, name)
            assert found is not None
            yield from commands(found, click.Context(found, info_name=name, parent=here))
    else:
        yield here.command_path, of


ALL = dict(commands(conclave, click.Context(conclave, info_name="conclave")))


def options(flag: str) -> dict[str, click.Option]:
    return {
        path: option
        for path, command in ALL.items()
        for option in command.params
        if isinstance(option, click.Option) and flag in option.opts
    }


def test_an_output_is_table_json_or_yaml_everywhere() -> None:
    found = {path: option for path, option in options("-o").items() if path not in OF_BATCH}
    assert len(found) > 20
    for path, option in found.items():
        assert isinstance(option.type, click.Choice), path
        assert {"table", "json", "yaml"} <= set(option.type.choices), path
        assert option.default == "table", path


def test_a_namespace_is_that_of_objects_and_the_meshs_own_has_a_flag_of_its_own() -> None:
    for path, option in options("-n").items():
        assert "--mesh-namespace" not in option.opts, path
        assert option.hidden or "mesh" not in (option.help or ""), path
    for path in ("conclave status", "conclave drain", "conclave settings get"):
        assert "--mesh-namespace" in [flag for one in ALL[path].params for flag in one.opts], path


@pytest.mark.parametrize("command", [["status"], ["context", "add", "prod", "--kube-context", "prod"]])
def test_a_namespace_for_a_command_that_has_none_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "-n", "sched"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("conclave: -n: ")
    assert "--mesh-namespace" in said


def test_a_context_is_a_stored_one_else_one_of_the_kubeconfig() -> None:
    found = resolve(Flags(context="kind"), {}, Contexts, clusters=lambda: ["kind"])
    assert isinstance(found, ThroughKubectl)
    assert (found.context, found.namespace) == ("kind", "conclave-system")
    with pytest.raises(ConfigError):
        resolve(Flags(context="none"), {}, Contexts, clusters=lambda: ["kind"])


def test_where_nothing_is_installed_the_ways_in_are_named() -> None:
    target = resolve(Flags(), {}, Contexts, kubectl=True)
    assert isinstance(target, ThroughKubectl)
    said = _refusal(target, "get secret x", 'Error from server (NotFound): secrets "x" not found')
    for way in ("--mesh-namespace", "--server URL", "conclave up", "not installed in namespace conclave-system"):
        assert way in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "services.binder", "--lease-ttl-s", "nonsense"], ["-m", "services.coordinator", "--config", "/none"],
        ["-m", "lab.learner", "nonsense"],
    ],
)  # fmt: skip
def test_errors_of_services_and_of_training_begin_as_those_of_commands(arguments: list[str]) -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("conclave: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nodes", "-o", "nonsense"], ["status", "--server", "nonsense"], ["explain", "a/b/c"], ["no-such-command"],
        ["queue", "simulate"], ["units", "a/b/c"], ["context", "use", "none"],
    ],
)  # fmt: skip
def test_errors_begin_alike(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "contexts.toml"))
    (tmp_path / "contexts.toml").write_text("")
    assert run(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(("conclave: ", "conclave " + arguments[0]))
