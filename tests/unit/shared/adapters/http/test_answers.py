"""HTTP/1.1 answers, however the bytes fall into pieces, and what is refused rather than guessed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.http.answers import MAX_HEAD, AnswerBroken, AnswerReader, ResponseHead, head_of

STATUS = b'{"kind":"Status","status":"Success","code":201}'
BOUND = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(STATUS) + STATUS
EVENTS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b'5\r\n{"a":\r\n2;ext="x"\r\n1}\r\n0\r\nTrailer: read over\r\n\r\n'


def read(text: bytes, cuts: list[int] | None = None, *, ended: bool = False) -> tuple[ResponseHead | None, bytes, bool]:
    """(head, body, done) of ``text``, fed in the pieces that ``cuts`` makes of it."""
    reader, body = AnswerReader(), []
    reader.begin()
    edges = [0, *sorted({cut % (len(text) + 1) for cut in cuts or ()}), len(text)]
    for begin, end in itertools.pairwise(edges):
        if begin < end:
            reader.feed(text[begin:end], body)
    if ended:
        reader.end()
    return reader.head, b"".join(body), reader.done


cuts = st.lists(st.integers(0, 400), max_size=12)


@given(cuts=cuts)
def test_an_answer_with_a_length_is_read_whole_in_any_pieces(cuts: list[int]) -> None:
    head, body, done = read(BOUND, cuts)
    assert head == ResponseHead(201, len(STATUS), chunked=False, keep_alive=True, retry_after=None)
    assert (body, done) == (STATUS, True)


@given(cuts=cuts)
def test_chunks_are_joined_and_extensions_and_trailers_read_over_in_any_pieces(cuts: list[int]) -> None:
    head, body, done = read(EVENTS + CHUNKS, cuts)
    assert head is not None
    assert (head.status, head.chunked, head.keep_alive) == (200, True, True)
    assert (body, done) == (b'{"a":1}', True)


@given(cuts=cuts)
def test_interim_answers_are_read_over(cuts: list[int]) -> None:
    head, body, done = read(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + BOUND, cuts)
    assert head is not None
    assert (head.status, body, done) == (201, STATUS, True)


def test_without_length_or_chunks_the_end_of_the_connection_is_the_end_and_nothing_is_asked_again() -> None:
    head, body, done = read(b"HTTP/1.1 200 OK\r\n\r\nall of it", ended=True)
    assert head is not None
    assert (body, done, head.keep_alive) == (b"all of it", True, False)


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body_end_with_their_head(status: int) -> None:
    head, body, done = read(b"HTTP/1.1 %d X\r\n\r\n" % status)
    assert head is not None
    assert (head.length, body, done, head.keep_alive) == (0, b"", True, True)


def test_what_answers_a_connect_has_no_body_whatever_it_says() -> None:
    reader = AnswerReader()
    reader.begin(bodiless=True)
    reader.feed(b"HTTP/1.1 200 Connection established\r\n\r\n", [])
    assert reader.done


def test_headers_are_read_whatever_their_case() -> None:
    head = head_of(b"HTTP/1.0 429 Too Many\r\ncontent-LENGTH:  7 \r\nRETRY-After: 3\r\nConnection: Keep-Alive")
    assert head == ResponseHead(429, 7, chunked=False, keep_alive=True, retry_after="3")


@pytest.mark.parametrize(
    "line", [b"HTTP/1.0 200 OK\r\nContent-Length: 0", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close"]
)
def test_a_connection_that_the_server_will_close_is_not_used_again(line: bytes) -> None:
    assert not head_of(line).keep_alive


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/2 200 OK", id="another-version"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6", id="another-protocol"),
        pytest.param(b"HTTP/1.1 2000 OK", id="status-of-four"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length 7", id="no-colon"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: 1\r\n folded", id="folded"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length : 1", id="space-before-colon"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2", id="two-lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: +1", id="sign"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", id="length-and-chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", id="unknown-coding"),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(AnswerBroken):
        head_of(head)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(BOUND + b"H", id="bytes-after-a-length"),
        pytest.param(EVENTS + CHUNKS + b"H", id="bytes-after-chunks"),
        pytest.param(EVENTS + b"zz\r\n", id="no-size"),
        pytest.param(EVENTS + b"-1\r\nx", id="negative-size"),
        pytest.param(EVENTS + b"0x2\r\nab", id="size-of-python"),
        pytest.param(EVENTS + b"1\r\nabc\r\n", id="chunk-longer-than-said"),
        pytest.param(EVENTS + b"1;" + b"x" * 2000, id="endless-extension"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: 1\r\n" * MAX_HEAD, id="endless-head"),
        pytest.param(EVENTS + b"0\r\n" + b"x" * (MAX_HEAD + 1), id="endless-trailer"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", id="protocol-changed-unasked"),
    ],
)
def test_bytes_that_could_be_taken_for_another_answers_end_the_connection(text: bytes) -> None:
    with pytest.raises(AnswerBroken):
        read(text)


@given(cut=st.integers(0, len(EVENTS + CHUNKS) - 1))
def test_a_connection_that_ends_early_never_gives_a_shorter_answer(cut: int) -> None:
    with pytest.raises(AnswerBroken):
        read((EVENTS + CHUNKS)[:cut], ended=True)


def test_bytes_between_two_answers_answer_nothing() -> None:
    reader = AnswerReader()
    with pytest.raises(AnswerBroken, match="answer nothing"):
        reader.feed(BOUND, [])
