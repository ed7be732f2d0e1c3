"""From when and until when the certificates in a PEM file hold, by the standard library alone.

Why: a service must say in one line that its certificate has expired, instead of failing every handshake; but a library
for certificates would cost every process some megabytes for two dates. X.509 puts them at a fixed place (RFC 5280,
4.1): ``SEQUENCE { SEQUENCE { [0] version, serial, algorithm, issuer, SEQUENCE { notBefore, notAfter } ...``.

Refuses to judge anything else about a certificate: TLS does.
"""

from __future__ import annotations

import datetime as dt
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

SEQUENCE, INTEGER, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x02, 0x17, 0x18, 0xA0
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Dates:
    """Seconds since the epoch."""

    not_before: float
    not_after: float


def dates_in(file: Path) -> list[Dates]:
    """The dates of every certificate in the file, in its order. ``ValueError``: none, or not one; ``OSError``."""
    found = _PEM.findall(file.read_text(encoding="ascii"))
    if not found:
        raise ValueError("no PEM certificate")
    return [dates_of(ssl.PEM_cert_to_DER_cert(pem)) for pem in found]


def dates_of(der: bytes) -> Dates:
    """The dates of one certificate. ``ValueError``: it is not one."""
    try:
        certificate = _take(der, 0, SEQUENCE)[0]
        body = _take(certificate, 0, SEQUENCE)[0]
        at = 0
        if body[:1] == bytes((VERSION,)):
            at = _take(body, at, VERSION)[1]
        for tag in (INTEGER, SEQUENCE, SEQUENCE):  # serial number, algorithm, issuer
            at = _take(body, at, tag)[1]
        validity = _take(body, at, SEQUENCE)[0]
        first, middle = _moment(validity, 0)
        last, _ = _moment(validity, middle)
    except IndexError as error:
        raise ValueError("a certificate that ends early") from error
    return Dates(first, last)


def _take(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """The content of the element at ``at``, which must have this tag, and where the next one begins."""
    if data[at] != tag:
        raise ValueError(f"not a certificate: tag {data[at]:#x} where {tag:#x} belongs")
    length, at = data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("not a certificate: a length that DER does not have")
        length, at = int.from_bytes(data[at : at + count]), at + count
    if at + length > len(data):
        raise ValueError("a certificate that ends early")
    return data[at : at + length], at + length


def _moment(data: bytes, at: int) -> tuple[float, int]:
    tag = data[at]
    if tag not in {UTC_TIME, GENERALIZED_TIME}:
        raise ValueError("not a certificate: no date where one belongs")
    raw, after = _take(data, at, tag)
    text = raw.decode("ascii")
    if tag == UTC_TIME:  # two digits: 50 and above are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    moment = dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)
    return moment.timestamp(), after
