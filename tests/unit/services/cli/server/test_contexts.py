"""``conclave context``: the file is read strictly, written whole, for this user alone, and never holds a token."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.__main__ import run
from services.cli.server.contexts import ContextEntry, Contexts, parse_contexts, read_contexts, render_contexts
from services.cli.server.options import complete_context
from shared.errors import ConfigError

PRINTABLE = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


@given(st.dictionaries(PRINTABLE, PRINTABLE, max_size=4))
def test_what_is_written_is_read_back_as_the_same(servers: dict[str, str]) -> None:
    entries = {name: ContextEntry(server=server, token_file=f"/a dir/{server}") for name, server in servers.items()}
    stored = Contexts(next(iter(servers), ""), entries)
    assert parse_contexts(tomllib.loads(render_contexts(stored))) == stored


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CONCLAVE_CONTEXTS", "CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "conclave" / "config.toml"


def test_contexts_are_added_listed_chosen_and_removed(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-16-characters\n")
    assert run(["context", "add", "dev", "--server", "http://127.0.0.1:8701", "--token-file", str(token)]) == 0
    assert run(["context", "add", "prod", "--kube-context", "prod-eu", "--mesh-namespace", "sched"]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "a-token" not in file.read_text()
    assert read_contexts(file).current == "dev"
    assert run(["context", "use", "prod"]) == 0
    capsys.readouterr()
    assert run(["context", "list"]) == 0
    header, dev, prod = capsys.readouterr().out.splitlines()
    assert header.split() == ["CURRENT", "NAME", "SERVER", "CREDENTIALS"]
    assert dev.split() == ["dev", "http://127.0.0.1:8701", "token", "in", str(token)]
    assert prod.split()[:2] == ["*", "prod"]
    assert run(["context", "remove", "prod"]) == 0
    assert read_contexts(file) == Contexts(
        "", {"dev": ContextEntry(server="http://127.0.0.1:8701", token_file=str(token))}
    )


def test_a_context_is_not_replaced_by_accident(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["context", "add", "x", "--server", "http://a:1"]) == 0
    assert run(["context", "add", "x", "--server", "http://b:1"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert run(["context", "add", "x", "--server", "http://b:1", "--replace"]) == 0
    assert read_contexts(file).named("x").server == "http://b:1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "x"], "give either server or kube-context"),
        (["add", "x", "--server", "http://a", "--kube-context", "k"], "give either server or kube-context"),
        (["add", "x", "--server", "127.0.0.1"], "--server: '127.0.0.1' is no server's URL"),
        (["add", "x", "--server", "http://a", "--token-file", "/nowhere/t"], "--token-file: /nowhere/t is no file"),
        (["add", "x y", "--server", "http://a"], "no name for a context"),
        (["use", "nobody"], "there is no context 'nobody'"),
        (["remove", "nobody"], "there is no context 'nobody'"),
    ],
)
def test_bad_contexts_are_refused_and_nothing_is_written(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["context", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("current = ", "correct the TOML"),
        ('currnt = "a"', "currnt: unknown key; did you mean current?"),
        ('[contexts.a]\nservr = "http://a"', "contexts.a.servr: unknown key; did you mean server?"),
        ("[contexts.a]\nserver = 7", "contexts.a.server: must be a text"),
        ('[contexts.a]\nserver = "http://a"\nnamespace = "n"', "contexts.a: namespace belongs to kube-context"),
        ('current = "b"', "there is no context 'b'"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")) as caught:
        read_contexts(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("text", ["[contexts", "current = 'nobody'"])
def test_completing_says_nothing_about_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """A line of ours would stand in the middle of what is being typed."""
    file = tmp_path / "config.toml"
    file.write_text(text)
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(file))
    here = click.Context(click.Command("nodes"))
    assert complete_context(here, click.Option(["--context"]), "") == []
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name is as long as a name may be, so the one that it is first written under is too long to be removed too."""
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / ("x" * 255)))
    assert run(["context", "add", "a", "--server", "http://a:1"]) == 2
    error = capsys.readouterr().err
    assert "File name too long" in error
    assert error.count("\n") == 1
