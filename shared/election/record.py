"""What the leader writes into its key: who it is and where it can be reached.

JSON, so that ``etcdctl get`` shows it to people; unknown fields are ignored, so that versions can be mixed. A value
that cannot be read is somebody else's: it never counts as our own.
"""

from __future__ import annotations

import msgspec


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``identity`` names a place (host, pod name) and outlives a restart; ``incarnation`` names one process."""

    identity: str
    incarnation: str
    url: str = ""
    """Where the leader's HTTP endpoint listens; empty where nobody needs to call it."""
    admin_url: str = ""
    """Where the leader's admin API listens; empty where it has none."""
    version: str = ""
    """Of Conclave; one of another major version is refused."""

    def encode(self) -> bytes:
        return _ENCODER.encode(self)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(LeaderRecord)


def decode_record(value: bytes) -> LeaderRecord | None:
    """The record in a key's value; None where it is not one."""
    try:
        return _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
