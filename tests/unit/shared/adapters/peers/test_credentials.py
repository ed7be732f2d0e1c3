"""A token file that changes while it is used: what is accepted then, and what is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shared.adapters.peers import credentials
from shared.adapters.peers.credentials import TokenFile
from shared.errors import ConfigError

OLD, NEW = "old-token-0123456789", "new-token-0123456789"


@pytest.fixture(autouse=True)
def every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "RECHECK_S", 0.0)


def test_a_new_token_counts_and_one_that_is_taken_out_does_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    tokens = TokenFile(file)
    file.write_text(f"{NEW} viewer\n{OLD} admin\n")
    assert (tokens.role_of(f"Bearer {NEW}"), tokens.role_of(f"bearer {OLD}")) == ("viewer", "admin")
    file.write_text(f"{NEW} viewer\n")
    assert tokens.role_of(f"Bearer {OLD}") is None
    assert tokens.authorization() == f"Bearer {NEW}"


@pytest.mark.parametrize("text", ["", "\n\n", "short\n", f"{NEW}\nshort\n"])
def test_a_file_that_stays_unusable_is_told_once_since_its_old_tokens_still_count(tmp_path: Path, text: str) -> None:
    """Who took a leaked token out of it and made a slip believes that it is no longer accepted."""
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    tokens = TokenFile(file)
    file.write_text(text)
    with capture_logs() as lines:
        for _ in range(5):
            assert tokens.role_of(f"Bearer {OLD}") == ""
    (line,) = lines
    assert (line["event"], line["file"]) == ("credentials_not_followed", str(file))
    assert OLD not in str(line)
    file.write_text(f"{NEW}\n")
    assert tokens.role_of(f"Bearer {OLD}") is None


@pytest.mark.parametrize("damage", ["gone", "no text", "a folder"])
def test_a_file_that_stays_away_is_told_once_and_each_time_anew(tmp_path: Path, damage: str) -> None:
    """Who deletes the file to lock everybody out has not: its tokens count until the process ends."""
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    tokens = TokenFile(file)
    for _ in range(2):
        if damage == "no text":
            file.write_bytes(b"\xff\xfe")
        else:
            file.unlink()
            if damage == "a folder":
                file.mkdir()
        with capture_logs() as lines:
            for _ in range(4):
                assert tokens.role_of(f"Bearer {OLD}") == ""
        assert [line["event"] for line in lines] == ["credentials_not_followed"]
        assert "cannot be read" in lines[0]["error"]
        if damage == "a folder":
            file.rmdir()
        file.write_text(f"{OLD}\n")
        assert tokens.role_of(f"Bearer {OLD}") == ""


def test_a_file_that_is_away_for_a_moment_is_not_told(tmp_path: Path) -> None:
    """As a Secret that is mounted anew, again and again."""
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    tokens = TokenFile(file)
    with capture_logs() as lines:
        for _ in range(3):
            away = file.rename(tmp_path / "away")
            assert tokens.role_of(f"Bearer {OLD}") == ""
            away.rename(file)
            assert tokens.role_of(f"Bearer {OLD}") == ""
    assert not lines


def test_a_file_that_is_caught_half_written_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    tokens = TokenFile(file)
    with capture_logs() as lines:
        file.write_text(NEW[:8])
        assert tokens.role_of(f"Bearer {OLD}") == ""
        file.write_text(f"{NEW}\n")
        assert tokens.role_of(f"Bearer {NEW}") == ""
    assert not lines


@pytest.mark.parametrize("damage", ["gone", "not UTF-8"])
def test_a_file_that_stays_unreadable_is_told_once_too(tmp_path: Path, damage: str) -> None:
    """Who deletes a Secret to lock everybody out locks nobody out, and must hear of it."""
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    tokens = TokenFile(file)
    with capture_logs() as lines:
        for _ in range(3):  # re-mounted thrice: away at one look, there at the next
            file.unlink()
            assert tokens.role_of(f"Bearer {OLD}") == ""
            file.write_text(f"{OLD}\n")
            assert tokens.role_of(f"Bearer {OLD}") == ""
        assert not lines
        file.unlink()
        if damage == "not UTF-8":
            file.write_bytes(b"\xff" * 32)
        for _ in range(3):
            assert tokens.role_of(f"Bearer {OLD}") == ""
    (line,) = lines
    assert (line["event"], line["file"]) == ("credentials_not_followed", str(file))


def test_an_empty_file_is_refused_at_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch()
    with pytest.raises(ConfigError, match="no token in this file"):
        TokenFile(file)
