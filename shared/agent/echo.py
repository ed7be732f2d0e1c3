"""Probes between agents as datagrams: made, signed, and read with suspicion. Pure.

    probe  = head, nonce, who asks, who is asked               padded to the size of an answer: no answer is larger
    answer = head, the probe's nonce, how long it was held, where the answering node stands, some of its peers

Each ends in HMAC-SHA256 over all before it, under a key that the leading coordinator hands to registered agents over
their authenticated connection. Who has no key can neither ask nor answer; what was recorded and is sent again answers
no open probe, and a recorded probe is good neither elsewhere, nor from elsewhere, nor twice (``probing.py``). Layout is
fixed, so nothing is parsed before the signature holds.
"""

from __future__ import annotations

import hmac
import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from shared.agent.vivaldi import DIMENSIONS, Coordinate

Address = tuple[str, int]
"""IP address as text, UDP port."""

MAGIC, VERSION = b"CNCe", 2
PROBE, ANSWER = 1, 2
NONCE_BYTES = 16
PEERS = 3
"""Peers that an answer may name."""
NOWHERE: Address = ("", 0)
_HEAD = struct.Struct(f">4sBB{NONCE_BYTES}s")
_BODY = struct.Struct(f">I{DIMENSIONS + 2}dB")
_PEER = struct.Struct(">B16sH")
_SIGNED_BYTES = 160
SIZE = _SIGNED_BYTES + sha256().digest_size
"""Bytes of every datagram."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Somebody asks: ``asker`` as its peers reach it, ``asked`` as the asker knows us."""

    nonce: bytes
    asker: Address
    asked: Address


@dataclass(frozen=True, slots=True)
class EchoAnswer:
    """``held_us``: from the probe's arrival to this answer; ``coordinate`` and ``peers`` are not checked here."""

    nonce: bytes
    held_us: int
    coordinate: Coordinate
    peers: tuple[Address, ...]


def probe(key: bytes, nonce: bytes, asker: Address, asked: Address) -> bytes:
    """A datagram that asks; an address that is none is told as nothing, which no peer answers."""
    ends = b"".join(_packed(one) or bytes(_PEER.size) for one in (asker, asked))
    return _signed(key, _HEAD.pack(MAGIC, VERSION, PROBE, nonce) + ends)


def answer(key: bytes, nonce: bytes, *, held_us: int, coordinate: Coordinate, peers: Sequence[Address]) -> bytes:
    """A datagram that answers the probe of that nonce."""
    known = [packed for peer in peers[:PEERS] if (packed := _packed(peer)) is not None]
    body = _BODY.pack(min(max(held_us, 0), 0xFFFFFFFF), *coordinate.at, coordinate.height, coordinate.error, len(known))
    return _signed(key, _HEAD.pack(MAGIC, VERSION, ANSWER, nonce) + body + b"".join(known))


def read(keys: Sequence[bytes], datagram: bytes) -> tuple[Probe | EchoAnswer, bytes] | None:
    """(what it says, the key it was signed with); None for anything that is not one of ours in every bit."""
    if len(datagram) != SIZE or not datagram.startswith(MAGIC):
        return None
    signed, mark = datagram[:_SIGNED_BYTES], datagram[_SIGNED_BYTES:]
    key = next((key for key in keys if hmac.compare_digest(hmac.digest(key, signed, "sha256"), mark)), None)
    if key is None:
        return None
    _, version, kind, nonce = _HEAD.unpack_from(signed)
    if version != VERSION:
        return None
    if kind == PROBE:
        ends = [_unpacked(signed, _HEAD.size + place * _PEER.size) for place in range(2)]
        return Probe(nonce, ends[0] or NOWHERE, ends[1] or NOWHERE), key
    if kind != ANSWER:
        return None
    held_us, *numbers, count = _BODY.unpack_from(signed, _HEAD.size)
    at = _HEAD.size + _BODY.size
    places = range(at, at + min(count, PEERS) * _PEER.size, _PEER.size)
    peers = tuple(peer for place in places if (peer := _unpacked(signed, place)) is not None)
    coordinate = Coordinate(tuple(numbers[:DIMENSIONS]), numbers[DIMENSIONS], numbers[DIMENSIONS + 1])
    return EchoAnswer(nonce, held_us, coordinate, peers), key


def _signed(key: bytes, text: bytes) -> bytes:
    padded = text.ljust(_SIGNED_BYTES, b"\0")
    return padded + hmac.digest(key, padded, "sha256")


def _packed(peer: Address) -> bytes | None:
    try:
        address = ipaddress.ip_address(peer[0])
    except ValueError:
        return None
    return _PEER.pack(address.version, address.packed.ljust(16, b"\0"), peer[1])


def _unpacked(signed: bytes, place: int) -> Address | None:
    version, packed, port = _PEER.unpack_from(signed, place)
    if version not in (4, 6) or not port:
        return None
    return str(ipaddress.ip_address(packed[:4] if version == 4 else packed)), port


def may_be_probed(peer: Address) -> bool:
    """Whether an address is one host's: nobody can make agents shout at a network."""
    try:
        address = ipaddress.ip_address(peer[0])
    except ValueError:
        return False
    if not 0 < peer[1] < 65536 or address.is_multicast or address.is_unspecified:
        return False
    return address.is_loopback or not address.is_reserved  # ::1 counts as reserved
