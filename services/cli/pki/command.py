"""``conclave pki``: a CA for a mesh, certificates of services, people and etcd, and etcd's users.

Long-lived is the CA alone; everything else holds 90 days and is renewed in place, where services follow the files. A CA
is replaced in three steps, each of which everybody must have seen before the next: trust both, sign with the new one,
trust the new one alone. No list is kept of what was issued: ``show`` reads what is there.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from services.cli.listing.kinds import Json, ListKind, number, text
from services.cli.listing.wanted import DOCUMENTS, document_text
from services.cli.pki.certificates import CA_DAYS, DEFAULT_DAYS, KINDS, wanted_of
from services.cli.pki.etcd_roles import etcd_roles
from services.cli.pki.files import CERT, AuthorityFolder, HolderFolder, read_certificates
from shared.adapters.peers import certificates
from shared.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

Folder = click.Path(path_type=Path)
ca_option = click.option("--ca", type=Folder, default=Path("pki"), show_default=True, help="The CA's folder.")
Days = click.IntRange(1, 36500)


def utc_now() -> dt.datetime:
    """This moment."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


@click.group()
def pki() -> None:
    """Make and renew the certificates of a mesh and of its etcd."""


pki.add_command(etcd_roles)


@pki.command()
@click.argument("folder", type=Folder, default=Path("pki"))
@click.option("--name", default="conclave-ca", show_default=True, help="The CA's common name.")
@click.option("--days", type=Days, default=CA_DAYS, show_default=True, help="How long it holds.")
def init(folder: Path, name: str, days: int) -> None:
    """Make a CA in FOLDER. One that is there is never overwritten."""
    AuthorityFolder(folder).create(certificates.make_authority(name, days=days, now=utc_now()))
    click.echo(f"CA {name} for {days} days in {folder}; keep {folder}/ca.key where nobody else reads it")


@pki.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", default="")
@ca_option
@click.option("--out", type=Folder, required=True, help="Folder for tls.crt, tls.key and ca.crt.")
@click.option("--san", "sans", multiple=True, help="A further DNS name or address in it; may be repeated.")
@click.option("--days", type=Days, default=DEFAULT_DAYS, show_default=True, help="How long it holds.")
def issue(kind: str, name: str, ca: Path, out: Path, sans: tuple[str, ...], days: int) -> None:
    """Make a certificate: of a service (NAME: its id; none: shared by the role), of a person (viewer, operator, admin
    NAME), or of etcd (etcd-client NAME: its etcd user)."""
    wanted = wanted_of(kind, name, sans)
    folder = AuthorityFolder(ca)
    pair = certificates.issue(folder.load(), wanted, days=days, now=utc_now())
    HolderFolder(out).create(pair, folder.bundle())
    click.echo(f"{wanted.common_name} for {days} days in {out}")


@pki.command()
@click.argument("folders", type=Folder, nargs=-1, required=True)
@ca_option
@click.option("--all", "everything", is_flag=True, help="Also those that hold for long.")
@click.option("--trust-only", is_flag=True, help="Only bring ca.crt up to date, as after conclave pki rotate.")
def renew(folders: tuple[Path, ...], ca: Path, everything: bool, trust_only: bool) -> None:
    """Renew the certificates in FOLDERS that have less than a third of their time left. Services follow the files."""
    source, now = AuthorityFolder(ca), utc_now()
    bundle, authority = source.bundle(), None if trust_only else source.load()
    for folder in folders:
        holder = HolderFolder(folder)
        current = holder.certificate()
        left, life = current.not_valid_after_utc - now, current.not_valid_after_utc - current.not_valid_before_utc
        name = certificates.name_of(current)
        if authority is None:
            holder.trust(bundle)
            click.echo(f"{folder}: {name}: trusts {len(bundle)} CA{'s' * (len(bundle) > 1)}")
        elif not everything and left * 3 > life:
            click.echo(f"{folder}: {name}: holds {left.days} more days, kept")
        else:
            wanted, days = certificates.wanted_again(current)
            holder.replace(certificates.issue(authority, wanted, days=days, now=now), bundle)
            click.echo(f"{folder}: {name}: renewed for {days} days")


@pki.command()
@ca_option
@click.option("--finish", is_flag=True, help="Last step: trust the new CA alone.")
@click.option("--days", type=Days, default=CA_DAYS, show_default=True, help="How long it holds.")
def rotate(ca: Path, finish: bool, days: int) -> None:
    """Replace the CA: makes a new one that signs from now on, and goes on trusting the old one.

    Then: renew --trust-only FOLDERS, wait until every process has read them; renew --all FOLDERS, wait again; rotate
    --finish and renew --trust-only FOLDERS.
    """
    folder = AuthorityFolder(ca)
    signs, bundle = folder.load(), folder.bundle()
    if finish:
        folder.trust((certificates.pem_of(signs.certificate),))
        click.echo(f"{ca}: {len(bundle) - 1} old CA no longer trusted; now: conclave pki renew --trust-only FOLDERS")
        return
    if len(bundle) > 1:
        raise ConfigError(f"{ca}/ca.crt: a replacement is under way; end it with conclave pki rotate --finish")
    name = certificates.name_of(signs.certificate)
    folder.replace(certificates.make_authority(name, days=days, now=utc_now()), trusted=bundle)
    click.echo(f"{ca}: a new CA signs, the old one is still trusted; now: conclave pki renew --trust-only FOLDERS")


@pki.command()
@click.argument("paths", type=Folder, nargs=-1, required=True)
@click.option("-o", "--output", type=click.Choice(["table", *DOCUMENTS]), default="table", help="How to print it.")
def show(paths: tuple[Path, ...], output: str) -> int:
    """Show the certificates in PATHS (files, or folders with tls.crt or ca.crt). Exit code 1: one does not hold now."""
    rows = [row for path in paths for row in _rows(path, utc_now())]
    click.echo(document_text(rows, output) if output in DOCUMENTS else "\n".join(CERTIFICATES.lines(rows)))
    return 0 if all(row["state"] in {OK, SOON} for row in rows) else 1


OK, SOON = "ok", "renew soon"

CERTIFICATES = ListKind(
    title="Certificate",
    resource="certificate",
    columns=(
        text("NAME", "name"),
        text("STATE", "state"),
        text("ENDS", lambda row: f"{dt.datetime.fromisoformat(row['not_after']):%Y-%m-%d %H:%M:%S}"),
        number("DAYS", "days_left"),
        text("ISSUER", "issuer"),
        text("FILE", "file"),
    ),
)


def _rows(path: Path, now: dt.datetime) -> list[Json]:
    file = path
    if path.is_dir():
        file = path / CERT if (path / CERT).exists() else path / "ca.crt"
    found = read_certificates(file, "give a certificate in PEM, or a folder with tls.crt or ca.crt")
    return [_row(file, certificate, now) for certificate in found]


def _row(file: Path, certificate: x509.Certificate, now: dt.datetime) -> Json:
    """The certificate as ``-o json`` shows it."""
    from cryptography.x509.oid import NameOID

    issuer = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return {
        "file": str(file),
        "name": certificates.name_of(certificate),
        "issuer": str(issuer[0].value) if issuer else "",
        "san": list(certificates.names_of(certificate)),
        "not_before": begins.isoformat(),
        "not_after": ends.isoformat(),
        "days_left": (ends - now).days,
        "state": _state(begins, ends, now),
    }


def _state(begins: dt.datetime, ends: dt.datetime, now: dt.datetime) -> str:
    """``SOON``: less than a third of its time is left."""
    if now >= ends:
        return "expired"
    if now < begins:
        return "not yet valid"
    return OK if (ends - now) * 3 > ends - begins else SOON
