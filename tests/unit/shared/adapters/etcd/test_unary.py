"""Calls over a connection whose server is scripted, frame by frame: what is an answer, refused, or unknown."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from shared.adapters.etcd import unary
from shared.adapters.etcd.headers import literal
from shared.adapters.etcd.unary import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    CallFailed,
    CallRefused,
    ConnectionBroken,
    UnaryConnection,
)
from shared.adapters.etcd.unary import _frame as frame

TEN_S = 10.0
OK = b"\x88" + literal("content-type", "application/grpc")


class Wire:
    """The transport of a connection: what was written to it, frame by frame."""

    def __init__(self) -> None:
        self.written = b""
        self.ended = False

    def write(self, text: bytes) -> None:
        self.written += text

    def abort(self) -> None:
        self.ended = True

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """(type, flags, stream, payload) of what was written since the last call."""
        text, self.written, found = self.written.removeprefix(unary.PREFACE), b"", []
        while text:
            end = 9 + int.from_bytes(text[:3], "big")
            found.append((text[3], text[4], int.from_bytes(text[5:9], "big"), text[9:end]))
            text = text[end:]
        return found


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + number(value)


def opened(settings: bytes = b"") -> tuple[UnaryConnection, Wire]:
    """A connection to a server that has said its settings."""
    wire = Wire()
    connection = UnaryConnection("here:1", tls=False)
    connection.connection_made(cast("asyncio.Transport", wire))
    assert not connection.takes(1), "the server has not said a word"
    wire.frames()
    connection.data_received(frame(SETTINGS, 0, 0, settings))
    assert wire.frames() == [(SETTINGS, ACK, 0, b"")]
    return connection, wire


def answered(stream: int, message: bytes, status: str = "0") -> bytes:
    body = b"\0" + number(len(message)) + message
    return (
        frame(HEADERS, END_HEADERS, stream, OK)
        + frame(DATA, 0, stream, body)
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, literal("grpc-status", status))
    )


def failed(stream: int, status: int, message: str) -> bytes:
    told = OK + literal("grpc-status", str(status)) + literal("grpc-message", message)
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, told)


async def calling(
    connection: UnaryConnection, message: bytes = b"ask", timeout_s: float = TEN_S
) -> asyncio.Task[bytes]:
    task = asyncio.create_task(connection.call("/a.B/C", message, timeout_s))
    await asyncio.sleep(0)
    return task


async def test_a_call_is_one_block_of_headers_and_its_message_and_the_answer_comes_back() -> None:
    connection, wire = opened()
    assert connection.takes(3)
    call = await calling(connection)
    (headers, flags, stream, block), data = wire.frames()
    assert (headers, flags, stream, data) == (HEADERS, END_HEADERS, 1, (DATA, END_STREAM, 1, b"\0\0\0\0\x03ask"))
    assert b"/a.B/C" in block
    connection.data_received(answered(1, b"answer"))
    assert await call == b"answer"


async def test_an_answer_may_come_byte_by_byte_and_answers_in_any_order() -> None:
    connection, _ = opened()
    first, second = await calling(connection), await calling(connection)
    for byte in answered(3, b"second") + answered(1, b"first"):
        connection.data_received(bytes((byte,)))
    assert (await first, await second) == (b"first", b"second")


async def test_an_error_of_the_server_has_its_code_and_its_text() -> None:
    connection, _ = opened()
    call = await calling(connection)
    connection.data_received(failed(1, 9, "etcdserver: lease%20already exists"))
    with pytest.raises(CallFailed, match="etcdserver: lease already exists") as caught:
        await call
    assert caught.value.status == 9
    assert connection.takes(3), "the next call may go"


async def test_a_message_for_which_the_server_has_no_room_now_is_not_taken() -> None:
    connection, _ = opened()
    assert not connection.takes(unary.WINDOW_BYTES - 4)
    assert connection.takes(unary.WINDOW_BYTES - 5)
    call = await calling(connection, bytes(60_000))
    assert not connection.takes(6_000)
    connection.data_received(frame(WINDOW_UPDATE, 0, 0, number(60_005)) + answered(1, b""))
    assert await call == b""
    assert connection.takes(60_000)


async def test_a_servers_settings_bound_streams_messages_and_frames() -> None:
    connection, wire = opened(
        setting(unary.MAX_STREAMS, 1) + setting(unary.INITIAL_WINDOW, 100) + setting(unary.MAX_FRAME, 40)
    )
    assert connection.takes(95)
    assert not connection.takes(96)
    call = await calling(connection, bytes(90))
    assert [len(text) for kind, _, _, text in wire.frames() if kind == DATA] == [40, 40, 15]
    assert not connection.takes(1), "one stream is open"
    connection.data_received(answered(1, b""))
    await call
    assert connection.takes(1)


async def test_a_ping_is_answered_and_room_is_given_back() -> None:
    connection, wire = opened()
    connection.data_received(frame(PING, 0, 0, b"12345678"))
    assert wire.frames() == [(PING, ACK, 0, b"12345678")]
    connection.data_received(frame(DATA, 0, 1, bytes(16_000)) + frame(DATA, 0, 1, bytes(1_000)))
    assert wire.frames() == [(WINDOW_UPDATE, 0, 0, number(17_000))]


async def test_who_goes_away_answers_what_it_has_seen_and_refuses_the_rest() -> None:
    connection, wire = opened()
    seen, unseen = await calling(connection), await calling(connection)
    connection.data_received(frame(GOAWAY, 0, 0, number(1) + number(0)))
    assert not connection.takes(1)
    with pytest.raises(CallRefused):
        await unseen
    assert not wire.ended
    connection.data_received(answered(1, b"yes"))
    assert await seen == b"yes"
    assert wire.ended


@pytest.mark.parametrize(("code", "error"), [(unary.REFUSED_STREAM, CallRefused), (2, ConnectionBroken)])
async def test_a_stream_that_is_reset_is_unknown_unless_it_was_refused(code: int, error: type[Exception]) -> None:
    connection, _ = opened()
    call = await calling(connection)
    connection.data_received(frame(RST_STREAM, 0, 1, number(code)))
    with pytest.raises(error):
        await call
    assert connection.takes(1)


async def test_a_call_that_is_late_ends_the_connection_and_all_others_are_unknown() -> None:
    connection, wire = opened()
    other, late = await calling(connection), await calling(connection, timeout_s=0.01)
    for call in (late, other):
        with pytest.raises(TimeoutError):
            await call
    assert connection.over
    assert wire.ended


async def test_a_call_that_is_given_up_is_reset_and_its_answer_passed_over() -> None:
    connection, wire = opened()
    call = await calling(connection)
    wire.frames()
    call.cancel()
    await asyncio.wait((call,))
    assert wire.frames() == [(RST_STREAM, 0, 1, number(unary.CANCEL))]
    connection.data_received(answered(1, b"late"))
    assert connection.takes(1)


BODY = frame(HEADERS, END_HEADERS, 1, OK)
END = frame(HEADERS, END_HEADERS | END_STREAM, 1, literal("grpc-status", "0"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(frame(HEADERS, END_HEADERS | unary.PADDED, 1, OK), id="padded headers"),
        pytest.param(frame(HEADERS, 0, 1, OK), id="headers in several frames"),
        pytest.param(frame(unary.CONTINUATION, END_HEADERS, 1, OK), id="a continuation of nothing"),
        pytest.param(frame(5, END_HEADERS, 1, number(2) + OK), id="a pushed answer"),
        pytest.param(frame(DATA, unary.PADDED, 1, b"\0"), id="padded data"),
        pytest.param(BODY + frame(DATA, END_STREAM, 1, b"\0\0\0\0\0"), id="no trailers"),
        pytest.param(frame(DATA, 0, 1, bytes(16_385)), id="a frame that is too long"),
        pytest.param(frame(HEADERS, END_HEADERS, 1, b"\xff\x80\x80\x80\x80\x80\x01"), id="headers that are none"),
    ],
)
async def test_what_is_not_spoken_here_ends_the_connection(text: bytes) -> None:
    connection, wire = opened()
    call = await calling(connection)
    connection.data_received(text)
    with pytest.raises(ConnectionBroken):
        await call
    assert wire.ended
    assert not connection.takes(1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(BODY + END, id="no message"),
        pytest.param(BODY + frame(DATA, 0, 1, b"\x01\0\0\0\0") + END, id="a packed message"),
        pytest.param(BODY + frame(DATA, 0, 1, b"\0\0\0\0\x02x") + END, id="half a message"),
        pytest.param(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x8d"), id="404"),
        pytest.param(BODY + frame(HEADERS, END_HEADERS | END_STREAM, 1, literal("a", "b")), id="no status"),
    ],
)
async def test_an_answer_that_is_none_is_unknown(text: bytes) -> None:
    connection, _ = opened()
    call = await calling(connection)
    connection.data_received(text)
    with pytest.raises(ConnectionBroken):
        await call


async def test_a_connection_that_ends_leaves_its_calls_unknown() -> None:
    connection, _ = opened()
    call = await calling(connection)
    connection.connection_lost(None)
    with pytest.raises(ConnectionBroken):
        await call
    assert connection.over


async def test_a_connection_that_ends_before_a_word_is_ready_for_nothing() -> None:
    connection = UnaryConnection("here:1", tls=True)
    connection.connection_lost(OSError("gone"))
    await connection.ready
    assert connection.over
