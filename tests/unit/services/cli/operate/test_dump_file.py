"""Where a dump is written others may have been before us (/tmp): it is for its owner alone all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cli.__main__ import run
from tests.admin_server import AdminServer


@pytest.mark.parametrize("linked", [True, False])
def test_what_lies_where_a_dump_is_begun_neither_gets_it_nor_lends_it_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    out, begun, victim = tmp_path / "dump.json", tmp_path / "dump.json.partial", tmp_path / "victim"
    victim.write_text("theirs")
    if linked:
        begun.symlink_to(victim)
    else:
        begun.touch(mode=0o666)
        begun.chmod(0o666)
    with AdminServer({"GET /v1/dump": {"time": "now"}}) as server:
        assert run(["dump", "--out", str(out), "--server", server.url]) == 0
    assert victim.read_text() == "theirs"
    assert not out.is_symlink()
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ({"time": "now", "check": []}, 0, ["check: every invariant holds"]),
        (
            {"time": "now", "check": ["assumed: p is assumed on n and in no plan"]},
            1,
            ["broken: assumed: p is assumed on n and in no plan", "check: 1 invariants are broken"],
        ),
    ],
)
def test_a_checked_dump_names_what_is_broken_and_is_written_all_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    answer: dict[str, object],
    code: int,
    said: list[str],
) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    out = tmp_path / "dump.json"
    with AdminServer({"GET /v1/dump": answer}) as server:
        assert run(["dump", "--check", "--out", str(out), "--server", server.url]) == code
    assert [line for line in capfd.readouterr().err.splitlines() if line.startswith(("broken", "check"))] == said
    assert out.exists()


def test_a_leader_that_does_not_know_the_check_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    with AdminServer({"GET /v1/dump": {"time": "now"}}) as server:
        assert run(["dump", "--check", "--out", str(tmp_path / "dump.json"), "--server", server.url]) == 1
    assert "did not check itself" in capfd.readouterr().err
