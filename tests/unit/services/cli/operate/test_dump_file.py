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
