"""Messages to and from bytes, with limits. The only place that encodes or decodes what services exchange.

Decoding is typed: the body's size is checked first, then kind and version, then every field. What is refused carries a
stable code: ``wire_too_large``, ``wire_malformed``, ``wire_unknown_kind``, ``wire_unknown_version``, ``wire_invalid``,
``wire_unexpected_kind``.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shared.errors import WireError
from shared.wire.messages import KINDS, VERSION, AnyMessage, Message

MEDIA_TYPE = "application/vnd.conclave.v1+msgpack"
MAX_BODY_BYTES = 4 * 1024 * 1024

M = TypeVar("M", bound=Message)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_envelope = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode(message: Message) -> bytes:
    """The message's bytes."""
    return _encoder.encode(message)


def decode(body: bytes, expected: type[M], *, limit: int = MAX_BODY_BYTES) -> M:
    """The message in ``body``, which must be of type ``expected``. Raises ``WireError`` with a stable code."""
    if len(body) > limit:
        raise WireError(f"body of {len(body)} bytes is over the limit of {limit}", code="wire_too_large")
    try:
        message = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _diagnose(body, error) from error
    if message.version != VERSION:
        raise WireError(f"version {message.version} is not spoken here, only {VERSION}", code="wire_unknown_version")
    if type(message) is not expected:
        raise WireError(f"expected {expected.__name__}, got {type(message).__name__}", code="wire_unexpected_kind")
    return message


def _diagnose(body: bytes, error: Exception) -> WireError:
    """Which code a body that did not decode deserves. Only the envelope is looked at."""
    try:
        parts = _envelope.decode(body)
        head = [msgspec.msgpack.decode(bytes(part), type=int) for part in parts[:2]]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return WireError("not a message: a msgpack array that begins with kind and version", code="wire_malformed")
    if len(head) < 2:
        return WireError("not a message: it ends before the version", code="wire_malformed")
    if head[0] not in KINDS:
        return WireError(f"kind {head[0]} is not known", code="wire_unknown_kind")
    if head[1] != VERSION:
        return WireError(f"version {head[1]} is not spoken here, only {VERSION}", code="wire_unknown_version")
    return WireError(f"{KINDS[head[0]].__name__}: {str(error)[:200]}", code="wire_invalid")
