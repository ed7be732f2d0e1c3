"""``conclave pki``: what is made holds, is not overwritten, and can be replaced step by step."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import stat
from pathlib import Path

import pytest

from services.cli.__main__ import run
from services.cli.pki import files as pki_files
from services.cli.pki.certificates import wanted_of
from services.cli.pki.files import AuthorityFolder, HolderFolder, write_file
from shared.adapters.peers.certificates import issue, make_authority, name_of, names_of
from shared.adapters.peers.identity import identity_of
from shared.errors import ConfigError

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)


def pki(*words: str) -> int:
    return run(["pki", *words])


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    assert pki("init", str(tmp_path / "ca")) == 0
    return tmp_path / "ca"


def test_keys_are_for_their_owner_alone_and_a_ca_is_never_overwritten(ca: Path, capsys: pytest.CaptureFixture[str]):
    key = (ca / "ca.key").read_bytes()
    assert stat.S_IMODE((ca / "ca.key").stat().st_mode) == 0o600
    assert pki("init", str(ca)) == 2
    assert "there is a CA here and it stays" in capsys.readouterr().err
    assert (ca / "ca.key").read_bytes() == key


def test_half_a_ca_is_not_overwritten_either(ca: Path):
    (ca / "ca.key").unlink()
    assert pki("init", str(ca)) == 2
    assert not (ca / "ca.key").exists()


def test_a_certificate_is_not_put_where_a_ca_is(ca: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """``--ca etcd-pki --out pki`` for ``--ca pki --out certs/x`` would leave a key without its CA's certificate."""
    other, before = tmp_path / "other", (ca / "ca.crt").read_bytes()
    assert pki("init", str(other)) == 0
    assert pki("issue", "agent", "--ca", str(other), "--out", str(ca)) == 2
    assert "there is a CA here and it stays" in capsys.readouterr().err
    assert (ca / "ca.crt").read_bytes() == before
    AuthorityFolder(ca).load()


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m", "x" * 65, "\u00fc" * 33])
def test_a_name_that_no_ca_can_have_is_one_line(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]):
    assert pki("init", str(tmp_path / "ca"), "--name", name) == 2
    error = capsys.readouterr().err
    assert "--name" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ca").exists()


def test_a_service_is_known_by_role_and_id_and_not_by_address(ca: Path, tmp_path: Path):
    out = tmp_path / "binder-0"
    assert pki("issue", "binder", "binder-0", "--ca", str(ca), "--out", str(out), "--san", "binder.example") == 0
    certificate = HolderFolder(out).certificate()
    assert name_of(certificate) == "binder:binder-0"
    assert set(names_of(certificate)) == {
        "binder.conclave.internal", "localhost", "127.0.0.1", "::1", "binder.example",
    }  # fmt: skip
    assert stat.S_IMODE((out / "tls.key").stat().st_mode) == 0o600
    assert (certificate.not_valid_after_utc - NOW).days in (89, 90)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(
            ["binder", "--san", identity_of("coordinator")], "is a service's identity", id="another's identity"
        ),
        pytest.param(
            ["binder", "--san", identity_of("agent").upper()], "is a service's identity", id="the same in capitals"
        ),
        pytest.param(["admin"], "needs the person's name", id="nobody"),
        pytest.param(["etcd-client"], "names its etcd user", id="no user"),
        pytest.param(["etcd-client", "admin:eve"], "would name a role of ours", id="a role through etcd's door"),
        pytest.param(["etcd-peer", "agent:x"], "would name a role of ours", id="an agent that is a member"),
        pytest.param(["etcd-server", "coordinator:x"], "would name a role of ours", id="a service through etcd's door"),
        pytest.param(["etcd-peer"], "names the members", id="no members"),
        pytest.param(["agent", "x" * 60], "more than 64 characters", id="long"),
        pytest.param(["agent", "a\nb"], "characters beyond", id="newline"),
        pytest.param(["agent", "--san", "a b"], "neither a DNS name nor an IP", id="no name"),
        pytest.param(["agent", "--days", "36500"], "the CA itself ends", id="longer than the CA"),
    ],
)
def test_what_cannot_be_certified_is_one_line(
    ca: Path, tmp_path: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
):
    assert pki("issue", *words, "--ca", str(ca), "--out", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_renewing_keeps_the_names_and_changes_the_key(ca: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "agent"
    assert pki("issue", "agent", "--ca", str(ca), "--out", str(out), "--san", "10.0.0.1", "--days", "30") == 0
    before, key = HolderFolder(out).certificate(), (out / "tls.key").read_bytes()
    assert pki("renew", str(out), "--ca", str(ca)) == 0
    assert "more days, kept" in capsys.readouterr().out
    assert (out / "tls.key").read_bytes() == key
    assert pki("renew", "--all", str(out), "--ca", str(ca)) == 0
    after = HolderFolder(out).certificate()
    assert (name_of(after), list(names_of(after))) == (name_of(before), list(names_of(before)))
    assert (out / "tls.key").read_bytes() != key
    assert after.serial_number != before.serial_number


def test_what_ends_soon_is_renewed_without_being_asked_twice(ca: Path, tmp_path: Path):
    out, authority = tmp_path / "agent", AuthorityFolder(ca)
    old = issue(authority.load(), wanted_of("agent", "", ()), days=90, now=NOW - dt.timedelta(days=80))
    HolderFolder(out).create(old, authority.bundle())
    assert pki("renew", str(out), "--ca", str(ca)) == 0
    assert (HolderFolder(out).certificate().not_valid_after_utc - NOW).days >= 89


def test_show_says_what_holds_and_fails_where_one_does_not(
    ca: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    authority = AuthorityFolder(ca)
    for name, shift in (("good", 0), ("expired", -100), ("early", 10)):
        now = NOW + dt.timedelta(days=shift)
        pair = issue(authority.load(), wanted_of("agent", name, ()), days=90, now=now)
        HolderFolder(tmp_path / name).create(pair, authority.bundle())
    capsys.readouterr()
    assert pki("show", str(tmp_path / "good"), str(ca)) == 0
    assert "agent:good" in capsys.readouterr().out
    assert pki("show", "-o", "json", *(str(tmp_path / name) for name in ("good", "expired", "early"))) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in rows] == ["ok", "expired", "not yet valid"]
    assert pki("show", str(tmp_path / "nowhere")) == 2


def trusts(holder: Path, other: Path) -> bool:
    """Whether a client with the CAs of ``holder`` takes the server certificate of ``other``."""
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.load_verify_locations(str(holder / "ca.crt"))
    server.load_cert_chain(str(other / "tls.crt"), str(other / "tls.key"))
    wires = [ssl.MemoryBIO() for _ in range(4)]
    ours = client.wrap_bio(wires[0], wires[1], server_hostname=identity_of("agent"))
    theirs = server.wrap_bio(wires[2], wires[3], server_side=True)
    done = False
    for _ in range(10):
        for side in (ours, theirs):
            try:
                side.do_handshake()
                done = done or side is ours
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
            wires[2].write(wires[1].read())
            wires[0].write(wires[3].read())
        if done:
            return True
    return False


def test_a_ca_is_replaced_in_three_steps_without_a_moment_of_distrust(ca: Path, tmp_path: Path):
    holders = [tmp_path / "a", tmp_path / "b"]
    for holder in holders:
        assert pki("issue", "agent", "--ca", str(ca), "--out", str(holder)) == 0

    def everybody_trusts_everybody() -> bool:
        return all(trusts(one, other) for one in holders for other in holders)

    def step(*words: str) -> None:
        """One holder after the other: the others must be able to talk to it at every moment."""
        for holder in holders:
            assert pki("renew", *words, str(holder), "--ca", str(ca)) == 0
            assert everybody_trusts_everybody(), words

    assert pki("rotate", "--ca", str(ca)) == 0
    assert pki("rotate", "--ca", str(ca)) == 2, "one replacement at a time"
    step("--trust-only")
    old = tmp_path / "old"
    old.mkdir()
    for file in ("tls.crt", "tls.key"):
        (old / file).write_bytes((holders[0] / file).read_bytes())
    step("--all")
    assert pki("rotate", "--finish", "--ca", str(ca)) == 0
    step("--trust-only")
    assert not trusts(holders[0], old), "the old CA is no longer trusted"


def test_skipping_the_first_step_is_noticed(ca: Path, tmp_path: Path):
    """The safeguard switched off: new certificates before everybody trusts the new CA."""
    holders = [tmp_path / "a", tmp_path / "b"]
    for holder in holders:
        pki("issue", "agent", "--ca", str(ca), "--out", str(holder))
    pki("rotate", "--ca", str(ca))
    pki("renew", "--all", str(holders[0]), "--ca", str(ca))
    assert not trusts(holders[1], holders[0])


def test_a_replacement_that_breaks_off_half_way_leaves_a_ca_that_signs(
    ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the new key written first the old one was lost, and with it every certificate's renewal."""
    holder, key = tmp_path / "a", (ca / "ca.key").read_bytes()
    written: list[Path] = []
    pki("issue", "agent", "--ca", str(ca), "--out", str(holder))

    def full_disk(file: Path, content: bytes, mode: int) -> None:
        if written:
            raise ConfigError(f"{file}: cannot be written (No space left on device); give a folder of yours")
        written.append(file)
        write_file(file, content, mode)

    with monkeypatch.context() as broken:
        broken.setattr(pki_files, "write_file", full_disk)
        assert pki("rotate", "--ca", str(ca)) == 2
    assert (ca / "ca.key").read_bytes() == key
    assert pki("renew", "--all", str(holder), "--ca", str(ca)) == 0
    assert pki("rotate", "--finish", "--ca", str(ca)) == 0
    assert pki("renew", "--all", str(holder), "--ca", str(ca)) == 0
    assert trusts(holder, holder)
    assert pki("rotate", "--ca", str(ca)) == 0


def test_a_key_of_another_ca_is_told(ca: Path, tmp_path: Path):
    other = tmp_path / "other"
    AuthorityFolder(other).create(make_authority("other", days=1, now=NOW))
    (ca / "ca.key").write_bytes((other / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match="not the key of"):
        AuthorityFolder(ca).load()
