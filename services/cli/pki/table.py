"""What ``conclave pki show`` prints: a row per certificate, for people and for scripts. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.adapters.peers.certificates import name_of, names_of

if TYPE_CHECKING:
    from cryptography import x509


@dataclass(frozen=True, slots=True)
class Row:
    """One certificate as it is now."""

    file: Path
    name: str
    issuer: str
    names: tuple[str, ...]
    not_before: dt.datetime
    not_after: dt.datetime
    now: dt.datetime

    @property
    def state(self) -> str:
        """``ok``, ``renew soon`` (a third of its time left), ``expired`` or ``not yet valid``."""
        if self.now >= self.not_after:
            return "expired"
        if self.now < self.not_before:
            return "not yet valid"
        left, life = self.not_after - self.now, self.not_after - self.not_before
        return "ok" if left * 3 > life else "renew soon"

    @property
    def holds(self) -> bool:
        """Whether anybody would accept it now."""
        return self.state in {"ok", "renew soon"}

    def to_json(self) -> dict[str, Any]:
        """For ``-o json``."""
        return {
            "file": str(self.file),
            "name": self.name,
            "issuer": self.issuer,
            "san": list(self.names),
            "not_before": self.not_before.isoformat(),
            "not_after": self.not_after.isoformat(),
            "days_left": (self.not_after - self.now).days,
            "state": self.state,
        }


def row_of(file: Path, certificate: x509.Certificate, now: dt.datetime) -> Row:
    """The row of a certificate."""
    from cryptography.x509.oid import NameOID

    issuer = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Row(
        file=file,
        name=name_of(certificate),
        issuer=str(issuer[0].value) if issuer else "",
        names=tuple(names_of(certificate)),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        now=now,
    )


def lines_of(rows: Sequence[Row]) -> list[str]:
    """The table's lines."""
    width = max([4, *(len(row.name) for row in rows)]) + 2
    lines = [f"{'NAME':<{width}}{'STATE':<15}{'ENDS':<22}{'DAYS':<7}{'ISSUER':<16}FILE"]
    for row in rows:
        ends = row.not_after.strftime("%Y-%m-%d %H:%M:%S")
        days = (row.not_after - row.now).days
        lines.append(f"{row.name:<{width}}{row.state:<15}{ends:<22}{days:<7}{row.issuer:<16}{row.file}")
    return lines
