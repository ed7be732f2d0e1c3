"""Certificates about to end and clocks that are wrong become one line, when it begins and when it is over."""

from __future__ import annotations

import datetime as dt
import ssl
from email.utils import formatdate
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.cli.pki.certificates import wanted_of
from services.cli.pki.files import AuthorityFolder, HolderFolder
from shared.adapters.peers.certificates import dates_in, issue, make_authority
from shared.adapters.peers.clock_skew import LOOK_EVERY_S, ClockSkew
from shared.runtime.process.health import ProcessHealth

NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)
DAY = 86_400.0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    authority = make_authority("ca", days=3650, now=NOW)
    AuthorityFolder(tmp_path / "ca").create(authority)
    pair = issue(authority, wanted_of("agent", "a-0", ()), days=90, now=NOW)
    HolderFolder(tmp_path / "agent").create(pair, AuthorityFolder(tmp_path / "ca").bundle())
    return tmp_path / "agent"


def health_of(files: Path, at: dt.datetime, skew: ClockSkew | None = None) -> ProcessHealth:
    return ProcessHealth({"certificate": files / "tls.crt", "CA": files / "ca.crt"}, skew, wall=at.timestamp)


def test_dates_are_those_of_the_certificate(files: Path):
    (dates,) = dates_in(files / "tls.crt")
    assert dates.not_after == (NOW + dt.timedelta(days=90)).timestamp()
    assert dates.not_before == (NOW - dt.timedelta(minutes=5)).timestamp()


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 40, 100])
def test_a_certificate_that_ends_early_is_an_error_and_nothing_worse(cut: int, files: Path):
    whole = (files / "tls.crt").read_text()
    (files / "tls.crt").write_text(ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(whole)[:cut]))
    with pytest.raises(ValueError):
        dates_in(files / "tls.crt")


@pytest.mark.parametrize(
    ("days", "told"),
    [
        pytest.param(1, "", id="holds"),
        pytest.param(85, "ends on 2027-02-20 12:00 UTC; renew it", id="soon"),
        pytest.param(91, "expired on 2027-02-20 12:00 UTC; renew it", id="expired"),
        pytest.param(-1, "not valid before 2026-11-22 11:55 UTC; set this machine's clock", id="clock behind"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_one_line(files: Path, days: int, told: str):
    with capture_logs() as lines:
        found = health_of(files, NOW + dt.timedelta(days=days)).look()
    own = [text for text in found if text.startswith("certificate")]
    assert len(own) == bool(told)
    assert all(told in text and "\n" not in text for text in own)
    assert len([line for line in lines if line["subject"] == "certificate"]) == bool(told)


def test_a_warning_is_logged_when_it_begins_and_when_it_is_over(files: Path):
    now = NOW + dt.timedelta(days=91)

    def wall() -> float:
        return now.timestamp()

    watched = ProcessHealth({"certificate": files / "tls.crt"}, wall=wall)
    with capture_logs() as lines:
        assert watched.look() == watched.look() != ()
        now = NOW
        assert watched.look() == ()
    assert [line["event"] for line in lines] == ["process_warned", "process_warning_over"]


def test_a_missing_file_is_told(tmp_path: Path):
    (text,) = ProcessHealth({"certificate": tmp_path / "nowhere.crt"}).look()
    assert "nowhere.crt: cannot be read" in text


def test_of_several_cas_one_that_holds_is_enough(files: Path):
    old = make_authority("old", days=1, now=NOW - dt.timedelta(days=30))
    folder = AuthorityFolder(files.parent / "ca")
    folder.trust((folder.bundle()[0], *_pem(old)))
    HolderFolder(files).trust(folder.bundle())
    assert health_of(files, NOW).look() == ()


def _pem(authority: object) -> tuple[bytes, ...]:
    from shared.adapters.peers.certificates import pem_of

    return (pem_of(authority.certificate),)  # type: ignore[attr-defined]


class Clocks:
    def __init__(self) -> None:
        self.now = 0.0
        self.skew = ClockSkew(wall=lambda: NOW.timestamp() + self.now, monotonic=lambda: self.now)

    def see(self, ahead_s: float, peer: str = "agent http://a:1") -> None:
        self.skew.see(peer, formatdate(NOW.timestamp() + self.now + ahead_s, usegmt=True))


def test_a_clock_that_is_wrong_is_told_and_a_second_is_not(files: Path):
    clocks = Clocks()
    watched = ProcessHealth({}, clocks.skew)
    clocks.see(1.0)
    assert watched.look() == ()
    clocks.now += LOOK_EVERY_S
    clocks.see(-400.0)
    assert watched.look() == ("the clock of agent http://a:1 is about 7 min behind ours; set both by NTP",)
    clocks.now += LOOK_EVERY_S
    clocks.see(0.0)
    assert watched.look() == ()


def test_a_clock_nobody_has_heard_of_for_long_says_nothing(files: Path):
    clocks = Clocks()
    clocks.see(400.0)
    clocks.now += 4 * LOOK_EVERY_S
    assert clocks.skew.worst() is None


@pytest.mark.parametrize("date", ["", "yesterday", "Sun, 99 Nov 2026 12:00:00 GMT", "\x00" * 50])
def test_a_date_that_is_none_says_nothing(date: str):
    skew = ClockSkew()
    skew.see("p", date)
    assert skew.worst() is None


def test_what_a_process_notes_about_itself_is_told_until_it_is_over(files: Path):
    found = health_of(files, NOW)
    found.note("cluster lease", "another mesh is there")
    with capture_logs() as lines:
        assert found.look() == found.look() == ("another mesh is there",)
        found.note("cluster lease", "")
        assert found.look() == ()
    assert [line["event"] for line in lines] == ["process_warned", "process_warning_over"]
